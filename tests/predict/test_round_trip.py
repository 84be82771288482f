"""From a NetworkX graph to a run, to answers, to RDF or Neo4j's CSV, and back to facts: bit by bit the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow.parquet as pq
import pytest

import unkgcp
from tests.worlds import facts_of, learnable_graph, random_model
from unkgcp.cli import main
from unkgcp.graph import Graph
from unkgcp.predict.stream import answer_file
from unkgcp.run import Predictor, calibrate
from unkgcp.run.provenance import describe, reload
from unkgcp.tabular.writer import FORMATS, Style

EX = {"ex": "http://example.org/"}
ENDINGS = {"turtle": "ttl", "ntriples": "nt", "ntriples-star": "nt", "neo4j": "csv"}


@pytest.fixture(scope="module")
def network() -> nx.MultiDiGraph:
    """With repeated triples, and labels that are IRIs, prefixed names and plain text."""
    graph = learnable_graph(400, entities=20)
    shapes = ("ex:e{}", "http://example.com/{}", "entity {}")
    names = [shapes[place % 3].format(place) for place in range(graph.n_entities)]
    found = nx.MultiDiGraph()
    for head, relation, tail, confidence in zip(
        graph.head, graph.relation, graph.tail, graph.confidence, strict=True
    ):
        found.add_edge(names[head], names[tail], relation=f"ex:r{relation}", confidence=float(confidence))
    return found


@pytest.fixture(scope="module")
def facts(network: nx.MultiDiGraph) -> Graph:
    return unkgcp.graph_from(network)


@pytest.fixture(scope="module")
def run(facts: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    splits = facts.split(calibration=0.4, test=0.2, seed=0)
    folder = tmp_path_factory.mktemp("round-trip") / "run"
    calibrate(random_model(facts.vocabulary), splits.calibration).save(folder)
    return folder


def answers(run: Path, facts: Graph, folder: Path, format: str) -> Path:
    queries, target = folder / "queries.parquet", folder / f"answers.{ENDINGS.get(format, format)}"
    pq.write_table(facts.table().select(["head", "relation", "tail"]), queries)
    style = Style(format=format, prefixes=EX)
    assert answer_file(Predictor.load(run), str(queries), str(target), 0.9, style=style) == len(facts)
    return target


@pytest.mark.parametrize("format", FORMATS)
def test_facts_and_confidences_of_answers_come_back(format, run, facts, tmp_path):
    if format == "turtle":
        pytest.importorskip("pyoxigraph")
    again = unkgcp.read(answers(run, facts, tmp_path, format), prefixes=EX)
    result = Predictor.load(run).interval(facts, confidence=0.9)
    assert [fact[:3] for fact in facts_of(again)] == [fact[:3] for fact in facts_of(facts)]
    assert result.score.dtype == np.float32
    if format in ("tsv", "csv"):  # which have the shortest digits of 32 bits
        assert again.confidence.astype(np.float32).tobytes() == result.score.tobytes()
    else:
        assert again.confidence.tobytes() == result.score.astype(np.float64).tobytes()


@pytest.mark.parametrize("format", ["turtle", "ntriples"])
def test_all_columns_are_told(format, run, facts, tmp_path):
    oxigraph = pytest.importorskip("pyoxigraph")
    path = answers(run, facts[:50], tmp_path, format)
    told: dict[str, dict[str, str]] = {}
    for quad in oxigraph.parse(path=path):
        if quad.predicate.value.startswith("urn:unkgcp:column:"):
            told.setdefault(str(quad.subject), {})[quad.predicate.value.split(":")[-1]] = quad.object.value
    table = Predictor.load(run).interval(facts[:50], confidence=0.9).to_arrow()
    assert {name for row in told.values() for name in row} == {"score", "lower", "upper", "status"}
    numbers = ("score", "lower", "upper")
    rows = sorted(tuple(float(row[name]) for name in numbers) for row in told.values())
    assert rows == sorted(zip(*(table[name].to_pylist() for name in numbers), strict=True))
    assert {row["status"] for row in told.values()} == {"ok"}


def test_a_run_remembers_the_prefixes_of_its_data(facts, run, tmp_path):
    """So its answers have the IRIs that were read, although nobody names the prefixes again."""
    unkgcp.write(facts, tmp_path / "facts.nt", prefixes=EX)
    dataset = unkgcp.load_dataset(tmp_path / "facts.nt", prefixes=EX)
    record = describe(str(tmp_path / "facts.nt"), dataset, 0, {"prefixes": EX})
    replace(Predictor.load(run), provenance={"data": record}).save(tmp_path / "run")
    for target in ("answers.nt", "answers.parquet"):
        with pytest.raises(SystemExit) as ended:
            main(["predict", str(tmp_path / "run"), str(tmp_path / "facts.nt"), "-o", str(tmp_path / target)])
        assert ended.value.code == 0
    again = unkgcp.read(tmp_path / "answers.nt", prefixes=EX)
    table = pq.read_table(tmp_path / "answers.parquet")
    assert {fact[:3] for fact in facts_of(again)} == {fact[:3] for fact in facts_of(facts)}
    assert again.confidence.tolist() == table["score"].to_pylist()
    assert reload(record, "run").splits.test.vocabulary == dataset.splits.test.vocabulary
