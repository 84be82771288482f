"""The files people have: STRING, ConceptNet and NELL, in exactly their layouts, malformed ones included."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tests.worlds import facts_of, written
from unkgcp.errors import InputError
from unkgcp.graph import query_batches, read
from unkgcp.tabular.columns import RDF, Scale
from unkgcp.tabular.formats import NAMES, PARQUET, TEXT_FORMATS, probabilities, weights

LINKS = """\
protein1 protein2 combined_score
9606.ENSP00000000233 9606.ENSP00000379496 155
9606.ENSP00000000233 9606.ENSP00000314067 197
9606.ENSP00000379496 9606.ENSP00000000233 1000
"""
DETAILED = """\
protein1 protein2 neighborhood fusion cooccurence coexpression experimental database textmining combined_score
9606.ENSP00000000233 9606.ENSP00000379496 0 0 0 54 0 0 103 155
9606.ENSP00000000233 9606.ENSP00000314067 0 0 0 0 180 0 61 197
9606.ENSP00000379496 9606.ENSP00000000233 0 0 0 0 0 1000 0 1000
"""
FULL = """\
protein1 protein2 neighborhood neighborhood_transferred fusion cooccurence homology coexpression \
coexpression_transferred experiments experiments_transferred database database_transferred textmining \
textmining_transferred combined_score
9606.ENSP00000000233 9606.ENSP00000379496 0 0 0 0 0 0 54 0 0 0 0 103 85 155
9606.ENSP00000000233 9606.ENSP00000314067 0 0 0 0 0 0 0 0 180 0 0 0 61 197
9606.ENSP00000379496 9606.ENSP00000000233 0 0 0 0 0 0 0 0 0 0 0 0 0 1000
"""
ACTIONS = (
    "item_id_a\titem_id_b\tmode\taction\tis_directional\ta_is_acting\tscore\n"
    "9606.ENSP00000000233\t9606.ENSP00000263025\tinhibition\tinhibition\tf\tt\t150\n"
    "9606.ENSP00000000233\t9606.ENSP00000263025\tbinding\t\tf\tf\t194\n"
    "9606.ENSP00000263025\t9606.ENSP00000000233\tbinding\t\tf\tf\t194\n"
)
NELL_HEADER = "\t".join(
    [
        "Entity",
        "Relation",
        "Value",
        "Iteration of Promotion",
        "Probability",
        "Source",
        "Entity literalStrings",
        "Value literalStrings",
        "Best Entity literalString",
        "Best Value literalString",
        "Categories for Entity",
        "Categories for Value",
        "Candidate Source",
    ]
)


def assertion(relation: str, start: str, end: str, data: object) -> str:
    """One line of ConceptNet's assertions file."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"/a/[{relation}/,{start}/,{end}/]\t{relation}\t{start}\t{end}\t{text}\n"


def belief(entity: str, relation: str, value: str, iteration: str, probability: str) -> str:
    """One line of NELL's file: thirteen columns, quotation marks and all."""
    source = (
        "MBL-Iter%3A710-2013%2F03%2F13-12%3A17%3A37-From+ErrorBasedIntegrator+%28AliasMatcher%28%2C%29%29"
    )
    rest = [
        source,
        '"Michael Berne" ',
        '"http://x" ',
        "Michael Berne",
        "http://x",
        "",
        "concept:person",
        "%5BAlias",
    ]
    return "\t".join([entity, relation, value, iteration, probability, *rest]) + "\n"


DOG = assertion(
    "/r/IsA",
    "/c/en/dog/n",
    "/c/en/animal",
    {
        "dataset": "/d/conceptnet/4/en",
        "license": "cc:by/4.0",
        "sources": [{"contributor": "/s/x"}],
        "weight": 2.0,
    },
)
# a weight within a text or within a source is none of the assertion's
TRAP = assertion(
    "/r/RelatedTo",
    "/c/fr/chien",
    "/c/en/dog",
    {"sources": [{"weight": 9}], "surfaceText": 'a "weight": 5, é', "weight": 1.0, "dataset": "/d/x"},
)
HEAVY = assertion("/r/IsA", "/c/en/cat", "/c/en/animal", {"weight": 22.891})
CONCEPTS = [
    ("/c/en/dog/n", "/r/IsA", "/c/en/animal"),
    ("/c/fr/chien", "/r/RelatedTo", "/c/en/dog"),
    ("/c/en/cat", "/r/IsA", "/c/en/animal"),
]
LOGARITHMS = 0.1 + 0.9 * np.log(10 * np.array([2.0, 1.0, 3.0])) / np.log(30)


def concepts(confidences: object) -> list[tuple[str, str, str, float]]:
    return [(*triple, confidence) for triple, confidence in zip(CONCEPTS, confidences, strict=True)]


PROTEINS = [f"9606.ENSP00000{number}" for number in ("000233", "379496", "314067", "263025")]
OF_LINKS = [
    (PROTEINS[0], "linked", PROTEINS[1], 0.155),
    (PROTEINS[0], "linked", PROTEINS[2], 0.197),
    (PROTEINS[1], "linked", PROTEINS[0], 1.0),
]
OF_ACTIONS = [
    (PROTEINS[0], "inhibition", PROTEINS[3], 0.15),
    (PROTEINS[0], "binding", PROTEINS[3], 0.194),
    (PROTEINS[3], "binding", PROTEINS[0], 0.194),
]
BELIEFS = (
    NELL_HEADER
    + "\n"
    + belief("concept:personasia:michael_berne", "concept:haswikipediaurl", "http://x/y%20z", "710", "0.95")
    + belief("concept:person:a", "generalizations", "concept:person", "[5, 9]", "[0.9, 0.96875]")
    + belief("concept:person:b", "concept:knows", "concept:person:a", "[5 9]", "[0.75 0.5]")
)
OF_BELIEFS = [
    ("concept:personasia:michael_berne", "concept:haswikipediaurl", "http://x/y%20z", 0.95),
    ("concept:person:a", "generalizations", "concept:person", 0.96875),
    ("concept:person:b", "concept:knows", "concept:person:a", 0.75),
]
UNSURE = NELL_HEADER + "\n" + belief("a", "r", "b", "1", "0.5") + belief("a", "r", "c", "1", "NaN")
EXPORT = "#node1\tnode2\tnode1_string_id\tcombined_score\nTP53\tMDM2\t9606.ENSP00000269305\t0.999\n"
KGTK = "id\tnode1\tlabel\tnode2\tweight\nE1\tQ42\tP31\tQ5\t0.5\nE2\tQ42\tP1477\t'Doug'@en\t1\n"
OF_KGTK = [("Q42", "P31", "Q5", 0.5), ("Q42", "P1477", "'Doug'@en", 1.0)]
NEO4J = (
    ":START_ID,:END_ID,:TYPE,since:int,confidence:float",
    "person:START_ID(People),:END_ID(Places),:TYPE,since,weight:double",
    "_start,_end,_type,since,score",
    '":START_ID",":END_ID",":TYPE","since:long","certainty:string"',
)
EMPTY = ":START_ID,:END_ID,:TYPE,confidence:float\n1,2,A,\n1,3,A,0.5\n"

READ = {
    "links": ("9606.protein.links.v11.5.txt", LINKS, {}, OF_LINKS),
    "detailed links": ("9606.protein.links.v11.5.txt.gz", DETAILED, {}, OF_LINKS),
    "full links": ("whatever", FULL, {}, OF_LINKS),
    "scores": (
        "links.txt",
        "protein1 protein2 combined_score\n" + "".join(f"A B {score}\n" for score in range(1001)),
        {},
        [("A", "linked", "B", float(f"{score / 1000:.3f}")) for score in range(1001)],
    ),
    "scores on a scale": (
        "links.txt",
        LINKS,
        {"scale": Scale("minmax", floor=0, cap=200)},
        [(*fact[:3], score) for fact, score in zip(OF_LINKS, (0.775, 0.985, 1.0), strict=True)],
    ),
    "actions": ("9606.protein.actions.v10.5.txt.gz", ACTIONS, {}, OF_ACTIONS),
    "older actions": (
        "actions.txt",
        "item_id_a\titem_id_b\tmode\taction\ta_is_acting\tscore\nA\tB\tbinding\t\t0\t540\n",
        {},
        [("A", "binding", "B", 0.54)],
    ),
    "the website's table": ("string_interactions.tsv", EXPORT, {}, [("TP53", "linked", "MDM2", 0.999)]),
    "ConceptNet": ("conceptnet-assertions-5.7.0.csv", DOG + TRAP + HEAVY, {}, concepts(LOGARITHMS)),
    "ConceptNet, packed": ("assertions.csv.gz", DOG + TRAP + HEAVY, {}, concepts(LOGARITHMS)),
    "ConceptNet, a part": ("part_00", DOG + TRAP + HEAVY, {}, concepts(LOGARITHMS)),
    "ConceptNet on another scale": (
        "cn.csv",
        DOG + TRAP + HEAVY,
        {"scale": Scale("log", cap=3.0, low=0.5)},
        concepts([0.5 + 0.5 * np.log(2) / np.log(3), 0.5, 1.0]),
    ),
    "NELL": ("NELL.08m.1115.esv.csv", BELIEFS, {}, OF_BELIEFS),
    "NELL, packed": ("NELL.08m.1115.esv.csv.gz", BELIEFS, {}, OF_BELIEFS),
    "NELL without probability": ("nell.csv", UNSURE, {"skip_missing": True}, [("a", "r", "b", 0.5)]),
    "KGTK": ("edges.tsv", KGTK, {}, OF_KGTK),
    "a label is a relation of KGTK only": (
        "facts.tsv",
        "head\trelation\ttail\tlabel\tweight\na\tr\tb\tx\t0.5\n",
        {},
        [("a", "r", "b", 0.5)],
    ),
    **{
        f"Neo4j {header}": (
            "r.csv",
            header + '\n1,"2,3",LIVES_IN,1999,0.5\n',
            {},
            [("1", "LIVES_IN", "2,3", 0.5)],
        )
        for header in NEO4J
    },
    "Neo4j, the default": (
        "r.csv",
        EMPTY,
        {"default_confidence": 0.25},
        [("1", "A", "2", 0.25), ("1", "A", "3", 0.5)],
    ),
    "Neo4j, skipped": ("r.csv", EMPTY, {"skip_missing": True}, [("1", "A", "3", 0.5)]),
    "a chosen format": ("facts.tsv", "a,r,b,0.5\n", {"format": "csv"}, [("a", "r", "b", 0.5)]),
}


@pytest.mark.parametrize("case", READ)
def test_read(case, tmp_path):
    name, content, options, expected = READ[case]
    found = facts_of(read(written(tmp_path / name, content), **options))
    assert [fact[:3] for fact in found] == [fact[:3] for fact in expected]
    assert [fact[3] for fact in found] == pytest.approx([fact[3] for fact in expected], abs=1e-9)


def edge(head: str, data: object) -> str:
    """After three good ones."""
    return DOG + TRAP + HEAVY + assertion("/r/IsA", head, "/c/en/b", data) + DOG


MALFORMED = [
    (LINKS + "9606.A 9606.B 1001\n", r"line 5 .*1001, outside \[0, 1000\]"),
    (LINKS + "9606.A 9606.B -1\n", "line 5 "),
    (LINKS + "9606.A 9606.B\n", "line 5 has 2 columns, expected 3"),
    (LINKS + "9606.A 9606.B high\n", "line 5 .*'high'"),
    (LINKS + "9606.A  155\n", "line 5 has an empty tail"),
    (LINKS.replace("combined_score", "score"), "line 1 has no column 'combined_score'"),
    (LINKS.splitlines()[0] + "\n", "holds no facts"),
    (ACTIONS + "A\tB\t\t\tf\tf\t100\n", "line 5 has an empty relation"),
    (ACTIONS + "A\tB\tbinding\t\tf\tf\n", "line 5 has 6 columns, expected 7"),
    (edge("/c/en/a", '{"weight": 2.0'), "line 4 .*no confidence"),
    (edge("/c/en/a", '{"weight": "2"}'), "line 4 .*no confidence"),
    (edge("/c/en/a", ""), "line 4 .*no confidence"),
    (edge("/c/en/a", '{"weight": 1} {"weight": 2}'), "line 4 .*no confidence"),
    (edge("/c/en/a", {"dataset": "/d/x"}), "line 4 has no confidence"),
    (edge("/c/en/a", {"weight": -1}), "line 4 .*-1, which has no logarithm"),
    (edge("/c/en/a", {"weight": 0}), "line 4 .*logarithm"),
    (edge("", {"weight": 1}), "line 4 has an empty head"),
    (DOG + TRAP + HEAVY + "/a/x\t/r/IsA\t/c/en/a\t/c/en/b\n", "line 4 has 4 columns, expected 5"),
    (UNSURE, r"line 3 has no confidence \('NaN'\)"),
    (
        NELL_HEADER + "\n" + belief("a", "r", "b", "1", "high"),
        "line 2 has 'high', in which there is no confidence",
    ),
    (NELL_HEADER + "\n" + belief("a", "r", "b", "1", "[0.5, x]"), "line 2 "),
    (NELL_HEADER + "\n" + belief("a", "r", "b", "1", "1.5"), r"line 2 .*1\.5, outside"),
    (NELL_HEADER + "\n" + belief("", "r", "b", "1", "0.5"), "line 2 has an empty head"),
    (NELL_HEADER + "\na\tr\tb\t1\t0.5\n", "line 2 has 5 columns, expected 13"),
    (
        "Entity\tRelation\tValue\tOther\na\tr\tb\t0.5\n",
        "line 1 has no column 'Probability', so this is no NELL",
    ),
    (EMPTY, r"line 2 has no confidence.*skip_missing.*default_confidence"),
]


@pytest.mark.parametrize(("content", "message"), MALFORMED)
def test_malformed(content, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read(written(tmp_path / "file.csv", content))


def test_numbers_are_those_of_python():
    rng = np.random.default_rng(0)
    objects = [{"weight": float(weight), "x": [1, {"y": "}"}]} for weight in rng.random(100)]
    found = weights(pa.array([json.dumps(data) for data in objects]))
    assert found.to_pylist() == [data["weight"] for data in objects]
    column = pa.array(["x", "[0.1, 0.2]", "0.5", "", "[0.4 0.3]"]).slice(1)
    assert probabilities(column).to_pylist() == [0.2, 0.5, None, 0.4]


@pytest.mark.parametrize(
    ("content", "queries"),
    [
        (KGTK.replace("\tweight", "\tother"), [fact[:3] for fact in OF_KGTK]),
        ("protein1 protein2\nA B\n", [("A", "linked", "B")]),
    ],
)
def test_queries_need_no_confidence(tmp_path, content, queries):
    batches = query_batches(written(tmp_path / "edges.tsv", content))
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == queries


def test_every_format_can_be_chosen(tmp_path):
    examples = {
        "tsv": "a\tr\tb\t0.5\n",
        "csv": "a,r,b,0.5\n",
        "string-links": LINKS,
        "string-actions": ACTIONS,
        "string-export": EXPORT,
        "conceptnet": DOG,
        "nell": NELL_HEADER + "\n" + belief("a", "r", "b", "1", "0.5"),
    }
    assert set(examples) == set(TEXT_FORMATS)
    assert {*examples, PARQUET, *RDF} == set(NAMES)
    for name, content in examples.items():
        path = written(tmp_path / "file.without.known.ending", content)
        assert len(read(path, format=name)) >= 1
        assert facts_of(read(path)) == facts_of(read(path, format=name))


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("a,r,b,0.5\n", {}, "--format csv"),
        (LINKS, {"format": "string-links", "columns": ("a", "b", "c", "d")}, "whose columns are known"),
        ("a\tr\tb\t0.5\n", {"format": "xml"}, "'xml' is none of tsv, csv, parquet"),
    ],
)
def test_choices_that_do_not_fit(content, options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read(written(tmp_path / "facts.tsv", content), **options)
