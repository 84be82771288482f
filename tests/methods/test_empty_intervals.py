"""Intervals that may be empty: exact coverage where single values alone cover more than was asked."""

from __future__ import annotations

import csv
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import unkgcp
from tests.worlds import vocabulary
from unkgcp.cli import main
from unkgcp.errors import InputError
from unkgcp.evaluation import evaluate
from unkgcp.evaluation.assessment import ask
from unkgcp.evaluation.by_relation import by_relation
from unkgcp.evaluation.evaluation_texts import evaluation_text
from unkgcp.evaluation.metrics import coverage_band
from unkgcp.evaluation.report.diagnosis import diagnose
from unkgcp.evaluation.report.report_sections import fact_section, remarkable
from unkgcp.evidence import learn
from unkgcp.evidence.trees import Boosting
from unkgcp.graph import Dataset, Graph, Splits, write
from unkgcp.methods import create
from unkgcp.methods.evidence_method import EvidenceIntervals
from unkgcp.methods.intervals import in_words
from unkgcp.predict.filter import parse
from unkgcp.run import Predictor
from unkgcp.training import Model, TrainConfig

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
FEW = Boosting(rounds=20, leaves=7)
CONFIG = TrainConfig("ukge", dimension=4, batch_size=512, epochs=1, validate_every=1)
LEVELS = [0.5, 0.7, 0.8, 0.95]


def draw(n: int, seed: int) -> Graph:
    """Relation 0 always says 0.5, relation 1 nine times in ten, relation 2 is anything: single values cover 87 %."""
    rng = np.random.default_rng(seed)
    head, tail = rng.integers(0, 400, (2, n), dtype=np.int32)
    relation = rng.choice(3, n, p=[0.5, 0.4, 0.1]).astype(np.int32)
    odd = rng.random(n) < np.array([0.0, 0.1, 1.0])[relation]
    return Graph(head, relation, tail, np.where(odd, rng.random(n), 0.5), vocabulary(400, 3))


@cache
def data(name: str = "made") -> Dataset:
    train = draw(6000, 0)
    return Dataset(name, Splits(train, draw(4000, 1), draw(6000, 2), train[:0]), draw(200, 3))


@cache
def model() -> Model:
    return unkgcp.train(data().splits.train, config=CONFIG, device="cpu")


@cache
def evidence() -> Any:
    return learn(data().splits.train, suggested=FEW, elsewhere=FEW)


@cache
def predictor(**options: Any) -> Predictor:
    return unkgcp.calibrate(model(), data().splits.calibration, "evidence", evidence=evidence(), **options)


def hits(made: Predictor, level: float) -> np.ndarray:
    test = data().splits.test
    found = made.interval(test, level)
    return (found.lower <= test.confidence) & (test.confidence <= found.upper)


def test_coverage_is_what_was_asked() -> None:
    """The usual intervals, single values, cover more at 50 and 70 %, and none of them may be left out."""
    for level in (0.5, 0.7):
        low, high = coverage_band(4000, 6000, level)
        assert hits(predictor(per="none"), level).mean() > high
        assert low <= hits(predictor(allow_empty=True), level).mean() <= high


def test_over_fresh_facts_it_follows_the_exact_law() -> None:
    """Over calibration sets of 99 the mean is 70 / 100, or more by the calibration scores that tie with a fact."""
    share, tied = [], []
    for seed in range(150):
        facts = draw(99 + 50, 1000 + seed)
        made = create("evidence", evidence=evidence(), allow_empty=True).calibrate(model(), facts[:99])
        test, found = facts[99:], made.interval(facts[99:], 0.7)
        share.append(((found.lower <= test.confidence) & (test.confidence <= found.upper)).mean())
        standing = made.standing(test, test.confidence)
        assert standing is not None
        tied.append(standing.equal.mean() / 100)
    spread = np.sqrt(0.7 * 0.3 * (1 / 101 + 1 / 50) / len(share))
    assert 0.7 - 5 * spread <= np.mean(share) <= 0.7 + 5 * spread + np.mean(tied)
    assert np.mean(tied) < 0.02


def test_empty_where_it_doubts_most_and_otherwise_the_same() -> None:
    usual, made = predictor(per="none"), predictor(allow_empty=True)
    test = data().splits.test
    before, after = usual.interval(test, LEVELS), made.interval(test, LEVELS)
    empty = np.isnan(after.lower)
    np.testing.assert_array_equal(empty, np.isnan(after.upper))
    for one, other in ((before.lower, after.lower), (before.upper, after.upper)):
        np.testing.assert_allclose(one[~empty], other[~empty], rtol=0, atol=1e-9)
    assert (np.diff(empty.astype(int), axis=1) <= 0).all()  # nested: once there, always there
    assert not empty[:, -1].any()
    assert (after.width[empty] == 0).all()
    # relation 0 is certain, relation 2 is not: what is left out at 70 % is of the latter
    assert empty[test.relation == 2, 1].mean() > 0.9
    assert empty[test.relation == 0, 1].mean() < 0.01
    # p-values say the same as intervals
    method = made.method
    assert isinstance(method, EvidenceIntervals)
    inside = (after.lower[:, 1] <= test.confidence) & (test.confidence <= after.upper[:, 1])
    np.testing.assert_array_equal(
        method.rankings.p_values(method.nonconformity(test, test.confidence), [None]) > 0.3 + 1e-12, inside
    )


def test_level_0_and_1() -> None:
    found = predictor(allow_empty=True).interval(data().splits.test, [0.0, 1.0])
    assert np.isnan(found.lower[:, 0]).all()
    assert (found.lower[:, 1] == 0).all()
    assert (found.upper[:, 1] == 1).all()


def test_unknown_queries_have_the_whole_range() -> None:
    found = predictor(allow_empty=True).interval([("nobody", "r0", "e1"), ("e1", "r0", "e2")], 0.5)
    assert (found.lower[0], found.upper[0]) == (0.0, 1.0)
    assert found.status.tolist() == ["unknown-entity", "ok"]


def test_a_run_keeps_it(tmp_path: Path) -> None:
    made = predictor(allow_empty=True)
    made.save(tmp_path / "run")
    again = Predictor.load(tmp_path / "run")
    assert again.method.options() == {"per": "none", "floor": False, "allow_empty": True}
    for column in ("score", "lower", "upper"):
        before, after = (getattr(one.interval(data().splits.test, LEVELS), column) for one in (made, again))
        np.testing.assert_array_equal(after, before)


def test_what_is_said_of_a_level() -> None:
    made = predictor(allow_empty=True)
    assert made.method.caution(0.7) == (
        "facts whose value is too doubtful for confidence 0.7 have an empty interval, no ends"
    )
    assert made.method.caution(0.95) is None
    assert predictor(per="none").method.caution(0.7) is None


def test_evaluate_counts_them() -> None:
    result = evaluate(predictor(allow_empty=True), data(), LEVELS)
    found = predictor(allow_empty=True).interval(data().splits.test, LEVELS)
    share = np.isnan(found.lower).mean(axis=0)
    assert [level["share"] for level in result["empty"]] == pytest.approx(share)
    at = result["levels"][1]["positive"]
    assert at["coverage"] == pytest.approx(result["empty"][1]["coverage_of_others"] * (1 - share[1]))
    assert at["sharpness"] == pytest.approx(0, abs=1e-12)
    assert f"0.7: {share[1]:.1%} of the facts have an empty interval" in evaluation_text(result)
    assert "0.95: " not in evaluation_text(result)
    json.dumps(result, allow_nan=False)
    assert evaluate(predictor(per="none"), data(), LEVELS)["empty"] is None


def test_per_relation() -> None:
    """Relation 0 has one value, so that nothing of it is left out at any level but 0; all its scores tie or nearly."""
    made = predictor(allow_empty=True, per="relation")
    (result,) = by_relation(ask(made, data(), [0.7]))
    assert result["after"]["share_below_band"] == 0
    assert np.isfinite(result["after"]["sharpness"])
    assert made.method.options() == {"per": "relation", "floor": False, "allow_empty": True}
    assert "have an empty interval" in (made.method.caution(0.7) or "")


def test_open_world_keeps_no_fact_alone() -> None:
    """Where no value is believed and the query may be no fact, 0 is what is left."""
    made = unkgcp.calibrate(
        model(),
        data().splits.calibration,
        "evidence",
        evidence=evidence(),
        allow_empty=True,
        population="open",
        kinds=("uniform",),
    )
    found = made.interval(data().splits.test, 0.7)
    assert found.no_fact is not None
    assert found.fact_lower is not None
    none = np.isnan(found.fact_lower)
    assert none.any()
    both = none & found.no_fact
    assert (found.lower[both] == 0).all()
    assert (found.upper[both] == 0).all()
    assert np.isnan(found.lower[none & ~found.no_fact]).all()


def test_tables_have_nulls_and_filters_leave_them_out() -> None:
    found = predictor(allow_empty=True).interval(data().splits.test, 0.7)
    empty = np.isnan(found.lower)
    table = found.to_arrow()
    assert table.column("lower").null_count == table.column("upper").null_count == empty.sum()
    assert table.column("score").null_count == 0
    for text, kept in (("width < 0.5", ~empty), ("lower >= 0", ~empty), ("score >= 0", ~empty | empty)):
        assert len(parse(text, [0.7]).keep(table.to_batches()[0])) == kept.sum()
    first = found._repr_html_()
    assert ('aria-label="empty"' in first) == bool(empty[:20].any())


def test_a_report_can_be_made() -> None:
    found = diagnose(predictor(allow_empty=True), data(), 0.7)
    assert all(
        np.isfinite([level.coverage, level.sharpness, level.median, level.interval_score]).all()
        for level in found.levels
    )
    said = str(fact_section(found).body)
    assert "nan" not in said
    # what the model believes stands beside every fact shown
    rows = np.concatenate(list(remarkable(found.answered).values()))
    modes = [[column[row].item() for column in found.answered.modes] for row in rows]
    words = [in_words(*each).replace(">", "&gt;").replace("<", "&lt;") for each in modes]
    assert len(set(words)) > 1
    assert all(f">{each}</td>" in said for each in words)


def test_command_line(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, part in (("train", data().splits.train), ("val", draw(800, 1)), ("test", draw(800, 2))):
        write(part, folder / f"{name}.tsv")
    (tmp_path / "c.yaml").write_text("dimension: 4\nepochs: 1\n")

    def ok(*arguments: str) -> None:
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
        assert ended.value.code == 0

    ok(
        "fit",
        str(folder),
        "-o",
        str(tmp_path / "run"),
        "--method",
        "evidence",
        "--quick",
        "--config",
        str(tmp_path / "c.yaml"),
    )
    ok(
        "fit",
        "--from",
        str(tmp_path / "run"),
        "--method",
        "evidence",
        "--allow-empty",
        "-o",
        str(tmp_path / "empty"),
    )
    queries = tmp_path / "queries.tsv"
    write(draw(200, 5), queries)
    for name in ("a.tsv", "a.parquet"):
        ok(
            "predict",
            str(tmp_path / "empty"),
            str(queries),
            "--confidence",
            "0.7,0.95",
            "-o",
            str(tmp_path / name),
        )
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.tsv").read_text()), delimiter="\t"))
    table = pq.read_table(tmp_path / "a.parquet")
    assert [row["lower_70"] == "" for row in rows] == table.column("lower_70").is_null().to_pylist()
    assert 0 < sum(row["upper_70"] == "" for row in rows) < len(rows)
    assert all(row["lower_95"] and row["status"] == "ok" for row in rows)


def test_the_service_says_null() -> None:
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    testclient = pytest.importorskip("fastapi.testclient", reason="httpx is not installed")
    from unkgcp.service import Settings, create_app

    made = predictor(allow_empty=True)
    asked = [("e1", f"r{i}", f"e{j}") for i in range(3) for j in range(20)]
    found = made.interval(asked, [0.7, 0.95])
    empty = np.isnan(found.lower[:, 0])
    assert 0 < empty.sum() < len(asked)
    with testclient.TestClient(create_app(made, Settings())) as client:
        said = client.post("/v1/intervals", json={"triples": asked, "confidence": [0.7, 0.95]}).json()
        best = client.get(
            "/v1/complete", params={"head": "e1", "relation": "r2", "confidence": 0.7, "k": 30}
        ).json()
    assert [lower[0] is None for lower in said["lower"]] == empty.tolist()
    assert [upper[0] is None for upper in said["upper"]] == empty.tolist()
    assert all(lower[1] is not None for lower in said["lower"])
    assert any(answer["lower"] is None for answer in best["answers"])


@pytest.mark.parametrize("method", ["cp", "unkgcp", "fpi"])
def test_it_is_for_evidence(method: str) -> None:
    from unkgcp.run import fit

    with pytest.raises(InputError, match=f"--allow-empty goes with --method evidence, not with {method}"):
        fit(data(), CONFIG, method=method, allow_empty=True, device="cpu")
    with pytest.raises(InputError, match="no option 'allow_empty'"):
        unkgcp.calibrate(model(), data().splits.calibration, method, allow_empty=True)


def test_not_with_folds(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(draw(300, 0), tmp_path / "facts.tsv")
    asked = ["--method", "cp", "--calibrate", "cv+", "--allow-empty"]
    with pytest.raises(SystemExit) as ended:
        main(["fit", str(tmp_path / "facts.tsv"), "-o", str(tmp_path / "run"), *asked])
    assert ended.value.code == 2
    assert "--allow-empty does not go with --calibrate cv+" in capfd.readouterr().err


def test_a_switch_is_true_or_false() -> None:
    with pytest.raises(InputError, match="allow_empty is 'yes' but must be true or false"):
        create("evidence", allow_empty="yes")
