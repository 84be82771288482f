"""Which answers to keep: `lower >= 0.7`, `status == ok and (score > 0.5 or upper >= 0.9)`, `width < 0.2`.

A tiny language of comparisons between a column of the answers and a value, joined by `and` and `or` (`and` binds
tighter) and grouped by parentheses. Each comparison is checked here, because its words are not Python's (`=`, bare
`unknown-entity`, `lower_99.5`); `and`, `or` and parentheses are parsed by Python's own `ast`. Nothing of the text is
ever executed. A comparison with a missing value, such as the score of an unknown query, never holds.

    column      score, lower, upper, width, status; with several levels lower_80, upper_80, width_80, ...;
                of a run that answers from a distribution (evidence) value, belief, other, other_belief too
    relation    "<" | "<=" | ">" | ">=" | "==" | "=" | "!="
    value       a number; for status a word, in quotation marks or not

>>> parse("lower >= 0.7 and status == ok", [0.9]).keep(answers)     # doctest: +SKIP
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.conformal.ranks import percent
from unkgcp.errors import InputError
from unkgcp.methods.intervals import MODES, STATUSES, as_batch
from unkgcp.run.answers import answer
from unkgcp.run.predictor import Predictor

LONGEST = 1000
DEEPEST = 50
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


class Comparison(NamedTuple):
    """A column, one of `_RELATIONS`, and a number or a status."""

    column: str
    relation: str
    value: pa.Scalar

    def mask(self, answers: pa.RecordBatch) -> pa.BooleanArray:
        if self.column.startswith("width"):
            upper, lower = (
                answers.column(end + self.column.removeprefix("width")) for end in ("upper", "lower")
            )
            values = pc.subtract(upper, lower)
        elif self.column in MODES and self.column not in answers.schema.names:
            raise InputError(
                f"the filter asks for {self.column!r}, which only runs of the method evidence tell; "
                "compare score, lower, upper or width, or fit such a run (unkgcp fit --method evidence)"
            )
        else:
            values = answers.column(self.column)
        if self.column == "status":
            values = values.cast(pa.string())
        return pc.fill_null(_RELATIONS[self.relation](values, self.value), False)


class Condition(NamedTuple):
    """Comparisons, and how they are joined: an expression in which the name `cN` is the N-th of them."""

    comparisons: Sequence[Comparison]
    joined: ast.expr

    def keep(self, answers: pa.RecordBatch) -> pa.RecordBatch:
        """The answers for which it holds, in their order."""
        return answers.filter(self.mask(answers))

    def mask(self, answers: pa.RecordBatch) -> pa.BooleanArray:
        """Whether it holds for each answer."""
        return self._mask(self.joined, answers)

    def _mask(self, node: ast.expr, answers: pa.RecordBatch) -> pa.BooleanArray:
        if isinstance(node, ast.BoolOp):
            join = pc.and_ if isinstance(node.op, ast.And) else pc.or_
            return reduce(join, [self._mask(part, answers) for part in node.values])
        assert isinstance(node, ast.Name)
        return self.comparisons[int(node.id[1:])].mask(answers)


def parse(text: str, levels: Sequence[float]) -> Condition:
    """The condition that `text` says, for answers at these levels; an InputError points at what is wrong."""
    if len(text) > LONGEST:
        raise InputError(f"the filter has {len(text):,} characters; say it in at most {LONGEST:,}")
    tokens = _tokens(text)
    columns = ["score", "status"]
    for ending in [""] if len(levels) == 1 else [f"_{percent(level)}" for level in levels]:
        columns += [f"lower{ending}", f"upper{ending}", f"width{ending}"]
    columns += MODES
    comparisons: list[Comparison] = []
    python: list[str] = []  # the same condition with a name for each comparison
    place = depth = 0
    while True:
        while tokens[place].text == "(" and tokens[place].kind == "mark":
            depth += 1
            if depth > DEEPEST:
                raise _error(text, tokens[place], "there are too many parentheses inside each other")
            python.append("(")
            place += 1
        python.append(f"c{len(comparisons)}")
        comparisons.append(_comparison(text, tokens[place : place + 3], columns))
        place += 3
        while depth and tokens[place].text == ")":
            depth -= 1
            python.append(")")
            place += 1
        token = tokens[place]
        if token.kind == "end" and not depth:
            return Condition(comparisons, ast.parse(" ".join(python), mode="eval").body)
        if token.kind != "word" or token.text.lower() not in ("and", "or"):
            expected = "')', 'and' or 'or'" if depth else "'and', 'or' or the end"
            raise _error(text, token, f"expected {expected}")
        python.append(token.text.lower())
        place += 1


def _comparison(text: str, tokens: Sequence[Token], columns: Sequence[str]) -> Comparison:
    """What the first three of the tokens that are left say; at the end of the text there are fewer."""
    column, *others = tokens
    if column.kind != "end" and (column.kind != "word" or column.text not in columns):
        raise _error(text, column, f"expected one of {', '.join(columns)}")
    if others and others[0].kind not in ("relation", "end"):
        raise _error(text, others[0], f"expected one of {' '.join(_RELATIONS)}")
    if tokens[-1].kind == "end":
        raise _error(text, tokens[-1], "something is missing")
    relation, value = others
    if column.text == "status":
        if relation.text not in ("=", "==", "!="):
            raise _error(text, relation, "a status is compared with == or !=")
        if value.kind not in ("word", "double", "single") or value.text not in STATUSES:
            raise _error(text, value, f"expected one of {', '.join(STATUSES)}")
        return Comparison(column.text, relation.text, pa.scalar(value.text))
    if value.kind != "number":
        raise _error(text, value, "expected a number")
    number = float(value.text)
    if column.text in ("score", "belief", "other_belief"):
        # these have 32 bits: 0.7 is rounded as they are, otherwise the score 0.7 would not be equal to 0.7
        return Comparison(column.text, relation.text, pa.scalar(np.float32(number).item(), pa.float32()))
    return Comparison(column.text, relation.text, pa.scalar(number, pa.float64()))


def _error(text: str, token: Token, what: str) -> InputError:
    here = "at its end" if token.kind == "end" else f"at character {token.place + 1}, {token.text!r}"
    return InputError(f"the filter {text!r} cannot be read {here}: {what}")


def _tokens(text: str) -> list[Token]:
    tokens, place, end = [], 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            start = place + len(text[place:]) - len(text[place:].lstrip())
            odd = Token("", text[start : start + 10], start)
            raise _error(text, odd, "this is no column, number, comparison or parenthesis")
        kind = found.lastgroup or ""
        tokens.append(Token(kind, found.group(kind), found.start(kind)))
        place = found.end()
    return [*tokens, Token("end", "", len(text))]


def after_filter(predictor: Predictor, keep: Condition, confidence: Sequence[float]) -> Predictor:
    """The predictor whose intervals hold for the answers that a filter keeps.

    The method is calibrated anew with the calibration facts that the filter keeps. These are exchangeable with the
    queries that it keeps, because the filter looks at each answer alone and at no column that calibration decides. A
    filter on the ends of intervals is refused, because calibration decides these.
    """
    for comparison in keep.comparisons:
        if comparison.column.split("_")[0] in ("lower", "upper", "width"):
            raise InputError(
                f"--after-selection does not go with a filter on {comparison.column!r}, which depends on the "
                "calibration facts itself; compare score, value or belief, or choose with --select"
            )
    predictor.method.check_subsets()
    facts = predictor.method.calibration_facts()
    told = as_batch(answer(predictor, facts, confidence[0]), {})
    return replace(
        predictor, method=predictor.method.among(facts[keep.mask(told).to_numpy(zero_copy_only=False)])
    )
