"""RDF: terms and labels stand for each other, statements and their confidences are found in every spelling of them,
what is wrong is one sentence with the line, and what is written is read back bit by bit."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import facts_of, graph_of, written
from unkgcp.errors import InputError
from unkgcp.graph import Graph, load_dataset, query_batches, read, write
from unkgcp.tabular import delimited
from unkgcp.tabular.rdf_text import Prefixes, lines_of, parse

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

CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"])
PLAIN_TEXT = st.text(CHARACTERS, min_size=1, max_size=12)
TERMS = st.one_of(
    st.text(st.sampled_from("abz09._~%2FéЖ:#?/-"), max_size=10).map(
        lambda rest: f"<http://example.org/{rest}>"
    ),
    st.text(st.sampled_from("ab%2FC3é:"), max_size=8).map(lambda rest: f"<urn:unkgcp:label:{rest}>"),
    st.text(st.sampled_from("ab:."), max_size=5).map(lambda rest: f"<concept:{rest}>"),
    st.from_regex(r"\A_:[a-z0-9]{1,6}\Z"),
    st.text(st.sampled_from("ab <>:@^é"), max_size=8).map(lambda text: f'"{text}"@en-GB'),
    st.text(st.sampled_from("ab <>:@^é"), max_size=8).map(
        lambda text: f'"{text}"^^<http://example.org/type>'
    ),
)


@settings(max_examples=80, deadline=None)
@given(terms=st.lists(TERMS, min_size=1, max_size=8))
def test_the_same_term_comes_back(terms):
    names = Prefixes({"ex": "http://example.org/", "exa": "http://example.org/a"})
    labels = names.labels(pa.array(terms))
    assert names.terms(labels).to_pylist() == terms
    distinct = dict(zip(terms, labels.to_pylist(), strict=True))
    assert len(set(distinct.values())) == len(distinct)


@settings(max_examples=80, deadline=None)
@given(labels=st.lists(PLAIN_TEXT, min_size=1, max_size=8))
def test_labels_of_any_file_come_back(labels):
    names = Prefixes()
    labels = [label for label in labels if ":" not in label and not label.startswith('"')]
    terms = names.terms(pa.array(labels, pa.string()))
    assert names.labels(terms).to_pylist() == labels
    data = "".join(f"{term} <a:b> {term} .\n" for term in terms.to_pylist()).encode()
    assert len(parse(pa.py_buffer(data), "ntriples").plain) == len(labels)  # all of them are IRIs


def test_terms_that_are_spelt_in_two_ways_have_one_label():
    names = Prefixes()
    pairs = [
        ("<http://x/\\u00e9>", "<http://x/é>"),
        ('"a\\u0062\\U00000063"', '"abc"'),
        ('"abc"^^<http://www.w3.org/2001/XMLSchema#string>', '"abc"'),
        ('"tab\\u0009"', '"tab\\t"'),
        ('"it\\\'s"', '"it\'s"'),
    ]
    for one, other in pairs:
        assert names.labels(pa.array([one])) == names.labels(pa.array([other]))
    assert names.labels(pa.array(["<http://x/\\u0020>"])).to_pylist() == ["<http://x/\\u0020>"]


def test_prefixes_and_labels_that_cannot_be():
    with pytest.raises(InputError, match="prefix 'foo', which has no IRI: name it with --prefix foo=IRI"):
        Prefixes().terms(pa.array(["foo:bar"]))
    with pytest.raises(InputError, match="is a literal"):
        Prefixes().terms(pa.array(['"Rome"@it']), tails=False)
    for wrong in ({"ex": "nothing"}, {"http": "http://x/"}, {"a b": "http://x/"}, {"a": "x:y", "b": "x:y"}):
        with pytest.raises(InputError, match="prefix"):
            Prefixes(wrong)


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
    graphs = "".join(
        line.replace(" .\n", f" {iri('graph')} .\n") if line.endswith(" .\n") else line
        for line in text.splitlines(keepends=True)
    )
    assert facts(written(tmp_path / "f.nq", graphs)) == expected


def test_turtle(tmp_path):
    pytest.importorskip("pyoxigraph")
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
    assert "--skip-missing" in str(error.value)
    assert "--default-confidence" in str(error.value)
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
BAD = {
    "no dot": (GOOD + "<http://a> <http://b> <http://c>\n", "line 2 does not end in a dot"),
    "no statement": (GOOD * 3 + "nonsense .\n", "line 4 is no statement of N-Triples"),
    "a relative IRI": (GOOD + "<a> <http://b> <http://c> .\n", "line 2 is no statement"),
    "a literal as subject": (GOOD + '"a" <http://b> <http://c> .\n', "line 2 is no statement"),
    "a graph": (GOOD + GOOD.replace(" .\n", " <http://g> .\n"), "line 2 names a graph"),
    "a quoted object": (
        f"{iri('a')} {iri('says')} << {iri('a')} {iri('r')} {iri('b')} >> .\n",
        "as its object",
    ),
    "Latin-1": (GOOD.encode() + b'<http://a> <http://b> "\xe9" .\n', "line 2 is not valid UTF-8"),
    "no number": (GOOD + star("a", "r", "c", "high"), 'line 2 has \'"high"'),
    "no literal": (
        GOOD + GOOD.replace(f'"0.5"{DOUBLE}', iri("high")),
        "line 2 has 'http://example.org/high'",
    ),
    "above one": (GOOD + star("a", "r", "c", 1.5), "line 2 has the confidence 1.5, outside [0, 1]"),
    "NaN": (GOOD + star("a", "r", "c", "NaN"), "line 2 has the confidence nan"),
    "two predicates": (GOOD + star("a", "r", "c", 0.5, by="score"), "may both tell the confidence"),
    "no confidence at all": (plain("a", "r", "b"), "has no statement with a confidence"),
    "a NUL": (GOOD + GOOD.replace(iri("b"), '"\\u0000"'), "line 2 has a NUL byte"),
    "two confidences": (
        f"_:n <{RDF}reifies> <<( {iri('a')} {iri('r')} {iri('b')} )>> .\n"
        f'_:n {iri("confidence")} "0.5" .\n_:n {iri("confidence")} "0.75" .\n',
        "line 3 has two confidences for the statement _:n",
    ),
    "half a statement": (
        GOOD + f'_:n <{RDF}subject> {iri("a")} .\n_:n {iri("confidence")} "0.5" .\n',
        "for the statement _:n",
    ),
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
    with pytest.raises(InputError, match="line 103 is no statement"):
        read(path)


def test_without_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyoxigraph", None)
    with pytest.raises(ImportError, match=r"pip install 'unkgcp\[rdf\]'"):
        read(written(tmp_path / "f.ttl", "<a:b> <a:b> <a:b> .\n"))
    assert len(read(written(tmp_path / "f.nt", GOOD))) == 1


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


# writing

ROWS = [
    ("a b", "lives in", '"x \\"y\\" >> ."@en', 0.1 + 0.2),
    ("a b", "r", "http://x/c", 5e-324),
    ("a b", "r", "http://x/c", 1.0),  # the same triple with another confidence
    ("ex:Zürich", "r", "_:node", 0.0),
    ("<unk>", "%", "line\nend\t", 0.9999999999999998),
]
WRITTEN = [(".nt", None), (".nt.gz", None), (".nt", "ntriples-star"), (".ttl", None), (".csv", "neo4j")]


def same(one: Graph, other: Graph) -> bool:
    return facts_of(one) == facts_of(other) and one.confidence.tobytes() == other.confidence.tobytes()


@pytest.mark.parametrize(("ending", "format"), WRITTEN)
def test_what_is_written_is_read_back(ending, format, tmp_path):
    if ending == ".ttl":
        pytest.importorskip("pyoxigraph")
    path = tmp_path / f"facts{ending}"
    write(graph_of(ROWS), path, format=format, prefixes=EX)
    assert same(read(path, prefixes=EX), graph_of(ROWS))


@pytest.mark.parametrize("ending", [".nt", ".ttl"])
def test_others_read_what_is_written(ending, tmp_path):
    """pyoxigraph, which knows RDF 1.2, finds the same triples and numbers."""
    oxigraph = pytest.importorskip("pyoxigraph")
    path = tmp_path / f"facts{ending}"
    write(graph_of(ROWS), path, prefixes=EX)
    reified, told = {}, {}
    for quad in oxigraph.parse(path=path):
        (reified if quad.predicate.value == f"{RDF}reifies" else told)[str(quad.subject)] = quad.object
    found = sorted((str(reified[node]), float(told[node].value)) for node in reified)
    terms = [Prefixes(EX).terms(pa.array([row[place] for row in ROWS])).to_pylist() for place in range(3)]
    expected = [" ".join(triple) for triple in zip(*terms, strict=True)]
    assert found == sorted(zip(expected, (row[3] for row in ROWS), strict=True))


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    for row in [('"Rome"@it', "r", "b", 0.5), ("foo:a", "r", "b", 0.5), ("_:unkgcp-row-0", "r", "b", 0.5)]:
        with pytest.raises(InputError):
            write(graph_of([*ROWS[:2], row]), tmp_path / "facts.nt")
    with pytest.raises(InputError, match="'xml' is none of"):
        write(graph_of(ROWS), tmp_path / "facts.nt", format="xml")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_rdf_files_is_a_data_set(tmp_path):
    for part, number in (("train", 8), ("val", 4), ("test", 4)):
        text = "".join(star(f"e{i % 3}", "r", f"e{i % 5}", i / 8) for i in range(number))
        (tmp_path / f"{part}.nt.gz").write_bytes(gzip.compress(text.encode()))
    splits = load_dataset(tmp_path, prefixes={"": "http://example.org/"}).splits
    assert [len(part) for part in (splits.train, splits.calibration, splits.test)] == [8, 4, 4]
    assert splits.train.vocabulary.entities.to_pylist() == ["e0", "e1", "e2", "e3", "e4"]


def test_lines_end_as_they_may():
    assert lines_of(pa.py_buffer(b"a\nb\r\nc")).to_pylist() == ["a\n", "b\r\n", "c"]
