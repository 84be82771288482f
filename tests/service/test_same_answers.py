"""`unkgcp predict`, a worker of the Ray engine and the service tell the same, column by column and to the last bit.

Runs of every method and population are asked the same queries in all three ways: known and unknown ones, repeated ones,
some whose interval is empty, at several levels and at one, and completions. Nothing is rounded here: what differs in
the last bit was not computed by the same function.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from tests.predict.conftest import same_bytes
from tests.worlds import mirrored_graph
from unkgcp.cli import main
from unkgcp.conformal.ranks import percent
from unkgcp.graph import Graph, write
from unkgcp.graph.datasets import Dataset, load_dataset
from unkgcp.methods import PREDICTORS
from unkgcp.methods.intervals import MODES
from unkgcp.predict.parts import ANSWERS, part_name, plan, staged
from unkgcp.predict.ray_engine import answer_on_ray
from unkgcp.run import Predictor, fit, fit_folds
from unkgcp.service import api_schema, create_app
from unkgcp.training import TrainConfig

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'unkgcp[ray]'")
pytest.importorskip("ray.data", reason="ray is there without ray.data: pip install 'unkgcp[ray]'")

# with the other tests of Ray in one process: one cluster at a time is enough

CONFIG = TrainConfig("ukge", dimension=8, batch_size=256, epochs=2, validate_every=1, negatives=2)
NAMES = ["head", "relation", "tail"]
LEVELS = [0.8, 0.5, 0.95]  # at 0.5 many intervals of a run with --allow-empty are empty
COMPLETION = {"k": 4, "rank_by": "lower", "exclude_known": True}
RICHEST = "evidence, per relation, --allow-empty, open"  # it has every column there is

# how a run is fitted -> the options of `fit`; confidences are intervals where its name says so
METHODS: dict[str, dict[str, Any]] = {
    "cp": {"method": "cp"},
    "unkgcp": {"method": "unkgcp"},
    "fpi": {"method": "fpi"},
    "qr": {"method": "qr"},
    "shortest": {"method": "shortest"},
    "evidence": {"method": "evidence"},
    "evidence, --allow-empty": {"method": "evidence", "quick": True, "allow_empty": True},
    "unkgcp, per relation": {"method": "unkgcp", "per": "relation"},
    "shortest, per relation": {"method": "shortest", "per": "relation"},
    "unkgcp, per doubt and degree": {"method": "unkgcp", "per": "doubt,degree"},
    "evidence, per relation, --allow-empty": {
        "method": "evidence",
        "quick": True,
        "allow_empty": True,
        "per": "relation",
    },
    "joint, interval-valued": {"method": "unkgcp"},
    "mean-length, interval-valued": {"method": "mean-length"},
}
# cv+ is a way of fitting with a method of its own, for asserted facts only
RUNS = [f"{method}, {population}" for method in METHODS for population in ("asserted", "open")] + ["cv+"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("same")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Path]:
    """A run of every method and population."""
    facts = mirrored_graph(900, 3)
    lower, upper = (np.clip(facts.confidence + by, 0, 1) for by in (-0.1, 0.05))
    valued = Graph(
        facts.head,
        facts.relation,
        facts.tail,
        (lower + upper) / 2,
        facts.vocabulary,
        np.stack([lower, upper], 1),
    )
    plain, wide = _dataset(facts, folder / "facts.tsv"), _dataset(valued, folder / "valued.tsv")
    made = {"cv+": fit_folds(plain, CONFIG, folds=3, device="cpu")}
    for name, options in METHODS.items():
        data = wide if name.endswith("interval-valued") else plain
        for population in ("asserted", "open"):
            found = fit(
                data, CONFIG, population=population, kinds=("uniform", "near"), device="cpu", **options
            )
            made[f"{name}, {population}"] = found
    assert {predictor.method.name for predictor in made.values()} == set(PREDICTORS)
    for place, (name, predictor) in enumerate(made.items()):
        predictor.save(folder / f"run{place}")
        made[name] = folder / f"run{place}"  # type: ignore[assignment]
    return made  # type: ignore[return-value]


def _dataset(facts: Graph, path: Path) -> Dataset:
    write(facts, path)
    return load_dataset(path, calibration=0.25, test=0.05)


@pytest.fixture(scope="module")
def queries(folder: Path) -> Path:
    """Known triples of every relation, facts among them, repeated ones, and unknown ones of every kind."""
    rng, facts = np.random.default_rng(4), mirrored_graph(900, 3)[:30]
    head, tail, relation = (rng.integers(0, size, 60).tolist() for size in (60, 60, 4))
    head, tail = head + facts.head.tolist(), tail + facts.tail.tolist()
    relation += facts.relation.tolist()
    rows = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in zip(head, relation, tail, strict=True)]
    rows += [rows[0], rows[7], rows[0]]
    rows += [("nobody", "r0", "e1"), ("e1", "r0", "nobody"), ("e1", "nothing", "e2"), ("no", "such", "thing")]
    return _table(rows, folder / "queries.parquet")


@pytest.fixture(scope="module")
def open_queries(folder: Path) -> Path:
    """Queries with an open head or tail; the last two are unknown."""
    rows = [("e3", "r1", "?"), ("?", "r2", "e5"), ("e3", "r1", "?"), ("e8", "r0", "?"), ("?", "r3", "e9")]
    return _table([*rows, ("nobody", "r1", "?"), ("e3", "nothing", "?")], folder / "open.parquet")


def _table(rows: list[tuple[str, str, str]], path: Path) -> Path:
    columns = zip(*rows, strict=True)
    pq.write_table(pa.table([pa.array(column) for column in columns], names=NAMES), path, row_group_size=25)
    return path


@pytest.fixture(scope="module")
def predicted(
    runs: dict[str, Path], queries: Path, open_queries: Path, folder: Path
) -> Callable[..., pa.Table]:
    """What the command writes for a run: answers, or completions."""

    def predict(name: str, *options: str) -> pa.Table:
        target = folder / "predicted.parquet"
        asked = open_queries if "--top-k" in options else queries
        with pytest.raises(SystemExit) as ended:
            main(["predict", str(runs[name]), str(asked), "-o", str(target), *options])
        assert ended.value.code == 0
        return pq.read_table(target)

    return predict


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One worker; its files are short-named because Unix sockets must be."""
    place = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        object_store_memory=80 << 20,
        logging_level="CRITICAL",
        log_to_driver=False,
        _temp_dir=place,
    )
    yield
    ray.shutdown()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def on_ray(
    cluster: None, runs: dict[str, Path], queries: Path, open_queries: Path, folder: Path
) -> dict[tuple[str, bool], pa.Table]:
    """What the engine's worker writes in a process of the cluster: answers and completions of every run.

    A process is started once for all of them: started by the engine for each, they would take minutes.
    """

    def answer_all(works: list[tuple[dict[str, Any], list[dict[str, Any]]]]) -> list[str]:
        from unkgcp.predict.ray_worker import Answerer, Work

        return [
            answer(part)["error"]
            for work, parts in works
            for answer in [Answerer(Work(**work))]
            for part in parts
        ]

    found: dict[tuple[str, bool], pa.Table] = {}
    works, stages = [], []
    with staged(str(folder / "answers")) as top:
        for name, run in runs.items():
            for completion, source in ((None, queries), (COMPLETION, open_queries)):
                stage = top / str(len(stages))
                for part in (ANSWERS, "attempts"):
                    (stage / part).mkdir(parents=True)
                parts = plan([str(source)], 30 if completion is None else 3)
                work = {"run": str(run), "stage": str(stage), "confidence": LEVELS, "reading": {}}
                works.append((work | {"completion": completion}, [part._asdict() for part in parts]))
                stages.append((name, completion is not None, stage, len(parts)))
        errors = ray.get(ray.remote(num_cpus=1)(answer_all).remote(works))
        assert set(errors) == {""}
        for name, completing, stage, count in stages:
            assert count > 1
            tables = [pq.read_table(stage / ANSWERS / part_name(number)) for number in range(count)]
            found[name, completing] = pa.concat_tables(tables)
    return found


@pytest.fixture(scope="module")
def services(runs: dict[str, Path]) -> Iterator[dict[str, TestClient]]:
    clients = {name: TestClient(create_app(Predictor.load(run))) for name, run in runs.items()}
    for client in clients.values():
        client.__enter__()
    yield clients
    for client in clients.values():
        client.__exit__(None, None, None)


def levels(confidence: float | list[float]) -> list[str]:
    given = [confidence] if isinstance(confidence, float) else confidence
    return ["--confidence", ",".join(map(str, given))]


def gathered(table: pa.Table, confidence: float | list[float]) -> dict[str, list[Any]]:
    """The columns of answers that `predict` wrote as the service has them: levels in a list for each row."""
    if isinstance(confidence, float):
        return {name: table[name].to_pylist() for name in table.schema.names}
    found: dict[str, list[Any]] = {}
    for name in table.schema.names:
        base, _, level = name.rpartition("_")
        if level.replace(".", "").isdecimal():
            found.setdefault(base, [[] for _ in range(len(table))])
            for row, value in zip(found[base], table[name].to_pylist(), strict=True):
                row.append(value)
        else:
            found[name] = table[name].to_pylist()
    ordered = [f"lower_{percent(level)}" for level in confidence]
    assert [name for name in table.schema.names if name.startswith("lower_")] == ordered
    return found


def names_of(name: str) -> set[str]:
    """The columns of a run's answers."""
    found = {"score", "lower", "upper", "status"}
    evidence = name.startswith("evidence")
    # groups by doubt and by relation go with evidence, unless intervals may be empty
    relations = "per relation" in name or (evidence and "--allow-empty" not in name)
    found |= {"promise"} if relations else set()
    found |= set(MODES) if evidence else set()
    return found | ({"no_fact", "fact_lower", "fact_upper"} if name.endswith("open") else set())


def of_completions(name: str) -> set[str]:
    """The columns that completions have beside."""
    found = set() if name.endswith("open") else {"presumes_fact"}
    return found | ({"expected"} if name.startswith("evidence") else set())


@pytest.mark.parametrize("name", RUNS)
def test_a_worker_of_ray_tells_what_predict_tells(
    name: str, predicted: Callable[..., pa.Table], on_ray: dict[tuple[str, bool], pa.Table]
) -> None:
    same_bytes(on_ray[name, False], predicted(name, *levels(LEVELS)))
    completing = ("--top-k", "4", "--rank-by", "lower", "--exclude-known")
    same_bytes(on_ray[name, True], predicted(name, *levels(LEVELS), *completing))


@pytest.mark.parametrize("completing", [False, True])
def test_so_does_the_whole_engine(
    completing: bool,
    cluster: None,
    runs: dict[str, Path],
    queries: Path,
    open_queries: Path,
    predicted: Callable[..., pa.Table],
    tmp_path: Path,
) -> None:
    source, asked = (open_queries, COMPLETION) if completing else (queries, None)
    options = ("--top-k", "4", "--rank-by", "lower", "--exclude-known") if completing else ()
    target = str(tmp_path / "answers.parquet")
    answer_on_ray(
        str(runs[RICHEST]), str(source), target, LEVELS, workers=1, rows_per_part=30, completion=asked
    )
    same_bytes(pq.read_table(target), predicted(RICHEST, *levels(LEVELS), *options))


@pytest.mark.parametrize("name", RUNS)
def test_http_tells_what_predict_tells(
    name: str, predicted: Callable[..., pa.Table], services: dict[str, TestClient]
) -> None:
    for confidence in (LEVELS, 0.9):
        expected = gathered(predicted(name, *levels(confidence)), confidence)
        triples = [list(row) for row in zip(*(expected.pop(place) for place in NAMES), strict=True)]
        body = {"triples": triples, "confidence": confidence}
        said = services[name].post("/v1/intervals", json=body).json()
        api_schema.Intervals.model_validate(said)  # no field that the OpenAPI document does not know
        assert said.pop("confidence") == confidence
        said.pop("notes")
        assert set(said) == set(expected) == names_of(name)
        for column, values in expected.items():
            assert said[column] == values, column
    # and one by one, with nobody else in the batch
    for row in (0, 5, len(triples) - 4, len(triples) - 1):
        alone = services[name].post("/v1/intervals", json={"triples": [triples[row]]}).json()
        assert {column: alone[column] for column in expected} == {
            column: [values[row]] for column, values in expected.items()
        }


@pytest.mark.parametrize("rank_by", ["score", "lower"])
@pytest.mark.parametrize("name", RUNS)
def test_completions_over_http_are_those_of_predict(
    name: str,
    rank_by: str,
    predicted: Callable[..., pa.Table],
    services: dict[str, TestClient],
    open_queries: Path,
) -> None:
    confidence: float | list[float] = LEVELS if rank_by == "lower" else 0.9
    table = predicted(name, *levels(confidence), "--top-k", "4", "--rank-by", rank_by)
    expected = gathered(table, confidence)
    rows = [dict(zip(expected, row, strict=True)) for row in zip(*expected.values(), strict=True)]
    asked = pq.read_table(open_queries).to_pylist()
    for place, query in enumerate(asked):
        given = {part: label for part, label in query.items() if label != "?"}
        options = {"k": 4, "rank_by": rank_by, "confidence": confidence}
        answer = services[name].get("/v1/complete", params={**given, **options})
        wanted = [row for row in rows if row["query"] == place]
        if wanted[0]["status"] != "ok":  # a row that says so in a file, an error for who asks one question
            assert (len(wanted), answer.status_code) == (1, 404)
            continue
        said = answer.json()
        api_schema.Completions.model_validate(said)
        assert said["confidence"] == confidence
        assert len(said["answers"]) == len(wanted) == 4
        for rank, (found, row) in enumerate(zip(said["answers"], wanted, strict=True), 1):
            known = found.pop("known")
            assert known is None or 0 <= known <= 1
            assert set(found) == {*NAMES, *names_of(name), *of_completions(name)}
            assert {"query": place, "rank": rank, **found} == row


def test_the_queries_have_what_they_should(predicted: Callable[..., pa.Table]) -> None:
    """Unknown ones of every kind, intervals that are empty and some that are not, queries that may be no facts."""
    table = predicted(RICHEST, *levels(LEVELS))
    assert set(table["status"].to_pylist()) == {"ok", "unknown-entity", "unknown-relation"}
    assert table["score"].null_count == 4
    asserted = predicted(RICHEST.replace("open", "asserted"), *levels(LEVELS))
    for answers, column in ((table, "fact_lower_50"), (asserted, "lower_50")):
        assert 0 < answers[column].null_count < len(answers) - 4
    assert set(table["no_fact_80"].to_pylist()) == {True, False}
    assert "relation" in table["promise"].to_pylist()
    assert table["value"].null_count == table["belief"].null_count == 4
    assert 4 < table["other"].null_count == table["other_belief"].null_count < len(table)


def test_completions_may_be_empty_too(services: dict[str, TestClient]) -> None:
    name = "evidence, --allow-empty, asserted"
    asked = {"head": "e3", "relation": "r1", "k": 1000, "confidence": 0.5}
    answers = services[name].get("/v1/complete", params=asked).json()["answers"]
    empty = [answer["lower"] is None for answer in answers]
    assert any(empty)
    assert not all(empty)
    assert empty == [answer["upper"] is None for answer in answers]
