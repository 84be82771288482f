"""Data sets by name, by folder and by file; with UNKGCP_DATA set, the benchmarks' own figures too."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

from tests.worlds import Fact, facts_of
from unkgcp.errors import InputError
from unkgcp.graph import write
from unkgcp.graph.datasets import Dataset, cache_folder, load_dataset, read, search_folders
from unkgcp.graph.demo_graph import infer
from unkgcp.graph.description import describe
from unkgcp.graph.fetching import OFFICIAL, blob_id
from unkgcp.tabular.columns import Scale

TRAIN = "a\tlikes\tb\t0.5\nb\tlikes\tc\t0.25\na\tlikes\tb\t0.75\nc\tknows\tc\t1\n"
VAL = "a\tlikes\tc\t0.5\nb\tknows\ta\t0.5\n"
TEST = "c\tlikes\ta\t0.9\nb\tlikes\tb\t0.8\n"
WITH_NEG = "c\tlikes\ta\t0.9\nb\tlikes\tb\t0.8\r\nc\tlikes\td\t0\na\tlikes\tb\t0.0\r\n"
SOFT = "a\tlikes\tc\t0.9\nc\tlikes\ta\t0.3\nc\tlikes\tc\t0.7\n"


@pytest.fixture(autouse=True)
def no_other_data(monkeypatch, tmp_path_factory):
    """Only what a test puts there is found; tests of the benchmarks ask `published`."""
    monkeypatch.delenv("UNKGCP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def folder_with(folder: Path, **files: str) -> Path:
    """Files named by keyword, `__` standing for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content, newline="")
    return folder


def lines(content: str) -> list[Fact]:
    rows = [line.split("\t") for line in content.split("\n") if line]
    return [(head, relation, tail, float(confidence)) for head, relation, tail, confidence in rows]


def one_vocabulary(dataset: Dataset) -> bool:
    graphs = [*dataset.splits.parts().values(), dataset.negatives, dataset.softlogic]
    return all(graph is None or graph.vocabulary == dataset.splits.train.vocabulary for graph in graphs)


class TestFolders:
    def test_parts_negatives_and_soft_logic(self, tmp_path):
        folder = folder_with(
            tmp_path,
            train__tsv=TRAIN,
            val__tsv=VAL,
            test__tsv=TEST,
            test_with_neg__tsv=WITH_NEG,
            softlogic__tsv=SOFT,
        )
        dataset = load_dataset(folder)
        assert facts_of(dataset.splits.train) == lines(TRAIN)
        assert facts_of(dataset.splits.calibration) == lines(VAL)
        assert facts_of(dataset.splits.test) == lines(TEST)
        assert len(dataset.splits.validation) == 0
        assert facts_of(dataset.negatives) == [("c", "likes", "d", 0.0), ("a", "likes", "b", 0.0)]
        assert facts_of(dataset.softlogic) == lines(SOFT)
        assert dataset.softlogic_for("strict") is dataset.softlogic
        assert dataset.softlogic_held.tolist() == [True, True, False]
        assert facts_of(dataset.softlogic_for("paper")) == [("c", "likes", "c", 0.7)]
        assert one_vocabulary(dataset)
        assert len(dataset.graph) == 8
        assert dataset.hashes["val.tsv"] == hashlib.sha256(VAL.encode()).hexdigest()
        assert set(dataset.hashes) == {path.name for path in folder.iterdir()}
        assert dataset.name == str(folder)
        assert dataset.names is None

    def test_only_the_three_parts_are_needed(self, tmp_path):
        dataset = load_dataset(folder_with(tmp_path, train__tsv=TRAIN, valid__tsv=VAL, test__tsv=TEST))
        assert dataset.negatives is None
        assert dataset.softlogic is None

    def test_parts_may_be_written_in_different_ways(self, tmp_path):
        source = load_dataset(folder_with(tmp_path / "a", **THREE))
        other = tmp_path / "b"
        other.mkdir()
        write(source.splits.train, other / "train.parquet")
        (other / "calibration.tsv.gz").write_bytes(gzip.compress(VAL.encode()))
        write(source.splits.test, other / "test.csv")
        dataset = load_dataset(other)
        for part in ("train", "calibration", "test"):
            assert facts_of(dataset.splits.parts()[part]) == facts_of(source.splits.parts()[part])

    def test_a_validation_slice_comes_out_of_train(self, tmp_path):
        train = "".join(f"x{i}\tr\ty{i}\t0.5\n" for i in range(100))
        folder = folder_with(tmp_path, train__tsv=train, val__tsv=VAL, test__tsv=TEST)
        dataset = load_dataset(folder, validation=0.2, seed=1)
        assert (len(dataset.splits.train), len(dataset.splits.validation)) == (80, 20)
        assert sorted(facts_of(dataset.splits.train) + facts_of(dataset.splits.validation)) == sorted(
            lines(train)
        )

    @pytest.mark.parametrize("kind", ["minmax", "log"])
    def test_a_scale_is_for_facts(self, tmp_path, kind):
        """Zeros stay negatives, and inferred facts are in [0, 1] already."""
        folder = folder_with(
            tmp_path,
            train__tsv="a\tr\tb\t10\nb\tr\tc\t1000\n",
            val__tsv="c\tr\ta\t100\n",
            test__tsv="a\tr\tc\t10\n",
            test_with_neg__tsv="a\tr\tc\t10\na\tr\ta\t0\n",
            softlogic__tsv="b\tr\ta\t0.75\n",
        )
        dataset = load_dataset(folder, scale=Scale(kind, low=0.1))
        assert dataset.splits.train.confidence.tolist() == pytest.approx([0.1, 1.0])
        assert dataset.splits.calibration.confidence[0] == pytest.approx(
            0.55 if kind == "log" else 0.1 + 0.9 / 11
        )
        assert facts_of(dataset.negatives) == [("a", "r", "a", 0.0)]
        assert facts_of(dataset.softlogic) == [("b", "r", "a", 0.75)]


class TestIdsAndNames:
    ENTITIES = "id,entity string\r\n" + "".join(f"{i},{name}\r\n" for i, name in enumerate("abcd"))
    RELATIONS = "rid,relation\r\n0,likes\r\n1,knows\r\n"
    NEGATIVES = "2\t0\t0\t0.9\n2\t0\t3\t0.0\n0\t1\t1\t0\n"

    def test_negatives_by_id_find_the_facts_by_name(self, tmp_path):
        folder = folder_with(
            tmp_path,
            train__tsv=TRAIN,
            val__tsv=VAL,
            test__tsv=TEST,
            test_with_neg__tsv=self.NEGATIVES,
            entity_id__csv=self.ENTITIES,
            relation_id__csv=self.RELATIONS,
        )
        dataset = load_dataset(folder)
        assert facts_of(dataset.negatives) == [("c", "likes", "d", 0.0), ("a", "knows", "b", 0.0)]
        assert one_vocabulary(dataset)
        assert {"entity_id.csv", "relation_id.csv"} <= set(dataset.hashes)

    def test_ids_stay_ids_where_the_facts_use_them_too(self, tmp_path):
        folder = folder_with(
            tmp_path,
            train__tsv="0\t0\t1\t0.5\n1\t1\t2\t0.5\n",
            val__tsv="0\t0\t2\t0.5\n",
            test__tsv="2\t0\t0\t0.9\n",
            test_with_neg__tsv=self.NEGATIVES,
            entity_id__csv=self.ENTITIES,
            relation_id__csv=self.RELATIONS,
        )
        dataset = load_dataset(folder)
        assert facts_of(dataset.negatives) == [("2", "0", "3", 0.0), ("0", "1", "1", 0.0)]
        assert dataset.names is not None
        assert dataset.names.entities["2"] == "c"
        assert dataset.names.relations["1"] == "knows"


THREE = {"train__tsv": TRAIN, "val__tsv": VAL, "test__tsv": TEST}
REFUSED = {
    "no training facts": ({"train__tsv": ""}, {}, "holds no train"),
    "no calibration facts": ({"val__tsv": ""}, {}, "holds no val"),
    "no test facts": ({"test__tsv": ""}, {}, "holds no test"),
    "two files for a part": ({"calibration__csv": VAL}, {}, "holds val.tsv and calibration.csv"),
    "a share": ({}, {"test": 0.2}, "--split cannot be chosen"),
    "a unit": ({}, {"hold_out": "pairs"}, "--hold-out cannot be chosen"),
    "a small slice": ({}, {"validation": 0.01}, ": 4 facts cannot be split"),
    "ids without tables": (
        {"negatives__tsv": TestIdsAndNames.NEGATIVES},
        {},
        "negatives.tsv has no entity in common",
    ),
    "a table that is none": (
        {"entity_id__csv": "id,name\n0,a,b\n", "relation_id__csv": TestIdsAndNames.RELATIONS},
        {},
        "entity_id.csv is no table of ids and names",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_folder_that_will_not_do(case, tmp_path):
    files, options, words = REFUSED[case]
    with pytest.raises(InputError) as error:
        load_dataset(
            folder_with(tmp_path, **{name: text for name, text in {**THREE, **files}.items() if text}),
            **options,
        )
    assert str(tmp_path) in str(error.value) or "--" in words
    assert words in str(error.value)


class TestOneFile:
    CONTENT = "".join(f"x{i}\tr\ty{i % 40}\t{i / 400}\n" for i in range(400))

    def test_it_is_split_by_the_seed(self, tmp_path):
        path = folder_with(tmp_path, facts__tsv=self.CONTENT) / "facts.tsv"
        dataset, again, other = load_dataset(path), load_dataset(path), load_dataset(path, seed=1)
        splits = dataset.splits
        assert (len(splits.train), len(splits.calibration), len(splits.test)) == (340, 28, 32)
        assert sorted(facts_of(dataset.graph)) == sorted(lines(self.CONTENT))
        assert facts_of(splits.test) == facts_of(again.splits.test) != facts_of(other.splits.test)
        assert dataset.hashes == {"facts.tsv": hashlib.sha256(self.CONTENT.encode()).hexdigest()}

    def test_fractions_and_a_validation_slice(self, tmp_path):
        path = folder_with(tmp_path, facts__tsv=self.CONTENT) / "facts.tsv"
        splits = load_dataset(path, calibration=0.1, test=0.2, validation=0.5, hold_out="triples").splits
        assert [len(part) for part in splits.parts().values()] == [140, 140, 40, 80]


class TestNames:
    def test_a_benchmark_is_looked_for_in_three_places_in_order(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("UNKGCP_DATA", str(tmp_path / "variable"))
        places = [tmp_path / "given", tmp_path / "variable", cache_folder()]
        assert search_folders(tmp_path / "given") == places
        (tmp_path / "given" / "ppi5k").mkdir(parents=True)  # passed over while it is empty
        for number, place in reversed(list(enumerate(places))):
            content = TRAIN * (number + 1)
            folder_with(place / "ppi5k", train__tsv=content, val__tsv=VAL, test__tsv=TEST)
            assert len(load_dataset("ppi5k", data_dir=places[0]).splits.train) == 4 * (number + 1)
        assert load_dataset("ppi5k").name == "ppi5k"

    def test_an_absent_benchmark_says_where_it_looked_and_how_to_get_it(self, tmp_path):
        with pytest.raises(InputError) as error:
            load_dataset("nl27k", data_dir=tmp_path)
        sentence = str(error.value)
        assert str(tmp_path) in sentence
        assert str(cache_folder()) in sentence
        assert "$UNKGCP_DATA is not set" in sentence
        assert "unkgcp data fetch nl27k" in sentence
        assert "\n" not in sentence

    def test_half_a_benchmark_and_misspelt_names(self, tmp_path):
        folder_with(tmp_path / "cn15k", train__tsv=TRAIN)
        for name, words in {
            "cn15k": r"holds no val.*unkgcp data fetch cn15k",
            "ppi5": r"ppi5: there is no such file or folder; did you mean ppi5k\?",
            "no/where.tsv": "named data sets are cn15k, nl27k, ppi5k, demo",
        }.items():
            with pytest.raises(InputError, match=words):
                load_dataset(name, data_dir=tmp_path)


class TestDemo:
    def test_the_demo_graph_is_a_data_set(self):
        dataset = load_dataset("demo")
        splits = dataset.splits
        assert len(splits.test) == round(0.08 * len(dataset.graph))
        assert one_vocabulary(dataset)
        assert dataset.negatives is not None
        assert dataset.softlogic is not None
        assert len(dataset.negatives) == len(splits.test)
        assert not np.isin(dataset.negatives.keys, dataset.graph.keys).any()
        conclusions = infer(splits.train)
        np.testing.assert_array_equal(dataset.softlogic.keys, conclusions.keys)
        np.testing.assert_array_equal(dataset.softlogic.confidence, conclusions.confidence)
        assert dataset.softlogic_held.sum() > 0
        assert dataset.hashes == load_dataset("demo", seed=5).hashes, "the seed splits, the graph is the same"
        assert len(read("demo", validation=0.1)) == len(dataset.graph)


class TestBenchmarks:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            (
                "nl27k",
                {
                    "train": 149_100,
                    "calibration": 12_278,
                    "test": 14_034,
                    "entities": 27_221,
                    "relations": 417,
                    "relations_unseen_in_training": 12,
                    "test_rows_in_unseen_relations": 8,
                    "repeated_triples": 0,
                    "test_rows_in_train": 0,
                    "negatives": 14_034,
                    "negatives_that_are_facts": 201,
                    "softlogic_rows_held": 77 + 85,
                },
            ),
            (
                "cn15k",
                {
                    "train": 204_984,
                    "calibration": 16_881,
                    "test": 19_293,
                    "entities": 15_000,
                    "relations": 36,
                    "distinct_triples": 225_376,
                    "repeated_triples": 13_569,
                    "repeated_triples_with_other_confidence": 8_246,
                    "self_loops": 8_206,
                    "calibration_rows_in_train": 1_801,
                    "test_rows_in_train": 2_006,
                    "negatives_that_are_facts": 150,
                },
            ),
            (
                "ppi5k",
                {
                    "train": 230_929,
                    "calibration": 19_017,
                    "test": 21_720,
                    "entities": 4_999,
                    "relations": 7,
                    "distinct_triples": 249_396,
                    "repeated_triples_with_other_confidence": 20_370,
                    "calibration_rows_in_train": 2_590,
                    "test_rows_in_train": 2_971,
                    "negatives_that_are_facts": 1_772,
                    "softlogic_rows_held": 5_018 + 5_887,
                },
            ),
        ],
    )
    def test_figures_are_the_published_ones(self, published, name, expected):
        found = describe(load_dataset(name, data_dir=published(name)))
        assert {key: found[key] for key in expected} == expected

    def test_nl27k_as_published_by_name_is_the_same_data_set(self, published, tmp_path):
        """The official files use names in the facts and ids in the negatives, and DOS line ends."""
        data = published("nl27k")
        source = data / "nl27k"
        dataset = load_dataset("nl27k", data_dir=data)
        assert dataset.names is not None
        entities, relations = dataset.names.entities, dataset.names.relations
        folder = tmp_path / "nl27k"
        folder.mkdir()
        for part in ("train", "val", "test", "softlogic"):
            with (source / f"{part}.tsv").open() as file, (folder / f"{part}.tsv").open("w") as out:
                for line in file:
                    head, relation, tail, confidence = line.split("\t")
                    out.write(f"{entities[head]}\t{relations[relation]}\t{entities[tail]}\t{confidence}")
        dos = {
            "test_with_neg.tsv": (source / "test_with_neg.tsv").read_text(),
            "entity_id.csv": (source / "entity_id.csv").read_text().replace("name", "entity string", 1),
            "relation_id.csv": (source / "relation_id.csv").read_text().replace("id,name", "rid,relation", 1),
        }
        for file, content in dos.items():
            (folder / file).write_text(content, newline="\r\n")
        # all but the training file, which prints confidences differently, are byte for byte the official ones
        for file in (*dos, "val.tsv", "test.tsv", "softlogic.tsv"):
            assert blob_id((folder / file).read_bytes()) == OFFICIAL["nl27k"][file], file
        official = load_dataset("nl27k", data_dir=tmp_path)
        ours, theirs = describe(dataset), describe(official)
        # the lines about mirrored relations begin with ids here and with names there
        shares = [[line.rsplit(": ")[-1] for line in each.pop("mirrored")] for each in (ours, theirs)]
        assert shares[0] == shares[1]
        assert {**ours, "files": {}} == {**theirs, "files": {}}
        assert dataset.negatives is not None
        assert official.negatives is not None
        renamed = [
            (entities[head], relations[relation], entities[tail])
            for head, relation, tail, _ in facts_of(dataset.negatives[:500])
        ]
        assert renamed == [row[:3] for row in facts_of(official.negatives[:500])]
