"""Which answers to keep: `lower >= 0.7`, `status == ok and (score > 0.5 or upper >= 0.9)`, `0.2 <= width < 0.4`.

A condition is written as in Python: comparisons of a column of the answers with a number or a word, joined by `and`,
`or` and parentheses. Python's own parser reads it, and what is not a comparison is refused; nothing of it is ever
executed. Words need quotation marks only if they have spaces. `width` is upper less lower; with several levels the
columns are `lower_80`, `width_80` and so on. A comparison with a missing value never holds.

>>> parse("lower >= 0.7 and status == ok", [0.9]).keep(answers)     # doctest: +SKIP
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.conformal.ranks import exact_levels, percent
from unkgcp.errors import InputError
from unkgcp.methods.intervals import BASES, MODES, STATUSES, Levels, as_batch
from unkgcp.run.answers import answer
from unkgcp.run.predictor import Predictor

LONGEST = 1000
POINT = "__point__"  # in place of the point in `lower_99.5`, which is no name of Python
WORDS = {"status": STATUSES, "promise": BASES}
COMPARISONS: dict[type[ast.cmpop], Any] = {
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
}
MIRRORED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}


@dataclass(frozen=True)
class Comparison:
    """A column, one of `COMPARISONS`, and a number or a word."""

    column: str
    relation: type[ast.cmpop]
    value: float | str

    def mask(self, answers: pa.RecordBatch) -> pa.BooleanArray:
        names = answers.schema.names
        if self.column.startswith("width"):
            level = self.column.removeprefix("width")
            values = pc.subtract(answers.column(f"upper{level}"), answers.column(f"lower{level}"))
        elif self.column not in names:
            raise InputError(
                f"the filter asks for {self.column!r}, which this run does not tell; it tells {', '.join(names)}"
            )
        else:
            values = answers.column(self.column)
        if pa.types.is_dictionary(values.type):
            values = values.cast(pa.string())
        # a score has 32 bits: 0.7 is rounded as it is, otherwise the score 0.7 would not be equal to 0.7
        return pc.fill_null(COMPARISONS[self.relation](values, pa.scalar(self.value, values.type)), False)


@dataclass(frozen=True)
class Condition:
    """Comparisons and other conditions, all of which hold (`and`), or one of them (`or`)."""

    conditions: Sequence[Condition | Comparison]
    every: bool = True

    def keep(self, answers: pa.RecordBatch) -> pa.RecordBatch:
        """The answers for which it holds, in their order."""
        return answers.filter(self.mask(answers))

    def mask(self, answers: pa.RecordBatch) -> pa.BooleanArray:
        """Whether it holds for each answer."""
        masks = [condition.mask(answers) for condition in self.conditions]
        return reduce(pc.and_ if self.every else pc.or_, masks)

    def columns(self) -> list[str]:
        """The columns that it looks at."""
        nested = [[one.column] if isinstance(one, Comparison) else one.columns() for one in self.conditions]
        return [column for columns in nested for column in columns]


def parse(text: str, levels: Sequence[float]) -> Condition:
    """The condition that `text` says, for answers at these levels; an InputError points at what is wrong."""
    if len(text) > LONGEST:
        raise InputError(f"the filter has {len(text):,} characters; say it in at most {LONGEST:,}")
    endings = [""] if len(levels) == 1 else [f"_{percent(level)}" for level in levels]
    ends = [f"{end}{level}" for level in endings for end in ("lower", "upper", "width")]
    columns = ["score", "kind", *WORDS, *ends, *MODES]
    python = re.sub(r"(?<=_)(\d+)\.(\d+)", rf"\1{POINT}\2", text.strip())
    python = re.sub(r"(?<![<>=!])=(?!=)", "==", python)
    python = re.sub(r"\b(AND|OR)\b", lambda word: word[0].lower(), python)
    try:
        return _condition(ast.parse(python, mode="eval").body, columns)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        what = error.msg if isinstance(error, SyntaxError) else str(error) or "it is too deep"
        raise InputError(
            f"the filter {text!r} cannot be read ({what}); say for instance 'lower >= 0.7 and status == ok'"
        ) from None


def _condition(node: ast.expr, columns: Sequence[str]) -> Condition:
    if isinstance(node, ast.BoolOp):
        tests = [_condition(part, columns) for part in node.values]
        return Condition(tests, every=isinstance(node.op, ast.And))
    if not isinstance(node, ast.Compare):
        raise ValueError(f"{ast.unparse(node)} compares nothing")
    operands = [_operand(one) for one in (node.left, *node.comparators)]
    pairs = zip(operands, node.ops, operands[1:], strict=False)
    return Condition([_comparison(one, type(relation), other, columns) for one, relation, other in pairs])


def _operand(node: ast.expr) -> float | str:
    """A number, or the name of a column or word."""
    try:
        value: Any = ast.literal_eval(node)
    except ValueError:
        # unknown-entity is a difference of two names to Python
        words = ast.unparse(node).replace(POINT, ".").split(" - ")
        if all(re.fullmatch(r"[A-Za-z_][\w.]*", word) for word in words):
            return "-".join(words)
        value = None
    if type(value) not in (int, float, str):
        raise ValueError(f"{ast.unparse(node)} is no column, number or word")
    return cast("float | str", value)


def _comparison(
    one: float | str, relation: type[ast.cmpop], other: float | str, columns: Sequence[str]
) -> Comparison:
    """The comparison of a column with a value, whichever comes first."""
    if not (isinstance(one, str) and one in columns):
        one, other, relation = other, one, MIRRORED.get(relation, relation)
    if not isinstance(one, str) or one not in columns:
        wrong = other if isinstance(other, str) else one
        raise ValueError(f"{wrong} is no column; there are {', '.join(columns)}")
    if relation not in COMPARISONS:
        raise ValueError("only < <= > >= == and != compare")
    if (one in WORDS or one == "kind") != isinstance(other, str) or other in columns:
        raise ValueError(f"{one} is not compared with {other}")
    if one in WORDS and other not in WORDS[one]:
        raise ValueError(f"{other} is none of {', '.join(WORDS[one])}")
    if isinstance(other, str) and relation not in (ast.Eq, ast.NotEq):
        raise ValueError(f"{one} is compared with == or !=")
    return Comparison(one, relation, other if isinstance(other, str) else float(other))


def after_filter(predictor: Predictor, keep: Condition, confidence: Levels) -> Predictor:
    """The predictor whose intervals hold for the answers that a filter keeps.

    The method is calibrated anew with the calibration facts that the filter keeps. These are exchangeable with the
    queries that it keeps, because the filter looks at each answer alone and at no column that calibration decides. A
    filter on the ends of intervals is refused, because calibration decides these.
    """
    for column in keep.columns():
        if column.split("_")[0] in ("lower", "upper", "width"):
            raise InputError(
                f"--after-selection does not go with a filter on {column!r}, which depends on the calibration "
                "facts itself; compare score, value or belief, or choose with --select"
            )
    predictor.method.check_subsets()
    facts = predictor.method.calibration_facts()
    kept = keep.mask(as_batch(answer(predictor, facts, exact_levels(confidence).levels[0]), {}))
    return replace(predictor, method=predictor.method.among(facts[kept.to_numpy(zero_copy_only=False)]))
