"""The bodies of `POST /v1/intervals`, `/v1/select` and `/v1/answers`: read within limits, parsed and checked once.

Triples are checked column by column, and by hand and not by a pydantic model, because whole columns are checked at C
speed here, and a pydantic model would make an object of every triple. Only when a column is wrong is the first bad row
looked for, to name it.

>>> parse_intervals(b'{"triples": [["a", "likes", "b"]]}', Settings()).head
('a',)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json
from starlette.requests import ClientDisconnect, Request

from unkgcp.service.limits import Problem, Settings, quoted

FIELDS = ("triples", "confidence")
OF_SELECTION = (*FIELDS, "condition", "fdr")
PLACES = ("head", "relation", "tail")
DEFAULT_LEVEL = 0.9
DEFAULT_SHARE = 0.1
MORE = "send several requests"
# several requests are no remedy here, since the choice depends on all candidates together
MORE_CANDIDATES = "choose among them in one file with unkgcp predict --select"


class Asked(NamedTuple):
    """A checked request: labels by column, the levels, and whether one level was given as a plain number."""

    head: Sequence[str]
    relation: Sequence[str]
    tail: Sequence[str]
    levels: tuple[float, ...]
    single: bool


class Bodies:
    """Reads bodies within the limits of each and of all together."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held = 0  # bytes of bodies that have begun to arrive

    async def read(self, request: Request) -> bytes:
        """The body of a request that says it is JSON; too long, too slow or of another type is a `Problem`."""
        headers, settings = request.headers, self._settings
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Problem(
                415, "the body must be JSON; send it with the header Content-Type: application/json"
            )
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem(415, "the body must not be compressed; send it without Content-Encoding")
        too_long = Problem(
            413,
            f"the body is longer than {settings.max_body:,} bytes; send the triples in several requests",
            {"Connection": "close"},
        )
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared[:20]) > settings.max_body:
            raise too_long
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(settings.body_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    self._held += len(chunk)
                    if size > settings.max_body:
                        raise too_long
                    if self._held > settings.max_held:
                        raise Problem(
                            429,
                            "too many bodies are arriving; try again in a second",
                            {"Retry-After": "1", "Connection": "close"},
                        )
                    chunks.append(chunk)
        except TimeoutError:
            raise Problem(
                408,
                f"the body did not arrive within {settings.body_seconds:g} seconds; send it again",
                {"Connection": "close"},
            ) from None
        except ClientDisconnect:
            raise Problem(400, "the connection ended before the body did") from None
        finally:
            self._held -= size
        return b"".join(chunks)


# Commas and opening brackets that a body may have for each allowed triple: 4 are its own, others may be in labels.
PARTS = 16


class Selecting(NamedTuple):
    """A checked request for a selection: what is asked of each candidate, the condition and the shares as given."""

    asked: Asked
    condition: str
    fdr: float | list[float]


def check_parts(data: bytes, settings: Settings) -> None:
    """Refuse what no request looks like before it is parsed: millions of empty lists fit into a body."""
    most = PARTS * settings.max_triples + 1000
    if sum(map(data.count, (b"[", b"{", b","))) > most:
        raise Problem(
            413, f"the body has more than {most:,} brackets and commas; send the triples in several requests"
        )


def parse(data: bytes) -> Any:
    """The JSON of a body; anything else is a `Problem`."""
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise Problem(400, f"the body is not valid JSON: {error}") from None


def parse_intervals(data: bytes, settings: Settings) -> Asked:
    """The checked request in a body."""
    return _asked(_fields(data, settings, FIELDS), settings, MORE)


def parse_selection(data: bytes, settings: Settings) -> Selecting:
    """The checked request for a selection in a body; the condition itself is read by `unkgcp.conformal.selection`."""
    document = _fields(data, settings, OF_SELECTION)
    asked = _asked(document, settings, MORE_CANDIDATES)
    if not asked.head:
        raise Problem(422, "triples is empty, so there is nothing to choose from; give it some candidates")
    condition, fdr = document.get("condition"), document.get("fdr", DEFAULT_SHARE)
    if type(condition) is not str:
        raise Problem(422, "the field condition must say what is asked for, 'confidence >= 0.7' for instance")
    shares = fdr if type(fdr) is list else [fdr]
    if not 1 <= len(shares) <= settings.max_levels:
        raise Problem(422, f"fdr must have 1 to {settings.max_levels} shares, not {len(shares)}")
    for share in shares:
        if type(share) not in (int, float) or not 0 < share < 1:
            raise Problem(422, f"fdr must be a number between 0 and 1, not {quoted(share)}")
    return Selecting(asked, condition, fdr)


def _fields(data: bytes, settings: Settings, names: Sequence[str]) -> dict[str, Any]:
    """The object in a body, which has fields of these names only."""
    check_parts(data, settings)
    document = parse(data)
    there_are = f"{', '.join(names[:-1])} and {names[-1]}"
    if type(document) is not dict:
        raise Problem(422, f"the body must be an object with the fields {there_are}")
    unknown = [name for name in document if name not in names]
    if unknown:
        raise Problem(422, f"the field {quoted(unknown[0])} is unknown; there are {there_are}")
    return document


def _asked(document: Mapping[str, Any], settings: Settings, if_more: str) -> Asked:
    """Triples and levels of a body; `if_more` says what to do with more triples than are allowed."""
    if "triples" not in document:
        raise Problem(422, "the field triples is missing; it lists [head, relation, tail] triples")
    triples = document["triples"]
    if type(triples) is not list:
        raise Problem(422, "triples must be a list of [head, relation, tail] triples")
    if len(triples) > settings.max_triples:
        raise Problem(422, f"{len(triples):,} triples are more than {settings.max_triples:,}; {if_more}")
    levels, single = _levels(document.get("confidence", DEFAULT_LEVEL), settings)
    return Asked(*_columns(triples), levels, single)


class AskedAnswers(NamedTuple):
    """A checked request for an answer set: labels, one of which is None, and the options of `Predictor.answers`."""

    head: str | None
    relation: str
    tail: str | None
    options: dict[str, Any]


ANSWER_FIELDS = ("head", "relation", "tail", "confidence", "k", "min_confidence", "per")
DEFAULT_ANSWERS = 100


def parse_answers(data: bytes, settings: Settings) -> AskedAnswers:
    """The checked request for an answer set in a body."""
    document = _fields(data, settings, ANSWER_FIELDS)
    labels = [document.get(place) for place in PLACES]
    for place, label in zip(PLACES, labels, strict=True):
        if label is not None and type(label) is not str:
            raise Problem(422, f"{place} must be a string, not {quoted(label)}")
    head, relation, tail = labels
    if relation is None:
        raise Problem(422, "the field relation is missing")
    if (head is None) == (tail is None):
        raise Problem(422, "give either head or tail; the other is what is looked for")
    k = document.get("k", min(DEFAULT_ANSWERS, settings.max_k))
    if type(k) is not int or not 1 <= k <= settings.max_k:
        raise Problem(422, f"k must be a whole number from 1 to {settings.max_k:,}, not {quoted(k)}")
    level, least = document.get("confidence", DEFAULT_LEVEL), document.get("min_confidence", 0.0)
    if type(level) not in (int, float) or not 0 < level < 1:
        raise Problem(422, f"confidence must be a number between 0 and 1, not {quoted(level)}")
    if type(least) not in (int, float) or not 0 <= least <= 1:
        raise Problem(422, f"min_confidence must be a number from 0 to 1, not {quoted(least)}")
    per = document.get("per", "relation")
    if per not in ("relation", "none"):
        raise Problem(422, f"per must be relation or none, not {quoted(per)}")
    options = {"confidence": float(level), "k": k, "min_confidence": float(least), "per": per}
    return AskedAnswers(head, relation, tail, options)


def _columns(triples: list[Any]) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    if not triples:
        return (), (), ()
    if set(map(type, triples)) != {list}:
        triples = [_as_list(triple, row) for row, triple in enumerate(triples)]
    if set(map(len, triples)) == {3}:
        head, relation, tail = zip(*triples, strict=True)
        if {*map(type, head), *map(type, relation), *map(type, tail)} == {str}:
            return head, relation, tail
    raise next(
        _bad_row(row, triple)
        for row, triple in enumerate(triples)
        if len(triple) != 3 or any(type(label) is not str for label in triple)
    )


def _as_list(triple: Any, row: int) -> list[Any]:
    """A triple in either form as a list."""
    if type(triple) is list:
        return triple
    if type(triple) is dict and len(triple) == 3 and all(place in triple for place in PLACES):
        return [triple[place] for place in PLACES]
    raise _bad_row(row, triple)


def _bad_row(row: int, triple: Any) -> Problem:
    return Problem(422, f"triples[{row}] is {quoted(triple)}; expected three strings [head, relation, tail]")


def _levels(given: Any, settings: Settings) -> tuple[tuple[float, ...], bool]:
    single = type(given) is not list
    levels = [given] if single else given
    if not 1 <= len(levels) <= settings.max_levels:
        raise Problem(422, f"confidence must have 1 to {settings.max_levels} levels, not {len(levels)}")
    for level in levels:
        if type(level) not in (int, float) or not 0 <= level <= 1:
            raise Problem(422, f"confidence must be a number from 0 to 1, not {quoted(level)}")
    return tuple(map(float, levels)), single


def to_text(value: Any) -> bytes:
    """JSON text of plain values; what is not finite becomes null."""
    return to_json(value, inf_nan_mode="null")
