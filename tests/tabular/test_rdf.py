"""RDF: terms and labels stand for each other, statements and their confidences are found in every spelling of them,
what is wrong is one sentence with the line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.worlds import facts_of, written
from unkgcp.errors import InputError
from unkgcp.graph import load_dataset, query_batches, read
from unkgcp.tabular import delimited
from unkgcp.tabular.rdf import Labels

pytest.importorskip("pyoxigraph")

EX = {"ex": "http://example.org/"}
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
DOUBLE = "^^<http://www.w3.org/2001/XMLSchema#double>"


def iri(name: str) -> str:
    return f"<http://example.org/{name}>"


def star(s: str, p: str, o: str, confidence: object, by: str = "confidence") -> str:
    return f'<< {iri(s)} {iri(p)} {iri(o)} >> {iri(by)} "{confidence}"{DOUBLE} .\n'


def plain(s: str, p: str, o: str) -> str:
    return f"{iri(s)} {iri(p)} {iri(o)} .\n"


def facts(path: Path, **options) -> list[tuple[str, str, str, float]]:
    return facts_of(read(path, **{"prefixes": EX, **options}))


# terms and labels


@pytest.mark.parametrize(
    ("term", "label"),
    [
        ("<http://example.org/x>", "ex:x"),
        ("<http://example.org/abc>", "exa:bc"),
        ("<http://example.org/>", "http://example.org/"),
        ("<http://x/\\u00e9>", "http://x/é"),
        ("<concept:athlete>", "<concept:athlete>"),
        ("<urn:unkgcp:label:lives%20in>", "lives in"),
        ("<urn:unkgcp:label:_%3Aa>", "urn:unkgcp:label:_%3Aa"),
        ("_:y.z", "_:y.z"),
        ('"Rome"@it', '"Rome"@it'),
        ('"a\\u0062\\t"^^<http://www.w3.org/2001/XMLSchema#string>', '"ab\\t"'),
        ('"1"^^<http://example.org/type>', '"1"^^<http://example.org/type>'),
    ],
)
def test_each_term_has_one_label(term, label, tmp_path):
    path = written(tmp_path / "q.nt", f"<a:a> <a:b> {term} .\n")
    prefixes = {"ex": "http://example.org/", "exa": "http://example.org/a"}
    assert next(query_batches(path, prefixes=prefixes)).column("tail").to_pylist() == [label]


def test_prefixes_that_cannot_be():
    for wrong in ({"ex": "nothing"}, {"http": "http://x/"}, {"a b": "http://x/"}, {"a": "x:y", "b": "x:y"}):
        with pytest.raises(InputError, match="prefix"):
            Labels(wrong)


# statements and their confidences


def test_every_way_to_say_a_confidence(tmp_path):
    text = (
        f"# a comment\n\n{star('a', 'r', 'b', 0.5)}"
        f"{iri('a')}{iri('r')}{iri('b')}.\r\n"  # blanks may be left out; asserted as well, which adds nothing
        f"_:x <{RDF}reifies> <<( {iri('b')} {iri('r')} _:y.z )>> . # behind a dot\n"
        f'_:x {iri("confidence")} "25e-2" .\n_:x {iri("source")} {iri("book")} .\n'
        f'_:s <{RDF}object> "Rome, <<( \\"x\\" )>> ."@it .\n_:s <{RDF}type> <{RDF}Statement> .\n'
        f"_:s <{RDF}subject> {iri('c')} .\n_:s <{RDF}predicate> {iri('r')} .\n"
        f'_:s {iri("confidence")} "+1"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'
    )
    expected = [
        ("ex:a", "ex:r", "ex:b", 0.5),
        ("ex:b", "ex:r", "_:y.z", 0.25),
        ("ex:c", "ex:r", '"Rome, <<( \\"x\\" )>> ."@it', 1.0),
    ]
    assert facts(written(tmp_path / "f.nt", text)) == expected
    assert facts(written(tmp_path / "f.nt.gz", text)) == expected
    # N-Quads has no RDF-star; each statement names a graph
    text = text.replace(star("a", "r", "b", 0.5), "").replace(" .\n", f" {iri('graph')} .\n")
    assert facts(written(tmp_path / "f.nq", text), default_confidence=0.5) == [*expected[1:], expected[0]]


def test_turtle(tmp_path):
    text = (
        f"@prefix ex: <http://example.org/> .\n@prefix rdf: <{RDF}> .\n"
        "<< ex:a ex:r ex:b >> ex:confidence 0.5 ; ex:source ex:book .\n"
        'ex:b ex:r "Rome"@it {| ex:confidence 0.25 |} .\n'
        "[] rdf:subject ex:c ; rdf:predicate ex:r ; rdf:object [] ; ex:confidence 1e0 .\n"
    )
    path = written(tmp_path / "f.ttl", text)
    expected = [
        ("ex:a", "ex:r", "ex:b", 0.5),
        ("ex:b", "ex:r", '"Rome"@it', 0.25),
        ("ex:c", "ex:r", "_:unnamed3", 1.0),
    ]
    assert facts(path) == expected
    assert facts(path) == facts(written(tmp_path / "without-ending", text))  # twice the same names
    with pytest.raises(InputError, match=r"f.ttl, line 6 is no Turtle \(.*\): correct it"):
        read(written(path, text + "ex:x ex:y .\n"))


def test_lines_of_one_statement_may_stand_far_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 256)
    rng = np.random.default_rng(0)
    lines = []
    for i in range(60):
        lines.append(f"_:n{i} <{RDF}reifies> <<( {iri(f'a{i}')} {iri('r')} {iri('b')} )>> .\n")
        lines.append(f'_:n{i} {iri("confidence")} "{i / 64}" .\n')
        lines.append(f"_:n{i} {iri('source')} {iri('book')} .\n")
        lines.append(plain(f"a{i}", "r", "b"))
    lines = [lines[place] for place in rng.permutation(len(lines))]
    found = facts(written(tmp_path / "f.nt", "".join(lines)))
    assert sorted(found) == sorted((f"ex:a{i}", "ex:r", "ex:b", i / 64) for i in range(60))


def test_labels_of_statements_that_are_no_facts_get_no_id(tmp_path):
    text = star("a", "r", "b", 0.5) + plain("x", "y", "z") + f"_:n <{RDF}type> <{RDF}Statement> .\n"
    graph = read(written(tmp_path / "f.nt", text), skip_missing=True, prefixes=EX)
    assert graph.vocabulary.entities.to_pylist() == ["ex:a", "ex:b"]


def test_statements_without_a_confidence(tmp_path):
    text = star("a", "r", "b", 0.5) + plain("a", "r", "c") + plain("a", "r", "d") + plain("a", "r", "d")
    text += f"_:n <{RDF}reifies> <<( {iri('a')} {iri('r')} {iri('e')} )>> .\n"
    path = written(tmp_path / "f.nt", text)
    with pytest.raises(InputError) as error:
        facts(path)
    assert "the statement ex:a ex:r ex:c, nor have 2 others: add it" in str(error.value)
    assert "skip_missing" in str(error.value)
    assert "default_confidence" in str(error.value)
    assert facts(path, skip_missing=True) == [("ex:a", "ex:r", "ex:b", 0.5)]
    assert facts(path, default_confidence=0.125) == [
        ("ex:a", "ex:r", tail, confidence)
        for tail, confidence in (("ex:b", 0.5), ("ex:c", 0.125), ("ex:d", 0.125), ("ex:e", 0.125))
    ]


def test_the_predicate_of_the_confidence(tmp_path):
    text = star("a", "r", "b", 0.5, by="score") + star("a", "r", "c", 0.25, by="trust")
    path = written(tmp_path / "f.nt", text)
    assert facts(path, skip_missing=True) == [("ex:a", "ex:r", "ex:b", 0.5)]
    for name in ("http://example.org/trust", "<http://example.org/trust>", "ex:trust"):
        found = facts(path, skip_missing=True, confidence_predicates=[name])
        assert found == [("ex:a", "ex:r", "ex:c", 0.25)]
    assert len(facts(path, confidence_predicates=["ex:trust", "ex:score"])) == 2
    tsv = written(tmp_path / "f.tsv", "a\tr\tb\t0.5\n")
    with pytest.raises(InputError, match="for RDF"):
        read(tsv, confidence_predicates=["ex:trust"])


GOOD = star("a", "r", "b", 0.5)
REIFIED = f"_:n <{RDF}reifies> <<( {iri('a')} {iri('r')} {iri('b')} )>> .\n"
BAD = {
    "no dot": (GOOD + "<http://a> <http://b> <http://c>\n", "line 2 is no N-Triples"),
    "no statement": (GOOD * 3 + "nonsense .\n" + GOOD, "line 4 is no N-Triples"),
    "a relative IRI": (GOOD + "<a> <http://b> <http://c> .\n", "line 2 is no N-Triples"),
    "a graph": (GOOD + GOOD.replace(" .\n", " <http://g> .\n"), "line 2 is no N-Triples"),
    "Latin-1": (GOOD.encode() + b'<http://a> <http://b> "\xe9" .\n', "line 2 is no N-Triples (Invalid UTF-8"),
    "no number": (GOOD + star("a", "r", "c", "high"), 'line 2 has \'"high"'),
    "no literal": (
        GOOD + GOOD.replace(f'"0.5"{DOUBLE}', iri("high")),
        "line 2 has 'http://example.org/high'",
    ),
    "above one": (GOOD + star("a", "r", "c", 1.5), "line 2 has the confidence 1.5, outside [0, 1]"),
    "NaN": (GOOD + star("a", "r", "c", "NaN"), "line 2 has the confidence nan"),
    "two predicates": (GOOD + star("a", "r", "c", 0.5, by="score"), "may both tell the confidence"),
    "no confidence at all": (plain("a", "r", "b"), "has no statement with a confidence"),
    "a long literal": (
        GOOD + GOOD.replace(iri("b"), f'"{"x" * 70_000}"'),
        "line 2 has a tail of more than 64 KiB",
    ),
    "two confidences": (
        REIFIED + f'_:n {iri("confidence")} "0.5" .\n_:n {iri("confidence")} "0.75" .\n',
        "line 3 has two confidences for the statement _:n",
    ),
    "half a statement": (
        GOOD + f'_:n <{RDF}subject> {iri("a")} .\n_:n {iri("confidence")} "0.5" .\n',
        "describes the statement _:n, which lacks",
    ),
    "two subjects": (REIFIED + f"_:n <{RDF}subject> {iri('c')} .\n", "line 2 has two times rdf:subject"),
    "nothing": ("# only a comment\n", "holds no facts"),
}


@pytest.mark.parametrize("case", BAD)
def test_one_sentence(case, tmp_path):
    text, expected = BAD[case]
    with pytest.raises(InputError) as error:
        read(written(tmp_path / "f.nt", text))
    assert expected in str(error.value)
    assert "f.nt" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_bad_line_far_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 512)
    path = written(tmp_path / "f.nt", "\n# first\n" + GOOD * 100 + "nonsense .\n" + GOOD * 100)
    with pytest.raises(InputError, match="line 103 is no N-Triples"):
        read(path)


def test_without_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyoxigraph", None)
    with pytest.raises(ImportError, match=r"pip install pyoxigraph"):
        read(written(tmp_path / "f.ttl", "<a:b> <a:b> <a:b> .\n"))


# queries


def test_queries_are_the_statements_quoted_or_not(tmp_path):
    text = (
        plain("a", "r", "b")
        + star("a", "r", "b", 0.5)
        + star("a", "r", "b", 0.7, by="upper")
        + f"_:n <{RDF}reifies> <<( {iri('c')} {iri('r')} {iri('d')} )>> .\n"
        + f'_:n {iri("confidence")} "0.5" .\n_:n {iri("source")} {iri("book")} .\n'
        + plain("a", "r", "b")
    )
    batches = list(query_batches(written(tmp_path / "q.nt", text), prefixes=EX))
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert rows == [("ex:a", "ex:r", "ex:b"), ("ex:c", "ex:r", "ex:d"), ("ex:a", "ex:r", "ex:b")]


def test_a_folder_of_rdf_files_is_a_data_set(tmp_path):
    for part, number in (("train", 8), ("val", 4), ("test", 4)):
        text = "".join(star(f"e{i % 3}", "r", f"e{i % 5}", i / 8) for i in range(number))
        (tmp_path / f"{part}.nt.gz").write_bytes(gzip.compress(text.encode()))
    splits = load_dataset(tmp_path, prefixes={"": "http://example.org/"}).splits
    assert [len(part) for part in (splits.train, splits.calibration, splits.test)] == [8, 4, 4]
    assert splits.train.vocabulary.entities.to_pylist() == ["e0", "e1", "e2", "e3", "e4"]
