"""Which column of a table is head, relation, tail and confidence, and how numbers there become confidences.

A first line is taken for a header only if it looks like one: no number in it, and common names. A first line that is
neither a header nor a fact is an error with a remedy, never dropped. `Request` is all that a caller may say of a file
before it is read.

>>> find(["subject", "object", "predicate", "weight"], True, None, True, ("facts.csv",))
(True, (0, 2, 1, 3))
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError, at

ROLES = ("head", "relation", "tail", "confidence")
INTERVAL = (*ROLES[:3], "lower", "upper")
"""The roles where a confidence is an interval: it has two columns, one for each end."""

Columns = Sequence[int | str]
Place = tuple[str] | tuple[str, int]  # a file, or a file and a line of it

# What columns may be called.
WORDS = {
    "head": {"head", "subject", "subj", "source", "from", "start", "entity1", "entity_1", "head_id", "node1"},
    "relation": {
        *("relation", "rel", "predicate", "pred", "property", "edge", "relation_id", "relationship"),
        "interaction",
    },
    "tail": {"tail", "object", "obj", "target", "to", "end", "entity2", "entity_2", "tail_id", "node2"},
    "confidence": {"confidence", "conf", "weight", "score", "probability", "prob", "certainty", "truth"},
    "lower": {"lower"},
    "upper": {"upper"},
}
# What Neo4j calls its columns, in files for its import and in those of its procedure apoc.export.csv.
_NEO4J = {"head": {":start_id", "_start"}, "relation": {":type", "_type"}, "tail": {":end_id", "_end"}}
# `name:START_ID(Group)` and `confidence:float`: a name, a type behind a colon, and perhaps a group of ids
_NEO4J_TYPED = re.compile(
    r"[^:]*(:start_id|:end_id|:type)(?:\(.*\))?|([^:]+):(?:float|double|int|long|string)"
)
# Single letters count as names only in files of facts: in a file of queries "h r t" may itself be a query.
_LETTERS = {"head": {"h", "s"}, "relation": {"r", "p"}, "tail": {"t", "o"}, "confidence": {"c", "w"}}


def find(
    first: Sequence[str],
    header: bool | None,
    columns: Columns | None,
    with_confidence: bool,
    place: Place,
) -> tuple[bool, tuple[int, ...]]:
    """Whether the first line is a header, and the positions (from 0) of head, relation, tail and perhaps confidence,
    or lower and upper in its place.

    `first` are the fields of the line; `header` and `columns` are what the caller says of them, None if nothing;
    `place` are the file and perhaps the line that an error names.
    """
    roles: Sequence[str] = ROLES if with_confidence else ROLES[:3]
    if columns is not None:
        if len(columns) not in ((4, 5) if with_confidence else (3, 4)):
            raise InputError(
                f"{len(columns)} columns were named for {at(*place)}, expected {len(roles)}: {', '.join(roles)}"
                + (" (or lower and upper)" if with_confidence else "")
            )
        roles = INTERVAL if len(columns) == 5 else roles
        return _as_told(first, header, columns[: len(roles)], roles, place)
    if header is None:
        header = looks_like_header(first, with_confidence)
    if header and with_confidence and _names_ends([_plain(field) for field in first]):
        roles = INTERVAL
    return header, _by_name(first, roles, place) if header else _by_place(first, roles, place)


def looks_like_header(fields: Sequence[str], with_confidence: bool = True) -> bool:
    names = [_plain(field) for field in fields]
    if any(is_number(name) for name in names):
        return False
    if not with_confidence:
        # head and tail, and besides them the relation or, in a file of facts that is asked about, the confidence
        named = {role for role in ROLES if _positions(names, role, letters=False)}
        return {"head", "tail"} < named
    ends = _positions(names, "head") and _positions(names, "tail")
    return bool(_positions(names, "confidence") or ends or _names_ends(names))


def _names_ends(names: Sequence[str]) -> bool:
    """Whether these names of columns are those of intervals: lower and upper, and no confidence beside them."""
    return not _positions(names, "confidence") and {"lower", "upper"} <= set(names)


def may_be_named(field: str, roles: Sequence[str] = ROLES) -> bool:
    """Whether this is a name of a column of one of these roles."""
    return any(_positions([_plain(field)], role) for role in roles)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _as_told(
    first: Sequence[str], header: bool | None, columns: Columns, roles: Sequence[str], place: Place
) -> tuple[bool, tuple[int, ...]]:
    positions = []
    for column in columns:
        if isinstance(column, int):
            if not 0 <= column < len(first):
                raise InputError(
                    f"{at(*place)} has {len(first)} columns, fewer than were chosen: correct --columns"
                )
            positions.append(column)
            continue
        if header is False:
            raise InputError(
                f"column {column!r} of {at(*place)} needs a header: leave the setting header out or use positions"
            )
        header = True
        matches = [position for position, name in enumerate(first) if name.strip() == column]
        if len(matches) != 1:
            has = f"has {len(matches)} columns" if matches else "has no column"
            raise InputError(f"{at(*place)} {has} {column!r}, only {_listed(first)}: correct --columns")
        positions += matches
    if len(set(positions)) < len(positions):
        raise InputError(f"two of {', '.join(roles)} are the same column of {at(*place)}: correct --columns")
    if header is None:
        header = looks_like_header(first, len(roles) > 3)
    return header, tuple(positions)


def _by_name(first: Sequence[str], roles: Sequence[str], place: Place) -> tuple[int, ...]:
    names = [_plain(field) for field in first]
    # "source" beside "head" is where a fact was read: the plain name of a role goes before others
    by_role = {
        role: [position for position, name in enumerate(names) if name == role] or _positions(names, role)
        for role in roles
    }
    for role, positions in by_role.items():
        if len(positions) > 1:
            both = " and ".join(repr(first[position]) for position in positions)
            raise InputError(
                f"{at(*place)} names {both}, which may both be the {role}: choose with --columns"
            )
    missing = [role for role in roles if not by_role[role]]
    if missing:
        usual = all(not by_role[role] or by_role[role] == [index] for index, role in enumerate(roles))
        facts = len(first) == 4 and _positions(names, "confidence") == [3]  # a file of facts, read as queries
        if usual and (len(first) == len(roles) or facts):
            return tuple(range(len(roles)))
        raise InputError(
            f"{at(*place)} has no column called {missing[0]}, only {_listed(first)}: "
            f"name the columns of {', '.join(roles)} with --columns"
        )
    return tuple(by_role[role][0] for role in roles)


def _by_place(first: Sequence[str], roles: Sequence[str], place: Place) -> tuple[int, ...]:
    allowed = (4,) if len(roles) == 4 else (3, 4)
    if len(first) not in allowed:
        columns = f"{len(first)} column{'s' if len(first) != 1 else ''}"
        raise InputError(
            f"{at(*place)} has {columns}, expected {len(roles)} ({', '.join(roles)}): "
            "choose them with --columns or name the layout with --format"
        )
    return tuple(range(len(roles)))


def _positions(names: Sequence[str], role: str, letters: bool = True) -> list[int]:
    words = WORDS[role] | _NEO4J.get(role, set()) | (_LETTERS.get(role, set()) if letters else set())
    if role == "relation" and {"node1", "node2"} <= set(names):
        words |= {"label"}  # of an edge, as KGTK calls it; elsewhere a label may be anything
    return [position for position, name in enumerate(names) if name in words]


def _plain(field: str) -> str:
    name = field.strip().lstrip("#").strip().casefold()
    typed = _NEO4J_TYPED.fullmatch(name) if ":" in name else None
    return name if typed is None else typed[1] or typed[2]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:8])
    return shown + (", ..." if len(names) > 8 else "")


# From the numbers of a file to confidences in [0, 1]. The scale is chosen by the caller or belongs to the format. It is
# never guessed from the values, and a number outside [0, 1] without a scale is an error.


Kind = Literal["none", "minmax", "log"]

# A number this close to a bound but beyond it is the bound plus a rounding error.
ROUNDING = 1e-9
SCORE = 1000
"""What certainty is in scores that many databases give, STRING among them."""
DECIMALS = 9
"""Of confidences: they are rounded once, when they enter a graph."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How numbers become confidences.

    none    the number divided by `unit` (the number that means certainty), which must lie in [0, 1]
    minmax  linear, from [smallest, largest] to [low, high]
    log     linear in the logarithm, from [smallest, largest] to [low, high]

    `floor` and `cap` replace the smallest and the largest number, and what lies beyond them is cut. With both
    given, the map depends on no data: two files are then scaled alike. The paper's ConceptNet confidences are
    Scale("log", cap=3.0, floor=0.1, low=0.1):

    >>> Scale("log", cap=3.0, floor=0.1, low=0.1)(np.array([0.1, 1.0, 3.0, 22.9])).round(3).tolist()
    [0.1, 0.709, 1.0, 1.0]
    """

    kind: Kind = "none"
    cap: float | None = None
    floor: float | None = None
    low: float = 0.0
    high: float = 1.0
    unit: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"the confidence scale {self.kind!r} is none of {', '.join(get_args(Kind))}")
        bounds = [bound for bound in (self.floor, self.cap) if bound is not None]
        if self.kind == "none" and bounds:
            raise InputError("a cap or floor needs a confidence scale: choose minmax or log")
        if not 0 <= self.low < self.high <= 1:
            raise InputError(
                f"the range [{self.low:g}, {self.high:g}] of the confidence scale must lie in [0, 1], "
                "the lower end first"
            )
        if not all(map(math.isfinite, bounds)) or (len(bounds) == 2 and bounds[0] >= bounds[1]):
            raise InputError(
                f"the floor {self.floor} of the confidence scale must lie below its cap {self.cap}"
            )
        if self.kind == "log" and any(bound <= 0 for bound in bounds):
            raise InputError("a logarithmic confidence scale needs a cap and a floor above 0")

    def __call__(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Confidences (n,) of the numbers of one file."""
        return self.together([values])[0]

    def accepts(self, values: NDArray[np.float64]) -> bool:
        """Whether `objection` finds nothing against any of these numbers."""
        if not len(values):
            return True
        smallest, largest = values.min(), values.max()  # NaN carries over and fails every comparison
        if self.kind == "none":
            return bool(smallest >= -ROUNDING * self.unit and largest <= self.unit * (1 + ROUNDING))
        return bool(smallest > (0 if self.kind == "log" else -math.inf) and largest < math.inf)

    def objection(self, value: float, largest: float | None = None) -> str | None:
        """What is wrong with a number and what to do about it, as the end of a sentence; None if nothing.

        `largest` is that of the numbers around it, which tells scores up to 1000 from others.
        """
        if self.accepts(np.array([value])):
            return None
        if not math.isfinite(value):
            return f"has the confidence {value}: correct it or remove the line"
        if self.kind == "log":
            return f"has the confidence {value:g}, which has no logarithm: correct it, or use --confidence-scale minmax"
        if self.unit == 1 and 1 < max(value, largest or value) <= SCORE and value >= 0:
            remedy = f"or, for scores from 0 to {SCORE}, add --confidence-scale 0,{SCORE}"
        else:
            remedy = "or map the file's range with --confidence-scale minmax or log"
        return f"has the confidence {value:g}, outside [0, {self.unit:g}]: correct it, {remedy}"

    def together(self, columns: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """Confidences of several files, the smallest and largest number taken over all of them."""
        if self.kind == "none":
            return [np.clip(values if self.unit == 1 else values / self.unit, 0.0, 1.0) for values in columns]
        filled = [values for values in columns if len(values)]
        if not filled:
            return list(columns)
        smallest = self.floor if self.floor is not None else min(float(values.min()) for values in filled)
        largest = self.cap if self.cap is not None else max(float(values.max()) for values in filled)
        if not smallest < largest:
            raise InputError(
                f"all confidences are {smallest:g} or cut to it, so a {self.kind} scale cannot spread them: "
                "choose another scale, cap or floor"
            )
        return [self._spread(np.clip(values, smallest, largest), smallest, largest) for values in columns]

    def _spread(self, values: NDArray[np.float64], smallest: float, largest: float) -> NDArray[np.float64]:
        if self.kind == "log":
            # both logarithms by NumPy: that of math may differ in the last digit, and the largest would miss 1
            share: NDArray[np.float64] = np.log(values / smallest) / np.log(largest / smallest)
        else:
            share = values / (largest - smallest) - smallest / (largest - smallest)
        return np.clip(self.low + (self.high - self.low) * share, self.low, self.high)


def rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Confidences as every graph has them, with `DECIMALS` decimals: what prints alike is alike, from reading on.

    >>> rounded(np.array([0.8334999999999999])).tolist()
    [0.8335]
    """
    return np.round(values, DECIMALS)


# What a caller says of a file before it is read; all of it may be left out.

NTRIPLES, NQUADS, TURTLE = RDF = ("ntriples", "nquads", "turtle")
"""Formats that have no columns, read by `unkgcp.tabular.rdf`."""


@dataclass(frozen=True, slots=True)
class Request:
    """How a file is to be read.

    format           one of `unkgcp.tabular.formats.NAMES`; None: recognise it
    header           whether the first line names the columns; None: recognise it
    columns          head, relation, tail and confidence by name, or by position counted from 0
    scale            how numbers become confidences; None: as is usual for the format
    skip_missing     leave out rows whose confidence is empty or NaN; they are an error otherwise
    default_confidence     the number that such rows have instead, as if it stood in the file
    prefixes               RDF: names for the beginnings of IRIs, see `unkgcp.tabular.rdf`; not used elsewhere
    confidence_predicates  RDF only: IRIs of the predicates that tell a confidence; None: recognise them
    with_confidence  False for queries, whose confidence column, if there is one, is not looked at
    """

    format: str | None = None
    header: bool | None = None
    columns: Columns | None = None
    scale: Scale | None = None
    skip_missing: bool = False
    default_confidence: float | None = None
    prefixes: Mapping[str, str] | None = None
    confidence_predicates: Sequence[str] | None = None
    with_confidence: bool = True

    def __post_init__(self) -> None:
        if self.default_confidence is None:
            return
        if self.skip_missing:
            raise InputError("skip_missing and default_confidence exclude each other: leave one of them out")
        if not 0 <= self.default_confidence <= 1:
            raise InputError(
                f"the default confidence is {self.default_confidence}: give a number from 0 to 1"
            )

    @property
    def settles(self) -> bool:
        """Whether the caller said what becomes of rows without a confidence."""
        return self.skip_missing or self.default_confidence is not None


class Options(TypedDict, total=False):
    """What a caller may say of a file, as keyword arguments: see `Request`."""

    format: str | None
    header: bool | None
    columns: Columns | None
    scale: Scale | None
    skip_missing: bool
    default_confidence: float | None
    prefixes: Mapping[str, str] | None
    confidence_predicates: Sequence[str] | None
