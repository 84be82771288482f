"""Which answers to keep: `lower >= 0.7`, `status == ok and (score > 0.5 or upper >= 0.9)`, `width < 0.2`.

What it is: a tiny language of comparisons between a column of the answers and a value, joined by `and` and `or`
(`and` binds tighter) and grouped by parentheses. What it is not: Python; nothing is ever evaluated but this grammar.
A comparison with a score that is unknown does not hold, whatever it is.

    condition   both { "or" both }
    both        one { "and" one }
    one         "(" condition ")" | column relation value
    relation    "<" | "<=" | ">" | ">=" | "==" | "=" | "!="
    column      score, lower, upper, width, status; with several levels lower_80, upper_80, width_80, ...
    value       a number; for status a word, in quotation marks or not

>>> parse("lower >= 0.7 and status == ok", [0.9]).keep(answers)     # doctest: +SKIP
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.conformal.ranks import percent
from unkgcp.errors import InputError
from unkgcp.methods import STATUSES

Column = Callable[[pa.RecordBatch], pa.Array]
Mask = Callable[[pa.RecordBatch], pa.BooleanArray]

LONGEST = 1000
_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>[()])|(?P<relation><=|>=|==|!=|<|>|=)
    |(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<word>[A-Za-z_][\w.-]*)|"(?P<double>[^"]*)"|'(?P<single>[^']*)')""",
    re.VERBOSE,
)
_RELATIONS = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "==": pc.equal,
    "=": pc.equal,
    "!=": pc.not_equal,
}


class Token(NamedTuple):
    kind: str
    text: str
    place: int


class Condition(NamedTuple):
    """A condition on answers, and the text it came from."""

    text: str
    mask: Mask

    def keep(self, answers: pa.RecordBatch) -> pa.RecordBatch:
        """The answers for which it holds, in their order."""
        return answers.filter(self.mask(answers))


def parse(text: str, levels: Sequence[float]) -> Condition:
    """The condition that `text` says, for answers at these levels; an InputError points at what is wrong."""
    if len(text) > LONGEST:
        raise InputError(f"the filter has {len(text):,} characters; say it in at most {LONGEST:,}")
    parser = _Parser(text, _columns(levels))
    mask = parser.condition()
    if parser.next.kind != "end":
        raise parser.error("expected 'and', 'or' or the end")
    return Condition(text, mask)


def _columns(levels: Sequence[float]) -> dict[str, Column]:
    """How to get each column that may be named."""
    found: dict[str, Column] = {
        "score": partial(_named, name="score"),
        "status": lambda answers: answers.column("status").cast(pa.string()),
    }
    for ending in [""] if len(levels) == 1 else [f"_{percent(level)}" for level in levels]:
        lower, upper = f"lower{ending}", f"upper{ending}"
        found |= {lower: partial(_named, name=lower), upper: partial(_named, name=upper)}
        found[f"width{ending}"] = partial(_width, lower=lower, upper=upper)
    return found


def _named(answers: pa.RecordBatch, name: str) -> pa.Array:
    return answers.column(name)


def _width(answers: pa.RecordBatch, lower: str, upper: str) -> pa.Array:
    return pc.subtract(answers.column(upper), answers.column(lower))


class _Parser:
    def __init__(self, text: str, columns: dict[str, Column]) -> None:
        self.text, self.columns = text, columns
        self.tokens = self._tokens()
        self.place, self.depth = 0, 0

    @property
    def next(self) -> Token:
        return self.tokens[self.place]

    def condition(self) -> Mask:
        return self._joined("or", lambda: self._joined("and", self._one, pc.and_), pc.or_)

    def error(self, what: str, at: Token | None = None) -> InputError:
        token = at or self.next
        here = "at its end" if token.kind == "end" else f"at character {token.place + 1}, {token.text!r}"
        return InputError(f"the filter {self.text!r} cannot be read {here}: {what}")

    def _joined(self, word: str, part: Callable[[], Mask], join: Callable[..., pa.BooleanArray]) -> Mask:
        masks = [part()]
        while self.next.kind == "word" and self.next.text.lower() == word:
            self.place += 1
            masks.append(part())
        if len(masks) == 1:
            return masks[0]

        def mask(answers: pa.RecordBatch) -> pa.BooleanArray:
            found = masks[0](answers)
            for other in masks[1:]:
                found = join(found, other(answers))
            return found

        return mask

    def _one(self) -> Mask:
        token = self._take()
        if token.text == "(" and token.kind == "mark":
            self.depth += 1
            if self.depth > 50:
                raise self.error("there are too many parentheses inside each other", token)
            inner = self.condition()
            if self.next.text != ")":
                raise self.error("expected ')', 'and' or 'or'")
            self.place, self.depth = self.place + 1, self.depth - 1
            return inner
        if token.kind != "word" or token.text not in self.columns:
            raise self.error(f"expected one of {', '.join(self.columns)}", token)
        relation = self._take()
        if relation.kind != "relation":
            raise self.error(f"expected one of {' '.join(_RELATIONS)}", relation)
        return self._comparison(token.text, relation, self._take())

    def _comparison(self, name: str, relation: Token, value: Token) -> Mask:
        if name == "status":
            if relation.text not in ("=", "==", "!="):
                raise self.error("a status is compared with == or !=", relation)
            if value.kind not in ("word", "double", "single") or value.text not in STATUSES:
                raise self.error(f"expected one of {', '.join(STATUSES)}", value)
            wanted = pa.scalar(value.text)
        else:
            if value.kind != "number":
                raise self.error("expected a number", value)
            wanted = pa.scalar(float(value.text), pa.float64())
        compare, column = _RELATIONS[relation.text], self.columns[name]

        def mask(answers: pa.RecordBatch) -> pa.BooleanArray:
            values = column(answers)
            if name == "score":
                # 0.7 as the score would write it: otherwise the score 0.7 is not equal to 0.7
                return pc.fill_null(
                    compare(values, pa.scalar(np.float32(wanted.as_py()).item(), pa.float32())), False
                )
            return pc.fill_null(compare(values, wanted), False)

        return mask

    def _take(self) -> Token:
        token = self.next
        if token.kind == "end":
            raise self.error("something is missing")
        self.place += 1
        return token

    def _tokens(self) -> list[Token]:
        tokens, place = [], 0
        while self.text[place:].strip():
            found = _TOKEN.match(self.text, place)
            if found is None:
                start = place + len(self.text[place:]) - len(self.text[place:].lstrip())
                odd = self.text[start : start + 10]
                raise InputError(
                    f"the filter {self.text!r} cannot be read at character {start + 1}, {odd!r}: "
                    "this is no column, number, comparison or parenthesis"
                )
            kind = found.lastgroup or ""
            tokens.append(Token(kind, found.group(kind), found.start(kind)))
            place = found.end()
        return [*tokens, Token("end", "", len(self.text))]
