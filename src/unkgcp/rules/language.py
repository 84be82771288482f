"""The language of rules: one rule a line, with a weight, a body of atoms, an arrow and a head.

    # competitors of competitors compete, to the degree 0.9
    0.9: concept:competeswith(A, B) & concept:competeswith(B, C) & A != C -> concept:competeswith(A, C)
    'is part of'(A, B) -> 'has part'(B, A)

The weight, a number in (0, 1], is the degree to which the rule holds; without one the rule holds fully (1).
A label with a space or one of `( ) & , ! ' "` in it stands in quotes. `#` starts a comment.

This is not a programming language: there are no constants, no negated atoms and no functions.

>>> rule = parse("0.9: likes(A, B) -> knows(B, A)")[0]
>>> rule.weight, rule.head.relation
(0.9, 'knows')
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from unkgcp.errors import InputError, at

EXAMPLE = "0.9: likes(A, B) & likes(B, C) -> likes(A, C)"

_WEIGHT = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*:")
_NAME = r"""[^\s()&,!'"]+"""
_LABEL = rf"""{_NAME}|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
# an atom, or two variables that differ, and what follows it: `&`, the arrow, or the end of the line
_PART = re.compile(
    rf"""\s*(?:
        (?P<label>{_LABEL})\s*\(\s*(?P<first>{_NAME})\s*,\s*(?P<second>{_NAME})\s*\)
      | (?P<one>{_NAME})\s*!=\s*(?P<other>{_NAME})
    )\s*(?P<next>&|->|(?:\#.*)?$)""",
    re.VERBOSE,
)
_NOTHING = re.compile(r"\s*(?:#.*)?")


@dataclass(frozen=True, slots=True)
class RuleAtom:
    """relation(first, second): a relation's label and two variables."""

    relation: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Rule:
    """body -> head, holding to the degree `weight`; `distinct` are pairs of variables that must differ."""

    body: tuple[RuleAtom, ...]
    head: RuleAtom
    weight: float = 1.0
    distinct: tuple[tuple[str, str], ...] = ()
    place: str = "rule"
    """Where the rule was written, for error messages."""

    def __post_init__(self) -> None:
        if not 0.0 < self.weight <= 1.0:
            raise InputError(
                f"{self.place}: the weight {self.weight:g} is the degree to which the rule holds; "
                "choose a number above 0 and up to 1"
            )
        if not self.body:
            raise InputError(f"{self.place}: the rule has no atom in its body; write it as in `{EXAMPLE}`")
        used = [self.head.first, self.head.second, *(name for pair in self.distinct for name in pair)]
        for name in used:
            if name not in self.variables:
                raise InputError(
                    f"{self.place}: variable {name} is in no atom of the body; add one that binds it"
                )
        if len(list(self.join_order())) < len(self.body):
            raise InputError(
                f"{self.place}: the body falls into parts that share no variable; connect its atoms, "
                f"as in `{EXAMPLE}`"
            )

    @property
    def variables(self) -> frozenset[str]:
        """The variables of the body."""
        return frozenset(name for atom in self.body for name in (atom.first, atom.second))

    def join_order(self) -> Iterator[RuleAtom]:
        """The atoms of the body in an order in which each shares a variable with earlier ones."""
        waiting = list(self.body)
        bound: set[str] = set()
        while waiting:
            chosen = next((atom for atom in waiting if not bound or bound & {atom.first, atom.second}), None)
            if chosen is None:
                return
            waiting.remove(chosen)
            bound |= {chosen.first, chosen.second}
            yield chosen


def read_rules(path: str | PathLike[str]) -> list[Rule]:
    """The rules of a file, in its order."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; write your rules there, as in `{EXAMPLE}`") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; give a file of rules") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save the rules as plain text") from None
    rules = parse(text, source=path)
    if not rules:
        raise InputError(f"{path} holds no rule; add one, as in `{EXAMPLE}`")
    return rules


def parse(text: str, *, source: str | PathLike[str] = "rules") -> list[Rule]:
    """The rules of a text; `source` names it in error messages."""
    # not splitlines(), which also breaks at characters that a label may contain
    lines = enumerate(re.split(r"\r\n|\r|\n", text), start=1)
    return [_rule(line, at(source, number)) for number, line in lines if not _NOTHING.fullmatch(line)]


def _rule(line: str, place: str) -> Rule:
    weight = _WEIGHT.match(line)
    position, joint = weight.end() if weight else 0, "&"
    body: list[RuleAtom] = []
    distinct: list[tuple[str, str]] = []
    while joint == "&":
        part = _part(line, position, place)
        if part["one"]:
            distinct.append((part["one"], part["other"]))
        else:
            body.append(_atom(part))
        position, joint = part.end(), part["next"]
    head = _part(line, position, place)
    if joint != "->" or head["one"] or head["next"] in ("&", "->"):
        raise InputError(f"{place}: the rule has not one atom after one arrow; write it as in `{EXAMPLE}`")
    return Rule(tuple(body), _atom(head), float(weight[1]) if weight else 1.0, tuple(distinct), place)


def _part(line: str, position: int, place: str) -> re.Match[str]:
    """The next part of a rule; InputError if there is none."""
    part = _PART.match(line, position)
    if part is None:
        rest = line[position:].strip()
        where = f"at `{rest[:60]}`" if rest else "at its end"
        raise InputError(f"{place}: the rule is not understood {where}; write it as in `{EXAMPLE}`")
    return part


def _atom(part: re.Match[str]) -> RuleAtom:
    label = part["label"]
    quoted = label[0] in "'\""
    return RuleAtom(re.sub(r"\\(.)", r"\1", label[1:-1]) if quoted else label, part["first"], part["second"])
