"""Data sets by name, by folder or from one file that is split, as graphs over one vocabulary.

Named data sets are looked for under `data_dir`, then $UNKGCP_DATA, then the user's cache; `unkgcp.graph.fetching`
downloads them. Test negatives and soft-logic facts belong to a data set, but are not among its facts.

>>> dataset = load_dataset("ppi5k")
>>> dataset.splits.train
Graph(230,929 facts, 4,999 entities, 7 relations, confidences 0.15 to 0.999)
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
from numpy.typing import NDArray

from unkgcp.errors import InputError, public
from unkgcp.files import digest
from unkgcp.graph.fact_files import read_parts
from unkgcp.graph.facts import CALIBRATION, TEST, Graph, Splits, Vocabulary, concatenate, contained, split
from unkgcp.graph.facts import hold_out as hold_out_share
from unkgcp.graph.objects import graph_from
from unkgcp.graph.symmetry import (
    Choice,
    Mirrors,
    symmetric_as_in,
    symmetric_relations,
    with_symmetric,
)
from unkgcp.tabular.columns import Options, Scale
from unkgcp.tabular.source import is_remote

LOG = logging.getLogger(__name__)
ZERO_OR_NOT = Scale("minmax", floor=0.0, cap=1e-300)

BENCHMARKS = ("cn15k", "nl27k", "ppi5k")
NAMES = (*BENCHMARKS, "demo")

VARIABLE = "UNKGCP_DATA"

STEMS = {
    "train": ("train",),
    "calibration": ("val", "valid", "validation", "calibration"),
    "test": ("test",),
    "negatives": ("test_with_neg", "negatives"),
    "softlogic": ("softlogic",),
}
NEEDED = ("train", "calibration", "test")
KINDS = (".tsv", ".csv", ".txt", ".parquet", ".nt", ".nq", ".ttl")
ENDINGS = tuple(kind + packed for kind in KINDS for packed in ("", ".gz"))
TABLES = ("entity_id.csv", "relation_id.csv")
"""Files that some data sets have: the names behind ids."""


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """The name behind every id."""

    entities: dict[str, str]
    relations: dict[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """The parts of a data set and what belongs to it, all over one vocabulary.

    `negatives` are triples that are taken for no facts, confidence 0, to test with. `softlogic` are facts to train
    with that were inferred from the training facts, and from these alone. `hashes` has the SHA-256 of every file.
    `names` are the names of labels that are mere ids, where known. `split_here` tells that one graph was cut into the
    parts at random by this package, so that facts that stand in two parts are repeats of that graph. `mirrors` are
    counted before the two directions of a symmetric relation became one; None where nothing was counted.
    """

    name: str
    splits: Splits
    negatives: Graph | None = None
    softlogic: Graph | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)
    names: Names | None = None
    split_here: bool = False
    mirrors: Mirrors | None = None

    @property
    def graph(self) -> Graph:
        """All facts: train, validation, calibration and test, one after the other."""
        return self.splits.graph

    @property
    def counted_mirrors(self) -> Mirrors:
        return self.mirrors or Mirrors.of(self.graph)

    @property
    def symmetry(self) -> str | None:
        """Which relations are symmetric, or could be; None if none is."""
        return self.counted_mirrors.sentence(self.splits.train.vocabulary.symmetric)

    def softlogic_for(self, protocol: str) -> Graph | None:
        """The soft-logic facts that a protocol trains with: all, but for those held back under `paper`.

        The model must treat calibration facts and new queries alike. Conclusions about calibration facts therefore
        stay in, as those about new queries do, which cannot be taken out because nobody knows the queries yet. The
        paper's experiments (`paper`) leave out conclusions that name a calibration or test triple.
        """
        if self.softlogic is None or protocol != "paper":
            return self.softlogic
        return self.softlogic[~self.softlogic_held]

    @property
    def softlogic_held(self) -> NDArray[np.bool_]:
        """Which soft-logic facts name a calibration or test triple, whatever their confidence: (n,)."""
        if self.softlogic is None:
            return np.zeros(0, np.bool_)
        held = np.sort(np.concatenate([self.splits.calibration.keys, self.splits.test.keys]))
        return contained(self.softlogic.keys, held)


def read(
    source: Any,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    vocabulary: Vocabulary | None = None,
    relation: str | None = None,
    symmetric: Choice = None,
    **options: Unpack[Options],
) -> Graph:
    """The facts of a file, a named data set, a folder, or an object that holds facts.

    source        a file, here or elsewhere (`https://`, `s3://`, ...), `-` (standard input) or an open stream; a name
                  (cn15k, nl27k, ppi5k, demo) or a folder with train, val and test files, whose parts are then the
                  graph's `splits`; a data frame, a NetworkX graph, rows: see `unkgcp.graph.objects.graph_from`
    data_dir      where named data sets are looked for first
    vocabulary    files: labels that keep the ids they have there; new ones follow
    relation      objects: the one relation of all facts, for data that has none
    symmetric     relations of which (h, r, t) and (t, r, h) are one fact: `auto` (those whose facts are nearly all
                  listed in both directions with the same confidence), `none`, or labels. If not given: those of the
                  vocabulary, `auto` without one, `none` for data that come split and for graphs
    format        one of `unkgcp.tabular.formats.NAMES`: tsv, csv, parquet, turtle, ...; recognised if not given
    header        whether the first line names the columns; recognised if not given
    columns       head, relation, tail and confidence by name, or by position counted from 0; five for confidences
                  that are intervals, whose ends are the columns lower and upper
    scale         how numbers become confidences; if not given they are confidences already, except in files of
                  STRING (of 1000) and ConceptNet (the paper's logarithmic scale)
    skip_missing  leave out rows whose confidence is empty or NaN; they are an error otherwise
    default_confidence     the number that such rows have instead
    prefixes               RDF: names for the beginnings of IRIs, {"wd": "http://www.wikidata.org/entity/"}
    confidence_predicates  RDF: IRIs of the predicates that tell a confidence; recognised by their names if not given

    Confidences are rounded to nine decimals. Ids follow the first appearance of a label, row by row, head before tail.
    """
    if not isinstance(source, str | os.PathLike) and not hasattr(source, "readinto"):
        graph = graph_from(source, relation=relation, **options)
        return with_symmetric(graph, symmetric or (None if graph is source else "auto"))
    if relation is not None:
        raise InputError("relation is for objects without one: leave it out, or name the columns")
    if hasattr(source, "readinto") or names_one_file(source):
        graph = read_parts({"": source}, vocabulary=vocabulary, **options)[""]
        if symmetric is None and vocabulary is not None:
            return symmetric_as_in(graph, vocabulary)
        return with_symmetric(graph, symmetric or "auto")
    if vocabulary is not None:
        raise InputError(f"{public(source)} has a vocabulary of its own: leave vocabulary out")
    dataset = load_dataset(source, data_dir=data_dir, symmetric=symmetric, **options)
    return replace(dataset.graph, splits=None if dataset.split_here else dataset.splits)


def load_dataset(
    data: Any,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
    calibration: float | None = None,
    test: float | None = None,
    validation: float = 0.0,
    hold_out: str | None = None,
    symmetric: Choice = None,
    **reading: Any,
) -> Dataset:
    """A data set by name (cn15k, nl27k, ppi5k, demo), by folder, or made of one file by a random split.

    A data frame, a NetworkX graph or whatever other object `unkgcp.read` takes is split like a file.

    `calibration` and `test` are fractions for one file and for the demo graph (default 0.07 and 0.08), `hold_out` names
    the units in which their facts are held out (see `unkgcp.graph.facts.split`); other data sets come split.
    `validation` is a fraction of the training part, for early stopping, and works for all. `reading` goes to
    `unkgcp.read`: format, header, columns, scale and so on; a scale is for facts, soft-logic files must be in [0, 1]
    already. `symmetric` relations are those of `unkgcp.read`.
    """
    start = time.monotonic()
    cut: dict[str, Any] = {
        "calibration": CALIBRATION if calibration is None else calibration,
        "test": TEST if test is None else test,
        "validation": validation,
        "seed": seed,
        "hold_out": hold_out,
    }
    if not isinstance(data, str | os.PathLike):
        graph = graph_from(data, **reading)
        hashes, symmetric = {"facts": _content(graph)}, symmetric or (None if graph is data else "auto")
        dataset = _whole(type(data).__name__, graph, symmetric, cut, hashes)
    elif str(data) == "demo":
        dataset = _demo(cut, symmetric)
    elif names_one_file(data):
        graph = read(data, symmetric="none", **reading)
        # what is elsewhere is not fetched a second time to hash its bytes
        content = digest(data) if Path(data).is_file() else _content(graph)
        with _naming(data):
            name = public(data)
            dataset = _whole(name, graph, symmetric or "auto", cut, {Path(name).name: content})
    else:
        folder, remedy = _locate(data, data_dir)
        for name, chosen in (("split", calibration or test), ("hold-out", hold_out)):
            if chosen is not None:
                raise InputError(
                    f"{data} comes split into train, calibration and test, so --{name} cannot be chosen; "
                    "leave it out or give one file"
                )
        dataset = _folder(str(data), folder, remedy, symmetric, reading)
        if validation:
            with _naming(folder):
                train, held = hold_out_share(dataset.splits.train, validation, seed)
            dataset = replace(dataset, splits=replace(dataset.splits, train=train, validation=held))
    sizes = ", ".join(f"{part} {size:,}" for part, size in dataset.splits.sizes().items() if size)
    LOG.info(
        "%s: %s facts, %s: took %.2f s", dataset.name, sizes, dataset.splits.train, time.monotonic() - start
    )
    return dataset


def _locate(data: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None) -> tuple[Path, str]:
    """The folder of a data set, and what to do if something is missing in it."""
    name = str(data)
    if name in BENCHMARKS:
        remedy = f"`unkgcp data fetch {name}` downloads it"
        folder = find(name, data_dir)
        if folder is None:
            looked = ", ".join(str(place) for place in search_folders(data_dir))
            variable = "" if os.environ.get(VARIABLE) else f" (${VARIABLE} is not set)"
            raise InputError(f"{name} is not in {looked}{variable}; {remedy}")
        return folder, remedy
    if Path(data).is_dir():
        return Path(data), ""
    nearest = difflib.get_close_matches(name, NAMES, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"named data sets are {', '.join(NAMES)}"
    raise InputError(f"{name}: there is no such file or folder; {hint}")


def names_one_file(data: str | os.PathLike[str]) -> bool:
    """Whether this names one file or pipe, here or elsewhere, and no data set or folder."""
    here = str(data) == "-" or (Path(data).exists() and not Path(data).is_dir())
    return str(data) not in NAMES and (here or is_remote(data))


def _whole(
    name: str, graph: Graph, symmetric: Choice, cut: Mapping[str, Any], hashes: Mapping[str, str]
) -> Dataset:
    """One graph, split at random."""
    mirrors = Mirrors.of(graph) if symmetric is not None else None
    chosen = mirrors.symmetric if mirrors is not None and symmetric == "auto" else symmetric
    graph = with_symmetric(graph, chosen)
    return Dataset(name, split(graph, **cut), hashes=hashes, split_here=True, mirrors=mirrors)


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of splitting name the file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{public(path)}: {error}") from None


def _folder(name: str, folder: Path, remedy: str, symmetric: Choice, reading: Mapping[str, Any]) -> Dataset:
    paths = part_paths(folder, remedy)
    names = read_names(folder)
    graphs = read_parts({part: paths[part] for part in NEEDED}, **reading)
    if "softlogic" in paths:
        # conclusions are in [0, 1] already, also where the facts have to be scaled
        graphs["softlogic"] = read(paths["softlogic"], symmetric="none", **{**reading, "scale": Scale()})
    if "negatives" in paths:
        graphs["negatives"] = _negatives(paths["negatives"], names, graphs["train"], reading)
    graphs = dict(zip(graphs, over_one_vocabulary(list(graphs.values())), strict=True))
    chosen = symmetric_relations(concatenate([graphs[part] for part in NEEDED]), symmetric)
    graphs = {part: with_symmetric(graph, chosen) for part, graph in graphs.items()}
    splits = Splits(graphs["train"], graphs["calibration"], graphs["test"], graphs["train"][:0])
    files = [*paths.values(), *(folder / table for table in TABLES if names is not None)]
    hashes = {path.name: digest(path) for path in files}
    return Dataset(name, splits, graphs.get("negatives"), graphs.get("softlogic"), hashes, names)


def _negatives(path: Path, names: Names | None, train: Graph, reading: Mapping[str, Any]) -> Graph:
    """The rows of confidence exactly 0; UKGE's file lists the test facts before them."""
    if "scale" in reading:
        reading = {**reading, "scale": ZERO_OR_NOT}
    rows = read(path, symmetric="none", **reading)
    if not _shares_entities(rows, train) and names is not None:
        # NL27k is published with names in its facts and ids in its negatives
        rows = named(rows, names)
    if not _shares_entities(rows, train):
        raise InputError(
            f"{path} has no entity in common with the training facts; "
            f"put the tables {' and '.join(TABLES)} beside it if it uses ids, or remove it"
        )
    return rows[rows.confidence == 0]


def _shares_entities(graph: Graph, other: Graph) -> bool:
    return bool(np.any(other.vocabulary.entity_ids(graph.vocabulary.entities) >= 0))


def _demo(cut: Mapping[str, Any], symmetric: Choice) -> Dataset:
    # imported late, because nothing else needs the demo graph
    from unkgcp.graph import demo_graph
    from unkgcp.graph.negatives import corrupt

    graph = with_symmetric(demo_graph.generate()[0], symmetric)
    splits = split(graph, **cut)
    return Dataset(
        "demo",
        splits,
        # everything that is a fact is known here, so the negatives are filtered with all of it
        corrupt(splits.test, graph, seed=cut["seed"]),
        demo_graph.infer(splits.train),
        {"demo": _content(graph)},
        split_here=True,
    )


def _content(graph: Graph) -> str:
    digest = hashlib.sha256()
    for column in (graph.head, graph.relation, graph.tail, graph.confidence):
        digest.update(np.ascontiguousarray(column).tobytes())
    for label in (*graph.vocabulary.entities.to_pylist(), *graph.vocabulary.relations.to_pylist()):
        digest.update(label.encode() + b"\0")
    return digest.hexdigest()


def read_names(folder: Path) -> Names | None:
    """The tables of a folder, if both are there."""
    tables = [folder / table for table in TABLES]
    return Names(*map(_table, tables)) if all(table.is_file() for table in tables) else None


def _table(path: Path) -> dict[str, str]:
    """A CSV with a header line and two columns, id and name."""
    try:
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(column_names=["id", "name"], skip_rows=1),
            convert_options=csv.ConvertOptions(column_types={"id": pa.string(), "name": pa.string()}),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise InputError(f"{path} is no table of ids and names ({error}); it needs two columns") from None
    return dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))


def named(graph: Graph, names: Names) -> Graph:
    """The same facts with names in place of ids; a label without a name stays."""
    entities = [names.entities.get(label, label) for label in graph.vocabulary.entities.to_pylist()]
    relations = [names.relations.get(label, label) for label in graph.vocabulary.relations.to_pylist()]
    return replace(graph, vocabulary=Vocabulary.of(entities, relations))


def over_one_vocabulary(graphs: Sequence[Graph]) -> list[Graph]:
    """The same facts over the first graph's vocabulary, followed by labels that only later graphs have."""
    labels = zip(*((graph.vocabulary.entities, graph.vocabulary.relations) for graph in graphs), strict=True)
    vocabulary = Vocabulary(*(pc.unique(pa.chunked_array(list(some), pa.string())) for some in labels))
    return [graph.over(vocabulary) for graph in graphs]


# Folders with data: which of them holds a named data set, and which file in it is which part.


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/unkgcp, or ~/.cache/unkgcp."""
    # the specification asks to ignore a relative path there
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "unkgcp"


def search_folders(data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders that are looked into, in this order."""
    chosen = (data_dir, os.environ.get(VARIABLE))
    return [*(Path(folder) for folder in chosen if folder), cache_folder()]


def find(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
    """The first folder of that name, with a train file inside, in the folders that are looked into."""
    folders = (folder / name for folder in search_folders(data_dir))
    return next((folder for folder in folders if any(folder.glob("train.*"))), None)


def part_paths(folder: Path, remedy: str = "") -> dict[str, Path]:
    """The file of every part that the folder has; the needed parts must be there, and none twice."""
    by_part: dict[str, Path] = {}
    for part, stems in STEMS.items():
        paths = [folder / f"{stem}{ending}" for stem in stems for ending in ENDINGS]
        paths = [path for path in paths if path.is_file()]
        if len(paths) > 1:
            listed = " and ".join(path.name for path in paths)
            raise InputError(
                f"{folder} holds {listed}, and only one of them can be its {part} part; move the others"
            )
        if paths:
            by_part[part] = paths[0]
        elif part in NEEDED:
            names = " or ".join(STEMS[part][:1] if part != "calibration" else ("val", "valid", "calibration"))
            raise InputError(
                f"{folder} holds no {names} file ({', '.join(KINDS)}, plain or .gz); "
                + (remedy or "a data folder needs train, val and test, or give one file to have it split")
            )
    return by_part
