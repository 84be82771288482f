"""Graphs made of Python objects, and back: the same facts; what is wrong with an object is one sentence."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest

import unkgcp
from tests.worlds import facts_of, graph_of, learnable_graph
from unkgcp.errors import InputError
from unkgcp.graph import Graph, load_dataset, read

ROWS = [("a", "r", "b", 0.300000001), ("b", "s", "a", 0.25), ("a", "r", "b", 0.75), ("c", "r", "c", 1.0)]
"""With a repeated triple, a self-loop and a confidence that needs all its digits."""

FORMS = {
    "rows": lambda graph: iter(facts_of(graph)),
    "dictionaries": lambda graph: graph.table().to_pylist(),
    "columns": lambda graph: graph.table().to_pydict(),
    "arrow": Graph.table,
    "batch": lambda graph: graph.table().combine_chunks().to_batches()[0],
    "pandas": Graph.to_pandas,
    "polars": Graph.to_polars,
}


@pytest.mark.parametrize("form", FORMS)
def test_there_and_back(form):
    graph = graph_of(ROWS)
    again = read(FORMS[form](graph))
    assert facts_of(again) == ROWS
    assert again.vocabulary == graph.vocabulary
    assert again.confidence.tobytes() == graph.confidence.tobytes()


def test_a_networkx_graph_keeps_every_fact():
    graph = graph_of(ROWS)
    network = graph.to_networkx()
    assert isinstance(network, nx.MultiDiGraph)
    assert network.number_of_edges() == len(ROWS)
    assert Counter(facts_of(read(network))) == Counter(ROWS)


@pytest.mark.parametrize("form", [Graph.table, Graph.to_pandas, Graph.to_networkx])
def test_intervals_there_and_back(form):
    ends = np.array([[0.1, 0.3], [0.5, 0.5]])
    graph = graph_of(ROWS[:2]).with_ends(ends)
    assert read(form(graph)).ends.tolist() == ends.tolist()


def test_kinds_of_networkx_graphs():
    undirected = nx.Graph()
    undirected.add_edge(1, 2, weight=0.5)
    undirected.add_edge(2, 3, weight=1)
    assert facts_of(read(undirected, relation="linked")) == [
        ("1", "linked", "2", 0.5),
        ("2", "linked", "3", 1.0),
    ]
    directed = nx.DiGraph([("a", "b", {"kind": "likes", "sure": 0.5, "weight": 7})])
    assert facts_of(read(directed, columns=("kind", "sure"))) == [("a", "likes", "b", 0.5)]
    keyed = nx.MultiDiGraph()
    keyed.add_edge("a", "b", key="likes", confidence=0.5)
    keyed.add_edge("a", "b", key="knows", confidence=np.float32(0.25))
    assert facts_of(read(keyed)) == [("a", "likes", "b", 0.5), ("a", "knows", "b", 0.25)]


def test_columns_are_guessed_or_named_and_numbers_scaled():
    frame = pd.DataFrame({"weight": [1, 3], "object": ["b", "c"], "predicate": ["r", "r"], "subject": [7, 8]})
    scale = unkgcp.graph.Scale("minmax", floor=0, cap=4)
    assert facts_of(read(frame, scale=scale)) == [("7", "r", "b", 0.25), ("8", "r", "c", 0.75)]
    odd = pl.DataFrame({"x": ["a"], "y": ["b"], "z": ["r"], "n": [0.5]})
    assert facts_of(read(odd, columns=("x", "z", "y", "n"))) == [("a", "r", "b", 0.5)]
    indexed = pd.DataFrame({"tail": ["b"], "confidence": [0.5]}, index=pd.Index(["a"], name="head"))
    assert facts_of(read(indexed, relation="r")) == [("a", "r", "b", 0.5)]


def test_missing_confidences_are_left_out_or_have_the_default():
    rows = [("a", "r", "b", None), ("a", "r", "c", 0.5)]
    assert facts_of(read(rows, skip_missing=True)) == [("a", "r", "c", 0.5)]
    assert facts_of(read(rows, default_confidence=0.25))[0] == ("a", "r", "b", 0.25)


def edge(**data):
    return nx.DiGraph([("a", "b", data)])


BAD = {
    "nothing": ([], {}, "no facts"),
    "a number": (5, {}, "cannot be made of int"),
    "short rows": ([("a", "b")], {}, "row 1 "),
    "rows of two lengths": ([*ROWS, ("a", "r", "b")], {}, "row 5 "),
    "mixed labels": ([("a", "r", "b", 0.5), (1, "r", "b", 0.5)], {}, "row 2 "),
    "half a character": ([("\ud800", "r", "b", 0.5)], {}, "'\\ud800' holds half of a surrogate pair"),
    "half a character in a column": ({"head": ["\ud800"]}, {}, "holds half of a surrogate pair"),
    "columns of two lengths": ({"head": ["a"], "tail": ["b", "c"]}, {}, "has columns of 1 and of 2 rows"),
    "no label": ([("a", "r", "b", 0.5), ("a", "r", None, 0.5)], {}, "row 2 has an empty tail"),
    "no confidence": ([("a", "r", "b", 0.5), ("a", "r", "b", None)], {}, "row 2 has no confidence"),
    "above one": ([("a", "r", "b", 1.5)], {}, "row 1 has the confidence 1.5"),
    "ends the wrong way": ([("a", "r", "b", 0.5, 0.25)], {}, "row 1 has the lower end 0.5 above"),
    "a format": (ROWS, {"format": "tsv"}, "for files"),
    "both remedies": (ROWS, {"skip_missing": True, "default_confidence": 0.5}, "exclude each other"),
    "a default above one": (ROWS, {"default_confidence": 2.0}, "from 0 to 1"),
    "a frame without names": (pd.DataFrame({"x": [1]}), {}, "no column called head"),
    "labels that are fractions": (
        pd.DataFrame({"head": [0.5], "relation": ["r"], "tail": ["b"], "confidence": [0.5]}),
        {},
        "double in its head column",
    ),
    "no edges": (nx.Graph(), {}, "the NetworkX graph holds no facts"),
    "edges without relation": (edge(weight=0.5), {}, "no attribute called relation"),
    "edges without confidence": (edge(relation="r"), {}, "no column called confidence"),
    "two confidences": (edge(relation="r", weight=0.5, score=0.5), {}, "'weight' and 'score'"),
    "text for confidence": (edge(relation="r", weight="high"), {}, "confidence column 'weight'"),
    "nodes that read alike": (
        nx.Graph([(1, "1", {"weight": 0.5})]),
        {"relation": "r"},
        "nodes 1 and '1'",
    ),
    "an edge without confidence": (
        nx.DiGraph([("a", "b", {"weight": 0.5}), ("b", "c", {})]),
        {"relation": "r"},
        "row 2 has no confidence",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_one_sentence(case):
    data, options, expected = BAD[case]
    with pytest.raises(InputError) as error:
        read(data, **options)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_a_data_set_is_made_of_an_object_as_of_a_file(tmp_path):
    graph = learnable_graph()
    path = tmp_path / "facts.parquet"
    unkgcp.write(graph, path)
    ours, theirs = load_dataset(graph.to_pandas(), seed=3), load_dataset(path, seed=3)
    for part, facts in ours.splits.parts().items():
        assert facts_of(facts) == facts_of(theirs.splits.parts()[part])
    assert list(ours.hashes) == ["facts"]


def test_libraries_are_not_loaded_for_those_who_do_not_use_them():
    code = (
        "import sys, unkgcp; unkgcp.read([('a', 'r', 'b', 0.5)]); "
        "assert not {'polars', 'networkx', 'pyoxigraph', 'fsspec'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
