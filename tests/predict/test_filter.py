"""The little language of filters: what it keeps, and where it points when it cannot be read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unkgcp.errors import InputError
from unkgcp.predict.filter import parse

ROWS = [
    {"score": 0.7, "lower": 0.5, "upper": 0.75, "status": "ok"},
    {"score": 0.2, "lower": 0.0, "upper": 0.5, "status": "ok"},
    {"score": None, "lower": 0.0, "upper": 1.0, "status": "unknown-entity"},
    {"score": 0.95, "lower": 0.75, "upper": 1.0, "status": "ok"},
]


def answers() -> pa.RecordBatch:
    table = pa.Table.from_pylist(ROWS).combine_chunks()
    columns = [
        table["score"].cast(pa.float32()),
        table["lower"],
        table["upper"],
        table["status"].dictionary_encode(),
    ]
    return pa.record_batch([column.chunk(0) for column in columns], names=table.schema.names)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("lower >= 0.5", [0, 3]),
        ("lower > .5", [3]),
        ("upper < 1", [0, 1]),
        ("width <= 0.25", [0, 3]),
        ("score >= 0.7", [0, 3]),  # as a 32-bit float 0.7 is a little less
        ("score != 0.2", [0, 3]),  # an unknown score is not compared
        ("status == ok", [0, 1, 3]),
        ("status != 'ok'", [2]),
        ('status = "unknown-entity"', [2]),
        ("lower >= 0.5 and upper < 1", [0]),
        ("lower >= 0.75 or upper <= 0.5", [1, 3]),
        ("upper <= 0.5 or lower >= 0.5 and width <= 0.25", [0, 1, 3]),
        ("(upper <= 0.5 or lower >= 0.5) and score > 0.5", [0, 3]),
        ("  (( lower>=0.75 ))OR(status==unknown-entity) ", [2, 3]),
        ("lower >= -1e-3 and upper <= 1.0", [0, 1, 2, 3]),
        ("lower > 2", []),
        ("0.5 <= lower < 0.75", [0]),
        ("0.75 <= lower", [3]),
    ],
)
def test_keeps(text: str, kept: list[int]) -> None:
    found = parse(text, [0.9]).keep(answers())
    assert found.equals(answers().take(pa.array(kept, pa.int64())))


def test_values_and_what_a_model_believes_of_them() -> None:
    belief = [pa.array(column, pa.float32()) for column in ([0.7, 0.55, None], [None, 0.38, None])]
    values = [pa.array(column) for column in ([0.3, 0.4375, None], [None, 1.0, None])]
    names = ["value", "belief", "other", "other_belief"]
    batch = pa.record_batch([values[0], belief[0], values[1], belief[1]], names=names)
    for text, kept in (
        ("belief >= 0.7", [0]),  # as a 32-bit float 0.7 is a little less
        ("value == 0.4375 and belief < 0.6", [1]),
        ("other = 1 and other_belief >= .38", [1]),
        ("other_belief < 0.9 or value <= 0.3", [0, 1]),  # what is not there is not compared
    ):
        assert parse(text, [0.9]).keep(batch).equals(batch.take(pa.array(kept, pa.int64()))), text
    with pytest.raises(InputError, match="asks for 'belief', which this run does not tell"):
        parse("lower >= 0 and belief > 0.5", [0.9]).keep(answers())


def test_several_levels() -> None:
    batch = pa.record_batch(
        {"lower_80": [0.1, 0.6], "upper_80": [0.2, 0.9], "lower_99.5": [0.0, 0.1], "upper_99.5": [1.0, 0.3]}
    )
    assert len(parse("width_99.5 < 0.5 and lower_80 > 0.5", [0.8, 0.995]).keep(batch)) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "invalid syntax"),
        ("lower", "compares nothing"),
        ("lower >=", "invalid syntax"),
        ("(lower >= 0.7", "never closed"),
        ("lower >> 0.7", "compares nothing"),
        ("lower >= 0.7 upper < 1", "invalid syntax"),
        ("lower >= upper", "lower is not compared with upper"),
        ("lover >= 0.7", "lover is no column; there are score"),
        ("lower_80 >= 0.7", "lower_80 is no column"),
        ("status < ok", "status is compared with == or !="),
        ("status == fine", "fine is none of ok, unknown-entity"),
        ("status == 1", "status is not compared with 1"),
        ("lower >= high", "lower is not compared with high"),
        ("lower in (1, 2)", "is no column, number or word"),
        ("not lower > 1", "compares nothing"),
        ("lower > 2 + 3", "is no column, number or word"),
        ("__import__('os').system('true')", "compares nothing"),
        ("lower > __import__('os').system('true')", "is no column, number or word"),
        ("lower >= 0.7; x", "invalid syntax"),
        ("lower > -'a'", "is no column, number or word"),
        ("(" * 300 + "lower > 0" + ")" * 300, "too many nested parentheses"),
        ("lower > 0 or " * 200 + "lower > 0", "at most 1,000"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, [0.9])
    assert words in str(caught.value)
