"""What the service allows: one frozen record, the same for every request."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and access.

    token: what `Authorization: Bearer ...` must carry, None for no check.
    hosts: names that the `Host` header may carry, None for any. A service on loopback without a token checks
        it, so that no web page can reach it under a name of its own.
    max_body: bytes of a request body. max_held: bytes of all bodies that have begun to arrive, and of all answers that
        clients have not read yet; beyond it bodies are refused and the slowest readers are dropped.
    max_triples, max_levels: of one request. max_k: completions of one request.
    max_waiting: triples of all requests that wait for the model; more are refused until some are answered. It bounds
        memory; time is bounded by `answer_seconds`, since what would take longer beside all that waits is refused.
    max_jobs: completions and evidence that wait or run; more are refused.
    max_connections: open ones; beyond it those are dropped that have been idle or sending a request for longest.
    body_seconds: a request must have arrived by then. answer_seconds: and be answered by then. read_seconds: and its
        client have read the answer by then.
    """

    token: bytes | None = None
    hosts: frozenset[str] | None = None
    max_body: int = 4 * MEBIBYTE
    max_held: int = 256 * MEBIBYTE
    max_triples: int = 10_000
    max_levels: int = 20
    max_k: int = 1000
    max_waiting: int = 200_000
    max_jobs: int = 64
    max_connections: int = 1000
    body_seconds: float = 10.0
    answer_seconds: float = 30.0
    read_seconds: float = 30.0

    @property
    def grace_seconds(self) -> float:
        """How long requests on their way have when the service is told to stop: as long as at any other time."""
        return self.body_seconds + self.answer_seconds + 1
