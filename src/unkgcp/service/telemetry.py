"""What the service tells its operators: counters for Prometheus, and one JSON line a request."""

from __future__ import annotations

import logging
import sys
from collections import Counter as Tally
from collections.abc import Mapping
from logging.handlers import WatchedFileHandler
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from unkgcp._version import __version__
from unkgcp.errors import InputError


class Metrics:
    """Everything that is counted, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        by_path, registry = ["path"], self.registry
        self.requests = Counter(
            "unkgcp_requests", "Requests by path and status.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "unkgcp_request_seconds", "Time to answer a request.", by_path, registry=registry
        )
        self.in_flight = Gauge(
            "unkgcp_requests_in_flight", "Requests that are being answered.", registry=registry
        )
        self.queries = Counter(
            "unkgcp_queries",
            "Triples answered with an interval, by kind and status.",
            ["run", "kind", "status"],
            registry=registry,
        )
        self.batches = Histogram(
            "unkgcp_batch_requests",
            "Requests answered by one call of the model.",
            buckets=[2**power for power in range(8)],
            registry=registry,
        )
        self.reloads = Counter("unkgcp_reloads", "Reloads by outcome.", ["outcome"], registry=registry)
        self.info = Gauge(
            "unkgcp_info", "What is being served.", ["version", "run", "model", "method"], registry=registry
        )

    def serves(self, runs: Mapping[str, tuple[str, str]]) -> None:
        """Model and method of each run by its name."""
        self.info.clear()
        for name, (model, method) in runs.items():
            self.info.labels(__version__, name, model, method).set(1)

    def called(self, run: str, requests: int, columns: Mapping[str, list[Any]]) -> None:
        """The model answered so many requests in one call, with these columns."""
        self.batches.observe(requests)
        statuses = columns["status"]
        kinds = columns.get("kind", ["any"] * len(statuses))
        for (kind, status), count in Tally(zip(kinds, statuses, strict=True)).items():
            self.queries.labels(run, kind, status).inc(count)


def access_log(path: str | None) -> logging.Logger:
    """A log of bare lines, in a file that may be moved away meanwhile (log rotation), or on standard output (`-`)."""
    log = logging.Logger("unkgcp.access")
    if path is not None:
        try:
            log.addHandler(logging.StreamHandler(sys.stdout) if path == "-" else WatchedFileHandler(path))
        except OSError as error:
            raise InputError(
                f"the access log {path} cannot be written ({error.strerror}); name another file"
            ) from None
    return log
