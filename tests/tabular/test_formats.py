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


class TestString:
    @pytest.mark.parametrize("content", [LINKS, DETAILED, FULL])
    @pytest.mark.parametrize(
        "name", ["9606.protein.links.v11.5.txt", "9606.protein.links.v11.5.txt.gz", "whatever"]
    )
    def test_links(self, content, name, tmp_path):
        assert facts_of(read(written(tmp_path / name, content))) == [
            ("9606.ENSP00000000233", "linked", "9606.ENSP00000379496", 0.155),
            ("9606.ENSP00000000233", "linked", "9606.ENSP00000314067", 0.197),
            ("9606.ENSP00000379496", "linked", "9606.ENSP00000000233", 1.0),
        ]

    def test_actions_have_a_relation_a_mode(self, tmp_path):
        graph = read(written(tmp_path / "9606.protein.actions.v10.5.txt.gz", ACTIONS))
        assert facts_of(graph) == [
            ("9606.ENSP00000000233", "inhibition", "9606.ENSP00000263025", 0.15),
            ("9606.ENSP00000000233", "binding", "9606.ENSP00000263025", 0.194),
            ("9606.ENSP00000263025", "binding", "9606.ENSP00000000233", 0.194),
        ]
        assert graph.vocabulary.relations.to_pylist() == ["inhibition", "binding"]

    def test_older_actions_lack_a_column(self, tmp_path):
        older = "item_id_a\titem_id_b\tmode\taction\ta_is_acting\tscore\nA\tB\tbinding\t\t0\t540\n"
        assert facts_of(read(written(tmp_path / "actions.txt", older))) == [("A", "binding", "B", 0.54)]

    def test_every_score_is_the_nearest_number_to_its_decimal(self, tmp_path):
        lines = "".join(f"A B {score}\n" for score in range(1001))
        graph = read(written(tmp_path / "links.txt", "protein1 protein2 combined_score\n" + lines))
        assert graph.confidence.tolist() == [float(f"{score / 1000:.3f}") for score in range(1001)]

    def test_a_chosen_scale_sees_the_scores_of_the_file(self, tmp_path):
        path = written(tmp_path / "links.txt", LINKS)
        assert read(path, scale=Scale("minmax", floor=0, cap=200)).confidence.tolist() == [0.775, 0.985, 1.0]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (LINKS + "9606.A 9606.B 1001\n", r"line 5 .*1001, outside \[0, 1000\]"),
            (LINKS + "9606.A 9606.B -1\n", "line 5 "),
            (LINKS + "9606.A 9606.B\n", "line 5 has 2 columns, expected 3"),
            (LINKS + "9606.A 9606.B high\n", "line 5 .*'high'"),
            (LINKS + "9606.A  155\n", "line 5 has an empty tail"),
            (LINKS.replace("combined_score", "score"), "line 1 has no column 'combined_score'"),
            (LINKS.splitlines()[0] + "\n", "holds no facts"),
            (ACTIONS + "A\tB\t\t\tf\tf\t100\n", "line 5 has an empty relation"),
            (ACTIONS + "A\tB\tbinding\t\tf\tf\n", "line 5 has 6 columns, expected 7"),
        ],
    )
    def test_malformed(self, content, message, tmp_path):
        with pytest.raises(InputError, match=message):
            read(written(tmp_path / "string.txt", content))


class TestConceptNet:
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

    @pytest.mark.parametrize("name", ["conceptnet-assertions-5.7.0.csv", "assertions.csv.gz", "part_00"])
    def test_weights_on_the_papers_scale(self, name, tmp_path):
        graph = read(written(tmp_path / name, self.DOG + self.TRAP + self.HEAVY))
        assert [fact[:3] for fact in facts_of(graph)] == [
            ("/c/en/dog/n", "/r/IsA", "/c/en/animal"),
            ("/c/fr/chien", "/r/RelatedTo", "/c/en/dog"),
            ("/c/en/cat", "/r/IsA", "/c/en/animal"),
        ]
        expected = 0.1 + 0.9 * np.log(10 * np.array([2.0, 1.0, 3.0])) / np.log(30)
        assert graph.confidence == pytest.approx(expected, abs=1e-9)

    def test_another_range(self, tmp_path):
        path = written(tmp_path / "cn.csv", self.DOG + self.TRAP + self.HEAVY)
        graph = read(path, scale=Scale("log", cap=3.0, low=0.5))
        assert graph.confidence.tolist() == pytest.approx([0.5 + 0.5 * np.log(2) / np.log(3), 0.5, 1.0])

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (assertion("/r/IsA", "/c/en/a", "/c/en/b", '{"weight": 2.0'), "line 4 .*no confidence"),
            (assertion("/r/IsA", "/c/en/a", "/c/en/b", '{"weight": "2"}'), "line 4 .*no confidence"),
            (assertion("/r/IsA", "/c/en/a", "/c/en/b", ""), "line 4 .*no confidence"),
            (
                assertion("/r/IsA", "/c/en/a", "/c/en/b", '{"weight": 1} {"weight": 2}'),
                "line 4 .*no confidence",
            ),
            (assertion("/r/IsA", "/c/en/a", "/c/en/b", {"dataset": "/d/x"}), "line 4 has no confidence"),
            (
                assertion("/r/IsA", "/c/en/a", "/c/en/b", {"weight": -1}),
                "line 4 .*-1, which has no logarithm",
            ),
            (assertion("/r/IsA", "/c/en/a", "/c/en/b", {"weight": 0}), "line 4 .*logarithm"),
            ("/a/x\t/r/IsA\t/c/en/a\t/c/en/b\n", "line 4 has 4 columns, expected 5"),
            (assertion("/r/IsA", "", "/c/en/b", {"weight": 1}), "line 4 has an empty head"),
        ],
    )
    def test_malformed(self, line, message, tmp_path):
        with pytest.raises(InputError, match=message):
            read(written(tmp_path / "cn.csv", self.DOG + self.TRAP + self.HEAVY + line + self.DOG))

    def test_weights_are_those_of_python(self):
        rng = np.random.default_rng(0)
        objects = [{"weight": float(weight), "x": [1, {"y": "}"}]} for weight in rng.random(100)]
        found = weights(pa.array([json.dumps(data) for data in objects]))
        assert found.to_pylist() == [data["weight"] for data in objects]


class TestNell:
    def test_beliefs(self, tmp_path):
        content = NELL_HEADER + "\n"
        content += belief(
            "concept:personasia:michael_berne", "concept:haswikipediaurl", "http://x/y%20z", "710", "0.95"
        )
        content += belief("concept:person:a", "generalizations", "concept:person", "[5, 9]", "[0.9, 0.96875]")
        content += belief("concept:person:b", "concept:knows", "concept:person:a", "[5 9]", "[0.75 0.5]")
        for name in ("NELL.08m.1115.esv.csv", "NELL.08m.1115.esv.csv.gz"):
            assert facts_of(read(written(tmp_path / name, content))) == [
                ("concept:personasia:michael_berne", "concept:haswikipediaurl", "http://x/y%20z", 0.95),
                ("concept:person:a", "generalizations", "concept:person", 0.96875),
                ("concept:person:b", "concept:knows", "concept:person:a", 0.75),
            ]

    def test_beliefs_without_probability(self, tmp_path):
        content = NELL_HEADER + "\n" + belief("a", "r", "b", "1", "0.5") + belief("a", "r", "c", "1", "NaN")
        path = written(tmp_path / "nell.csv", content)
        with pytest.raises(InputError, match=r"line 3 has no confidence \('NaN'\)"):
            read(path)
        assert facts_of(read(path, skip_missing=True)) == [("a", "r", "b", 0.5)]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (belief("a", "r", "b", "1", "high"), "line 2 has 'high', in which there is no confidence"),
            (belief("a", "r", "b", "1", "[0.5, x]"), "line 2 "),
            (belief("a", "r", "b", "1", "1.5"), r"line 2 .*1\.5, outside"),
            (belief("", "r", "b", "1", "0.5"), "line 2 has an empty head"),
            ("a\tr\tb\t1\t0.5\n", "line 2 has 5 columns, expected 13"),
        ],
    )
    def test_malformed(self, line, message, tmp_path):
        with pytest.raises(InputError, match=message):
            read(written(tmp_path / "nell.csv", NELL_HEADER + "\n" + line), skip_missing=True)

    def test_a_header_without_probability(self, tmp_path):
        with pytest.raises(InputError, match="line 1 has no column 'Probability', so this is no NELL"):
            read(written(tmp_path / "nell.csv", "Entity\tRelation\tValue\tOther\na\tr\tb\t0.5\n"))

    def test_lists_of_a_slice(self):
        column = pa.array(["x", "[0.1, 0.2]", "0.5", "", "[0.4 0.3]"]).slice(1)
        assert probabilities(column).to_pylist() == [0.2, 0.5, None, 0.4]


class TestTheNamesOfOthers:
    """Headers of KGTK and of Neo4j, which are plain TSV and CSV otherwise."""

    def test_kgtk(self, tmp_path):
        text = "id\tnode1\tlabel\tnode2\tweight\nE1\tQ42\tP31\tQ5\t0.5\nE2\tQ42\tP1477\t'Doug'@en\t1\n"
        expected = [("Q42", "P31", "Q5", 0.5), ("Q42", "P1477", "'Doug'@en", 1.0)]
        assert facts_of(read(written(tmp_path / "edges.tsv", text))) == expected
        batches = query_batches(written(tmp_path / "edges.tsv", text.replace("\tweight", "\tother")))
        assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == [
            fact[:3] for fact in expected
        ]

    def test_a_label_is_a_relation_of_kgtk_only(self, tmp_path):
        text = "head\trelation\ttail\tlabel\tweight\na\tr\tb\tx\t0.5\n"
        assert facts_of(read(written(tmp_path / "facts.tsv", text))) == [("a", "r", "b", 0.5)]

    @pytest.mark.parametrize(
        "header",
        [
            ":START_ID,:END_ID,:TYPE,since:int,confidence:float",
            "person:START_ID(People),:END_ID(Places),:TYPE,since,weight:double",
            "_start,_end,_type,since,score",
            '":START_ID",":END_ID",":TYPE","since:long","certainty:string"',
        ],
    )
    def test_neo4j(self, header, tmp_path):
        path = written(tmp_path / "relationships.csv", header + '\n1,"2,3",LIVES_IN,1999,0.5\n')
        assert facts_of(read(path)) == [("1", "LIVES_IN", "2,3", 0.5)]

    def test_a_property_that_is_missing(self, tmp_path):
        path = written(tmp_path / "r.csv", ":START_ID,:END_ID,:TYPE,confidence:float\n1,2,A,\n1,3,A,0.5\n")
        with pytest.raises(InputError, match=r"line 2 has no confidence.*skip_missing.*default_confidence"):
            read(path)
        assert [fact[3] for fact in facts_of(read(path, default_confidence=0.25))] == [0.25, 0.5]
        assert len(read(path, skip_missing=True)) == 1


class TestChoosing:
    def test_every_format_can_be_chosen(self, tmp_path):
        examples = {
            "tsv": "a\tr\tb\t0.5\n",
            "csv": "a,r,b,0.5\n",
            "string-links": LINKS,
            "string-actions": ACTIONS,
            "conceptnet": TestConceptNet.DOG,
            "nell": NELL_HEADER + "\n" + belief("a", "r", "b", "1", "0.5"),
        }
        assert set(examples) == set(TEXT_FORMATS)
        assert {*examples, PARQUET, *RDF} == set(NAMES)
        for name, content in examples.items():
            path = written(tmp_path / "file.without.known.ending", content)
            assert len(read(path, format=name)) >= 1
            assert facts_of(read(path)) == facts_of(read(path, format=name))

    def test_a_choice_is_not_doubted(self, tmp_path):
        path = written(tmp_path / "facts.tsv", "a,r,b,0.5\n")
        with pytest.raises(InputError, match="--format csv"):
            read(path)
        assert facts_of(read(path, format="csv")) == [("a", "r", "b", 0.5)]

    def test_known_columns_are_not_to_be_named(self, tmp_path):
        with pytest.raises(InputError, match="whose columns are known"):
            read(written(tmp_path / "links.txt", LINKS), format="string-links", columns=("a", "b", "c", "d"))

    def test_an_unknown_format(self, tmp_path):
        with pytest.raises(InputError, match="'xml' is none of tsv, csv, parquet"):
            read(written(tmp_path / "facts.tsv", "a\tr\tb\t0.5\n"), format="xml")
