"""Answers in a notebook: data frames, a table with drawings, a plot."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.facts import Triples
from unkgcp.methods.intervals import Intervals, draw
from unkgcp.run import Predictor, calibrate
from unkgcp.training import Model

QUERIES = [("entity 1", "r1", "entity 2"), ("<b>who</b>", "r1", "entity 2"), ("entity 3", "r0", "entity $4$")]


@pytest.fixture(scope="module")
def predictor(make_model: Callable[..., Model], make_facts: Callable[..., Graph]) -> Predictor:
    return calibrate(make_model(), make_facts(200))


def test_data_frames(predictor: Predictor) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install 'unkgcp[dev]'")
    polars = pytest.importorskip("polars", reason="polars is not installed: pip install 'unkgcp[dev]'")
    result = predictor.interval(QUERIES, [0.5, 0.9])
    ends = ["lower_50", "upper_50", "lower_90", "upper_90"]
    names = ["head", "relation", "tail", "score", *ends, "status", "prediction"]
    table, frame, other = result.to_arrow(), result.to_pandas(), result.to_polars()
    assert isinstance(frame, pandas.DataFrame)
    assert isinstance(other, polars.DataFrame)
    assert table.schema.names == list(frame.columns) == other.columns == names
    assert frame["status"].tolist() == other["status"].to_list() == result.status.tolist()
    assert list(zip(frame["head"], frame["relation"], frame["tail"], strict=True)) == QUERIES
    np.testing.assert_array_equal(frame["upper_90"].to_numpy(), result.upper[:, 1])
    np.testing.assert_array_equal(frame["score"].to_numpy(), result.score)
    assert frame["prediction"].between(frame["lower_50"], frame["upper_50"]).all()
    assert other["score"].null_count() == 2


def test_html(predictor: Predictor) -> None:
    page = predictor.interval(QUERIES)._repr_html_()
    assert "&lt;b&gt;who" in page  # labels are text, whatever they hold
    assert "<b>" not in page
    assert page.count("<svg") == 3
    assert page.count("<circle") == 1  # no dot without a score
    many = predictor.interval(QUERIES * 20, [0.5, 0.9])._repr_html_()
    assert many.count("<tr>") == 21
    assert "40 more rows" in many
    assert many.count("<path") == 2 * many.count("<svg") > 0, "an interval for each level, nested"


def test_all_queries_have_their_labels(predictor: Predictor) -> None:
    words = predictor.model.vocabulary
    ids = Triples(*words.triple_ids(["entity 1"], ["r1"], ["entity 2"]))
    graph = Graph(*ids, np.array([0.5]), words)
    for queries in (ids, np.stack(ids, axis=1), graph, graph.table(), [("entity 1", "r1", "entity 2")]):
        for answers in (predictor.interval(queries), predictor.interval(queries, [0.8, 0.9])):
            (row,) = answers.to_arrow().to_pylist()
            assert list(row.values())[:3] == ["entity 1", "r1", "entity 2"]
    (row,) = predictor.interval(np.array([[0, 0, 10**6]])).to_arrow().to_pylist()
    assert row["tail"] is None


def test_plot(predictor: Predictor) -> None:
    matplotlib = pytest.importorskip(
        "matplotlib", reason="matplotlib is not installed: pip install matplotlib"
    )
    matplotlib.use("Agg")
    from matplotlib import pyplot

    axes = predictor.plot(QUERIES)
    titles = [label.get_text() for label in axes.get_yticklabels()]
    assert titles[0] == "entity 1  r1  entity 2"
    assert "unknown-entity" in titles[1]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "95 %",
        "90 %",
        "80 %",
        "prediction",
    ]
    result = predictor.interval(QUERIES, (0.8, 0.9, 0.95))
    segments = axes.collections[0].get_segments()  # the widest level first
    np.testing.assert_allclose(
        [segment[:, 0] for segment in segments], np.stack([result.lower[:, 2], result.upper[:, 2]], 1)
    )
    axes.figure.canvas.draw()
    _, mine = pyplot.subplots()
    assert predictor.plot(QUERIES[:1], 0.9, ax=mine) is mine
    with pytest.raises(InputError, match="too many for one picture"):
        predictor.plot(QUERIES * 100)
    pyplot.close("all")


def believed() -> Intervals:
    """A doubtful answer, a sure one, and an unknown query."""
    nan = np.nan
    return Intervals(
        np.array([0.65, 0.7, nan], np.float32),
        np.array([0.4375, 0.7, 0.0]),
        np.array([1.0, 0.7, 1.0]),
        np.array([0, 0, 1], np.int8),
        0.9,
        value=np.array([0.4375, 0.7, nan]),
        belief=np.array([0.551, 0.999, nan], np.float32),
        other=np.array([1.0, nan, nan]),
        other_belief=np.array([0.38, nan, nan], np.float32),
    )


def test_what_is_believed_is_one_column_of_the_page() -> None:
    page = believed()._repr_html_()
    assert "<td>0.4375 (55 %) or 1 (38 %)</td>" in page
    assert "<td>0.7 (&gt;99 %)</td>" in page
    heads = ["score", "lower", "upper", "status", "value", "prediction", "0 … 1"]
    assert "".join(f"<th>{head}</th>" for head in heads) in page
    assert page.count("<td>") == 3 * len(heads)
    first = dict(zip(heads, re.findall("<td>(.*?)</td>", page), strict=False))
    assert first["value"] == "0.4375 (55 %) or 1 (38 %)", "every cell is under its title"
    assert first["prediction"] == f"{believed().prediction[0]:.3f}"


def test_likely_values_are_drawn() -> None:
    matplotlib = pytest.importorskip(
        "matplotlib", reason="matplotlib is not installed: pip install matplotlib"
    )
    matplotlib.use("Agg")
    from matplotlib import pyplot

    axes = draw(believed())
    marks = {line.get_label(): line.get_xdata() for line in axes.get_lines()}
    np.testing.assert_array_equal(marks["prediction"], [0.4375, 0.7])
    np.testing.assert_array_equal(marks["other value"], [1.0, np.nan, np.nan])
    pyplot.close("all")
