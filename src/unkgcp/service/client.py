"""A service asked from Python, with the questions and answers of `Predictor`.

>>> client = unkgcp.Client("http://127.0.0.1:8000/")                          # doctest: +SKIP
>>> client.interval([("TP53", "binding", "MDM2")], confidence=0.9).lower      # doctest: +SKIP

Large requests are sent in pieces. What a busy service or its proxy refuses for a moment (503 or 429, with
`Retry-After`) is asked again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa

from unkgcp.errors import InputError, public
from unkgcp.graph.kinds import KINDS
from unkgcp.graph.objects import labels_of
from unkgcp.methods.intervals import BASES, STATUSES, Intervals
from unkgcp.run.answer_sets import AnswerSet
from unkgcp.run.answers import LABELS

# the types of columns, where they are not float64, and the fields of those that are names
TYPES: dict[str, Any] = dict.fromkeys(("score", "belief", "other_belief"), np.float32)
TYPES |= dict.fromkeys(("no_fact", "presumes_fact"), np.bool_)
CODED = {"status": ("code", STATUSES), "promise": ("basis", BASES), "kind": ("kind", KINDS)}
BUSY = (429, 503)  # from a proxy that limits the rate, and from the service
LONGEST_PAUSE = 10.0  # seconds before a request is sent again
Level = float | Sequence[float]


class Client:
    """A service at an address; `run` names one of several that it serves, `token` is what it asks for.

    `retries` is how often a request is sent again that the service refuses because it is busy.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        run: str | None = None,
        timeout: float = 60.0,
        retries: int = 5,
    ) -> None:
        self._base = address.rstrip("/") + (f"/runs/{quote(run, safe='')}" if run else "") + "/v1/"
        self._token, self._timeout, self._retries = token and token.strip(), timeout, retries

    @cached_property
    def about(self) -> dict[str, Any]:
        """What is being served, with the limits of the service."""
        return dict(self._ask("about"))

    def interval(self, queries: Any, confidence: Level = 0.9) -> Intervals:
        """As `Predictor.interval`, for queries that are labels or a graph."""
        labels, level = _labels(queries), np.asarray(confidence, float).tolist()
        rows = _rows(labels)
        longest = max((len(json.dumps(row)) for row in rows), default=0) + 2
        size = min(self.about["max_triples"], self.about["max_body"] // longest - 1)
        replies = [
            self._ask("intervals", {"triples": rows[start : start + size], "confidence": level})
            for start in range(0, max(len(rows), 1), size)
        ]
        columns = {name: column for name, column in replies[0].items() if name not in ("notes", "confidence")}
        joined = {name: [entry for reply in replies for entry in reply[name]] for name in columns}
        return intervals_from({"confidence": level, **joined}, labels)

    def select(
        self, queries: Any, condition: str, fdr: float | list[float] = 0.1, confidence: Level = 0.9
    ) -> Intervals:
        """As `Predictor.select`. The choice depends on all candidates together, so they go in one request."""
        labels = _labels(queries)
        question = {"condition": condition, "fdr": fdr, "confidence": np.asarray(confidence, float).tolist()}
        return intervals_from(self._ask("select", {"triples": _rows(labels), **question}), labels)

    def complete(
        self,
        head: str | None = None,
        relation: str = "",
        tail: str | None = None,
        *,
        k: int = 10,
        confidence: Level = 0.9,
        rank_by: str = "score",
        exclude_known: bool = False,
    ) -> Intervals:
        """As `Predictor.complete`."""
        query = {
            "head": head,
            "relation": relation,
            "tail": tail,
            "k": k,
            "rank_by": rank_by,
            "exclude_known": str(exclude_known).lower(),
            "confidence": np.asarray(confidence, float).tolist(),
        }
        parameters = {name: value for name, value in query.items() if value is not None}
        reply = self._ask(f"complete?{urlencode(parameters, doseq=True)}")
        labels = pa.table({name: pa.array(reply[name], pa.string()) for name in LABELS})
        return intervals_from(reply, labels)

    def answers(
        self,
        head: str | None = None,
        relation: str = "",
        tail: str | None = None,
        *,
        confidence: float = 0.9,
        k: int = 1000,
        min_confidence: float = 0.0,
        per: str = "relation",
    ) -> AnswerSet:
        """As `Predictor.answers`, of which a service lists 1,000 at most."""
        options = {"confidence": confidence, "k": k, "min_confidence": min_confidence, "per": per}
        reply = self._ask("answers", {"head": head, "relation": relation, "tail": tail, **options})
        members = reply.pop("answers")
        entities = pa.array([member["entity"] for member in members], pa.string())
        return AnswerSet(entities, np.array([member["share"] for member in members], np.float32), **reply)

    def reload(self) -> list[str]:
        """Have the service load its runs again; it needs a token. The names of the runs."""
        self.__dict__.pop("about", None)
        return list(self._ask("reload", {})["reloaded"])

    def _ask(self, path: str, body: Any = None) -> Any:
        """The answer of the service; InputError with its sentence where it refuses the question."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._base + path, data, {"Content-Type": "application/json"})
        if self._token is not None:  # for this service alone, not for another that it may point to
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        name = public(self._base)
        for attempt in range(self._retries + 1):
            try:
                with urlopen(request, timeout=self._timeout) as reply:
                    return json.load(reply)
            except HTTPError as error:
                pause = error.headers.get("Retry-After", "")
                sentence = _detail(error)
                if error.code not in BUSY or not pause.isdecimal() or attempt == self._retries:
                    kind = InputError if 400 <= error.code < 500 else ConnectionError
                    raise kind(f"{name} answers {error.code}: {sentence}") from None
                time.sleep(min(float(pause) * 1.5**attempt, LONGEST_PAUSE))
            except (URLError, ValueError) as error:
                why = getattr(error, "reason", "what answers there is none")
                raise ConnectionError(f"no service can be reached at {name}: {why}") from None
        raise AssertionError  # the last attempt returns or raises


def intervals_from(reply: dict[str, Any], labels: pa.Table) -> Intervals:
    """The answers that the columns of a reply tell of."""
    names = {field.name for field in fields(Intervals)} & reply.keys() - {"confidence", "selected", "kind"}
    columns: dict[str, Any] = {name: np.array(reply[name], TYPES.get(name, np.float64)) for name in names}
    for column, (name, values) in CODED.items():
        if column in reply:
            columns[name] = np.array([values.index(value) for value in reply[column]], np.int8)
    selected = {name: np.array(reply[name], bool) for name in reply if name.startswith("selected")}
    return Intervals(**columns, selected=selected or None, confidence=reply["confidence"], labels=labels)


def _labels(queries: Any) -> pa.Table:
    """Columns head, relation and tail of queries."""
    labels = labels_of(queries)
    if labels is None:
        raise InputError("a service knows labels and no ids; ask for triples of labels")
    return pa.table(labels)


def _rows(labels: pa.Table) -> list[tuple[str, ...]]:
    return list(zip(*(column.to_pylist() for column in labels.columns), strict=True))


def _detail(error: HTTPError) -> str:
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)
