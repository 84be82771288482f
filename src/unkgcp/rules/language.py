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
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<comment>\#.*)
      | (?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<mark>->|!=|[(),&])
      | (?P<word>[^\s()&,!'"]+)
      | (?P<wrong>\S)
    )""",
    re.VERBOSE,
)


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
    rules = []
    # not splitlines(), which also breaks at characters that a label may contain
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        tokens = _Tokens(line, at(source, number))
        if tokens:
            rules.append(tokens.rule())
    return rules


class _Tokens:
    """A parser of one line: its tokens, read from left to right."""

    def __init__(self, line: str, place: str) -> None:
        self.place, self.next = place, 0
        number = _WEIGHT.match(line)
        self.weight = float(number[1]) if number else 1.0
        self.tokens: list[tuple[str, str]] = []
        for token in _TOKEN.finditer(line, number.end() if number else 0):
            kind = str(token.lastgroup)
            if kind == "wrong":
                raise self.error(
                    "has an unfinished quote" if token[kind] in "'\"" else f"cannot use {token[kind]!r}"
                )
            if kind != "comment":
                self.tokens.append((kind, token[kind]))
        if number and not self.tokens:
            raise self.error("has a weight but no rule")

    def __len__(self) -> int:
        return len(self.tokens)

    def error(self, problem: str) -> InputError:
        return InputError(f"{self.place}: the rule {problem}; write it as in `{EXAMPLE}`")

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        position = self.next + ahead
        return self.tokens[position] if position < len(self.tokens) else ("end", "its end")

    def take(self, *wanted: str) -> str:
        """The next token, which must be of a wanted kind or be a wanted mark."""
        kind, text = self.peek()
        if kind not in wanted and not (kind == "mark" and text in wanted):
            what = " or ".join({"word": "a name", "quoted": "a quoted name"}.get(w, f"`{w}`") for w in wanted)
            raise self.error(f"needs {what} before {text if kind == 'end' else f'`{text}`'}")
        self.next += 1
        return text

    def rule(self) -> Rule:
        body: list[RuleAtom] = []
        distinct: list[tuple[str, str]] = []
        while True:
            if self.peek(1) == ("mark", "!="):
                first = self.take("word")
                self.take("!=")
                distinct.append((first, self.take("word")))
            else:
                body.append(self.atom())
            if self.take("&", "->") == "->":
                break
        head = self.atom()
        if self.peek()[0] != "end":
            raise self.error(f"goes on with `{self.peek()[1]}` after its head")
        return Rule(tuple(body), head, self.weight, tuple(distinct), self.place)

    def atom(self) -> RuleAtom:
        kind, label = self.peek()[0], self.take("word", "quoted")
        self.take("(")
        first = self.take("word")
        self.take(",")
        second = self.take("word")
        self.take(")")
        return RuleAtom(re.sub(r"\\(.)", r"\1", label[1:-1]) if kind == "quoted" else label, first, second)
