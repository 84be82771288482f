"""Choosing among the candidates of a file: the same rows whatever the batches, the engine or the kind of file are."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.predict.filter import after_filter, parse
from unkgcp.predict.stream import answer_file, chosen_in_file
from unkgcp.run import Predictor, calibrate
from unkgcp.run.chooser import Choice
from unkgcp.training import Model

CHOICE = Choice.of("confidence >= 0.5", [0.4, 0.8])


def choose(predictor: Predictor, queries: Path | str, target: Path, choice: Choice = CHOICE) -> pa.Table:
    with chosen_in_file(predictor, str(queries), choice) as chosen:
        answer_file(predictor, chosen.queries, str(target), answer=chosen.answering(0.9), **chosen.reading)
    return pq.read_table(target)


@pytest.fixture(scope="module")
def predictor(make_model: Callable[..., Model], make_facts: Callable[..., Graph]) -> Predictor:
    """Calibrated with confidences that the scores tell something of."""
    model, facts = make_model(), make_facts(400, seed=8)
    guess = model.score(facts.head, facts.relation, facts.tail)
    rank = np.argsort(np.argsort(guess)) / len(guess)
    noise = np.random.default_rng(0).normal(0, 0.1, len(guess))
    return calibrate(model, facts.with_confidence(np.clip(rank + noise, 0, 1)), "cp")


@pytest.fixture(scope="module")
def expected(predictor: Predictor, table: pa.Table) -> pa.Table:
    return predictor.select(table, "confidence >= 0.5", [0.4, 0.8]).to_arrow()


def test_a_file_has_the_answers_of_python(
    predictor: Predictor, queries: Path, expected: pa.Table, tmp_path: Path
) -> None:
    found = choose(predictor, queries, tmp_path / "out.parquet")
    assert found.schema.names[-3:] == ["p_value", "selected_40", "selected_80"]
    for name in ("lower", "upper", "p_value", "selected_40", "selected_80"):
        told = expected[name].to_pylist()
        assert found[name].to_pylist() == (
            told if name.startswith("selected") else [round(v, 9) for v in told]
        ), name
    known = np.array(found["status"].cast(pa.string())) == "ok"
    chosen, p_value = np.array(found["selected_80"]), np.array(found["p_value"])
    assert 0 < np.array(found["selected_40"]).sum() < chosen.sum() <= known.sum()
    assert not chosen[~known].any()
    assert (p_value[~known] == 1).all()


def test_what_was_chosen_is_said_in_a_sentence(
    predictor: Predictor, queries: Path, expected: pa.Table
) -> None:
    with chosen_in_file(predictor, str(queries), CHOICE) as chosen:
        sentence = chosen.sentence
    counts = [np.count_nonzero(expected[f"selected_{share}"]) for share in (40, 80)]
    unknown = len(expected) - np.count_nonzero(np.array(expected["status"].cast(pa.string())) == "ok")
    assert sentence == (
        f"chosen among 12,000 triples: {counts[0]:,} with at most 0.4 of them wrong on average; {counts[1]:,} with at "
        f"most 0.8 of them wrong on average (confidence >= 0.5); {unknown:,} cannot be judged, since no "
        "calibration fact is of their kind; that candidates are facts is presumed"
    )


def test_a_pipe_is_kept_and_read_twice(
    predictor: Predictor, queries: Path, table: pa.Table, tmp_path: Path
) -> None:
    lines = ["\t".join(row.values()).replace("\n", "") for row in table.slice(0, 3000).to_pylist()]
    text = "\n".join(["head\trelation\ttail", *lines]) + "\n"
    (tmp_path / "file.tsv").write_text(text)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(text))
    writer.start()
    found = choose(predictor, pipe, tmp_path / "pipe.parquet")
    writer.join()
    assert found.equals(choose(predictor, tmp_path / "file.tsv", tmp_path / "file.parquet"))


def test_no_candidates(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "none.tsv").write_text("head\trelation\ttail\n")
    with pytest.raises(InputError, match="has no triples, so there is nothing to choose from"):
        choose(predictor, tmp_path / "none.tsv", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
    nothing = predictor.select([], "confidence >= 0.5")
    assert len(nothing) == 0
    assert nothing.to_arrow().schema.names[-3:] == ["p_value", "selected", "prediction"]


class TestAfterSelection:
    def test_only_what_is_chosen_with_intervals_of_its_own(
        self, predictor: Predictor, queries: Path, table: pa.Table, tmp_path: Path
    ) -> None:
        plain = predictor.select(table, "confidence >= 0.5", 0.4)
        assert plain.selected is not None
        chosen = plain.selected["selected"]
        found = choose(
            predictor, queries, tmp_path / "o.parquet", Choice.of("confidence >= 0.5", 0.4, after=True)
        )
        assert found.num_rows == chosen.sum()
        assert found["p_value"].to_pylist() == plain.p_value[chosen].round(9).tolist()  # type: ignore[index]
        again = predictor.select(table, "confidence >= 0.5", 0.4, after_selection=True)
        assert found["lower"].to_pylist() == again.lower.round(9).tolist()
        assert (again.lower != plain.lower[chosen]).any()
        assert again.labels is not None
        assert again.labels["head"].to_pylist() == found["head"].to_pylist()

    def test_a_filter_calibrates_with_the_facts_that_it_keeps(self, predictor: Predictor) -> None:
        facts = predictor.method.calibration_facts()
        score = predictor.model.score(facts.head, facts.relation, facts.tail)
        middle = float(np.median(score))
        after = after_filter(predictor, parse(f"score >= {middle}", [0.9]), 0.9)
        assert after.method.size == (score >= np.float32(middle)).sum()
        direct = calibrate(predictor.model, facts[score >= np.float32(middle)], "cp")
        np.testing.assert_array_equal(after.interval(facts).lower, direct.interval(facts).lower)

    @pytest.mark.parametrize("column", ["lower", "upper", "width"])
    def test_a_filter_on_the_ends_is_refused(self, predictor: Predictor, column: str) -> None:
        with pytest.raises(InputError, match=f"a filter on '{column}', which depends on the calibration"):
            after_filter(predictor, parse(f"{column} >= 0.7", [0.9]), 0.9)

    def test_a_filter_that_no_calibration_fact_passes(self, predictor: Predictor) -> None:
        with pytest.raises(InputError, match="no calibration fact would have been chosen"):
            after_filter(predictor, parse("score > 1", [0.9]), 0.9)


def test_a_file_that_changes_between_the_passes_is_noticed(
    predictor: Predictor, table: pa.Table, tmp_path: Path
) -> None:
    pq.write_table(table.slice(0, 100), tmp_path / "in.parquet")
    with chosen_in_file(predictor, str(tmp_path / "in.parquet"), CHOICE) as chosen:
        pq.write_table(table.slice(0, 200), tmp_path / "in.parquet")
        with pytest.raises(InputError, match="has changed while it was read"):
            answer_file(predictor, chosen.queries, str(tmp_path / "out.tsv"), answer=chosen.answering(0.9))
    assert not (tmp_path / "out.tsv").exists()
