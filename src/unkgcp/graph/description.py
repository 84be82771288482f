"""Counts of a data set: sizes, confidences, and what can spoil an experiment.

Repeats, overlap between parts, relations without training facts and negatives that are facts are counted, not
repaired. `unkgcp data describe` prints the figures as text (`description_text`).

>>> describe(load_dataset("ppi5k"))["test_rows_in_train"]
2971
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.datasets import Dataset
from unkgcp.graph.facts import Graph, contained, distinct_keys
from unkgcp.graph.kinds import Kinds

BINS = 10
ATOM = 0.01  # a value that this share of the facts has is an atom
DECIMALS = 6  # of an atom: files print 1 as 0.9999999999999998, or come near it by computation


def describe(dataset: Dataset) -> dict[str, Any]:
    """Count everything, in plain values, as `unkgcp data describe --json` prints it; seconds for ten million facts.

    "In" compares triples, whatever their confidence: `test_rows_in_train` counts test rows whose triple is
    also in train or validation. "Unseen in training" means without a fact in train or validation. `confidence` has
    figures of all confidences, with a `histogram` of ten equal bins of [0, 1], the last one closed, and `atoms`, the
    values that many facts share. `symmetric` are relations of which both directions count as one fact, `mirrored` says
    in a sentence each how many facts of a relation are listed in both directions. `softlogic_rows_held` are those of
    the `softlogic` rows that name a calibration or test triple.
    """
    splits, graph = dataset.splits, dataset.graph
    keys = graph.keys
    learned = np.sort(keys[: len(splits.train) + len(splits.validation)])
    calibration, test = splits.calibration.keys, splits.test.keys
    there, seen = (
        Kinds.of(facts, graph.n_entities, graph.n_relations) for facts in (graph, graph[: len(learned)])
    )
    new_relations = there.seen_relations & ~seen.seen_relations
    ordered = np.sort(keys)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    negatives, softlogic = dataset.negatives, dataset.softlogic
    return {
        "data": dataset.name,
        "facts": len(graph),
        **splits.sizes(),
        "entities": int(there.seen_entities.sum()),
        "relations": int(there.seen_relations.sum()),
        "entities_unseen_in_training": int((there.seen_entities & ~seen.seen_entities).sum()),
        "relations_unseen_in_training": int(new_relations.sum()),
        "test_rows_in_unseen_relations": int(new_relations[splits.test.relation].sum()),
        "distinct_triples": len(keys) - len(again),
        "repeated_triples": len(distinct_keys(again)),
        "repeated_triples_with_other_confidence": _conflicting(graph, keys, again),
        "self_loops": graph.self_loops,
        "calibration_rows_in_train": _count_in(calibration, learned),
        "test_rows_in_train": _count_in(test, learned),
        "test_rows_in_calibration": _count_in(test, np.sort(calibration)),
        "negatives": 0 if negatives is None else len(negatives),
        "negatives_that_are_facts": 0 if negatives is None else _count_in(negatives.keys, ordered),
        "softlogic": 0 if softlogic is None else len(softlogic),
        "softlogic_rows_held": int(dataset.softlogic_held.sum()),
        "confidence": _confidences(graph.confidence),
        "symmetric": graph.vocabulary.relations.filter(graph.vocabulary.symmetric).to_pylist(),
        "mirrored": dataset.counted_mirrors.lines(graph.vocabulary.symmetric),
        "files": dict(dataset.hashes),
    }


def _confidences(confidence: NDArray[np.float64]) -> dict[str, Any]:
    values, counts = np.unique(np.round(confidence, DECIMALS), return_counts=True)
    large = np.flatnonzero(counts >= ATOM * len(confidence))
    large = large[np.argsort(-counts[large], kind="stable")]
    atoms = [
        {"value": float(values[i]), "facts": int(counts[i]), "share": float(counts[i] / len(confidence))}
        for i in large
    ]
    # 0.7 belongs to [0.7, 0.8), though in binary it lies below seven tenths of the range
    bins = np.floor(confidence * BINS + 1e-9).astype(np.int64).clip(0, BINS - 1)
    return {
        "minimum": float(confidence.min()),
        "maximum": float(confidence.max()),
        "mean": float(confidence.mean()),
        "standard_deviation": float(confidence.std()),
        "histogram": np.bincount(bins, minlength=BINS).tolist(),
        "atoms": atoms,
    }


def _count_in(keys: NDArray[np.int64], ordered: NDArray[np.int64]) -> int:
    # sorted first, so that the search walks through memory in one direction
    return int(np.count_nonzero(contained(np.sort(keys), ordered)))


def _conflicting(graph: Graph, keys: NDArray[np.int64], again: NDArray[np.int64]) -> int:
    """Triples that occur with more than one confidence; only the rows of repeated triples are looked at."""
    rows = np.flatnonzero(contained(keys, again))
    order = rows[np.lexsort((graph.confidence[rows], keys[rows]))]
    same = keys[order[1:]] == keys[order[:-1]]
    other = graph.confidence[order[1:]] != graph.confidence[order[:-1]]
    return len(np.unique(keys[order[1:]][same & other]))


# The description as text for a terminal: counts, a bar chart of the confidences, cautions.

SHOWN = 6  # atoms; --json has all


def description_text(description: dict[str, Any], width: int = 80, plain: bool = False) -> str:
    """The whole description as text; `plain` draws the bars with ASCII characters."""
    return "\n".join(
        [
            description["data"],
            *_counts(description),
            "",
            *chart(description["confidence"]["histogram"], width, plain),
            *_atoms(description),
            *([""] if description["mirrored"] else []),
            *(f"  {sentence}" for sentence in description["mirrored"]),
            *_cautions(description),
        ]
    )


def chart(counts: Sequence[int], width: int = 80, plain: bool = False) -> list[str]:
    """One bar a bin of [0, 1], the longest as wide as there is room."""
    numbers = [f"{count:,}" for count in counts]
    room = max(width - 17 - max(map(len, numbers)), 10)
    step = 1 / len(counts)
    lines = []
    for index, count in enumerate(counts):
        closing = "]" if index == len(counts) - 1 else ")"
        label = f"[{index * step:.1f}, {(index + 1) * step:.1f}{closing}"
        length = count / max(*counts, 1) * room
        # a bin with facts is never invisible
        bar = ("#" if plain else "█") * max(round(length), 1 if count else 0)
        lines.append(f"  {label}  {numbers[index]:>{max(map(len, numbers))}}  {bar}".rstrip())
    return lines


def _counts(d: dict[str, Any]) -> Iterator[str]:
    held = f", validation {d['validation']:,}" if d["validation"] else ""
    counts = (d["entities_unseen_in_training"], d["relations_unseen_in_training"])
    unseen = [f"{count:,} without a training fact" if count else "" for count in counts]
    rows = (
        (
            "facts",
            d["facts"],
            f"train {d['train']:,}{held}, calibration {d['calibration']:,}, test {d['test']:,}",
        ),
        ("entities", d["entities"], unseen[0]),
        ("relations", d["relations"], unseen[1]),
        ("negatives", d["negatives"], "to test with, confidence 0"),
        ("soft logic", d["softlogic"], "inferred facts to train with"),
    )
    yield from (f"  {name:<10}  {count:>11,}  {note}".rstrip() for name, count, note in rows if count)
    c = d["confidence"]
    yield (
        f"  confidence  {c['minimum']:.4g} to {c['maximum']:.4g}, mean {c['mean']:.4f}, "
        f"standard deviation {c['standard_deviation']:.4f}"
    )


def _atoms(d: dict[str, Any]) -> Iterator[str]:
    atoms = d["confidence"]["atoms"]
    if atoms:
        yield from ("", "  values that many facts share")
        yield from (f"  {atom['value']:>11.6g}  {100 * atom['share']:4.1f} %" for atom in atoms[:SHOWN])
    if len(atoms) > SHOWN:
        yield f"  and {len(atoms) - SHOWN} more with 1 % or more each"


def _cautions(d: dict[str, Any]) -> Iterator[str]:
    """A line for each problem that the data set has; a clean one has none."""
    sentences = (
        (d["repeated_triples"], "triples are listed more than once"),
        (d["repeated_triples_with_other_confidence"], "of them with more than one confidence"),
        (d["self_loops"], "facts are self-loops (head = tail)"),
        (d["calibration_rows_in_train"], "calibration rows repeat a triple of the training part"),
        (d["test_rows_in_train"], "test rows repeat a triple of the training part"),
        (d["test_rows_in_calibration"], "test rows repeat a triple of the calibration part"),
        (d["test_rows_in_unseen_relations"], "test rows have a relation without a training fact"),
        (d["negatives_that_are_facts"], "negatives are facts of some part"),
        (
            d["softlogic_rows_held"],
            "soft-logic rows name a calibration or test triple; --protocol paper leaves them out",
        ),
    )
    present = [f"  {count:>11,}  {sentence}" for count, sentence in sentences if count]
    if present:
        yield from ("", "  worth knowing", *present)
