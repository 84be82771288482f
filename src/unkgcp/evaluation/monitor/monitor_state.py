"""One test over many calls: a monitor whose evidence is kept in a file, under a lock from reading to writing."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.evaluation.monitor.promise_monitor import Monitor, reference_of
from unkgcp.files import write_text
from unkgcp.graph.facts import Graph, Vocabulary, concatenate, contained, in_vocabulary
from unkgcp.methods.method import training_facts
from unkgcp.run.predictor import Predictor

FORMAT = "unkgcp-monitor 3"
LARGEST = 1 << 30
"""Bytes that a state may have."""


def watch(
    predictor: Predictor,
    facts: Graph,
    state: str | os.PathLike[str],
    *,
    calibration: Graph | None = None,
    **settings: Any,
) -> tuple[Monitor, dict[str, Any]]:
    """Go on with the test in the file `state` with labelled facts, and keep it there; a new file begins a test.

    settings: confidence, false_alarm, seed and by_relation of `Monitor`. Gives the monitor and what there is to say:
    `calls`, `facts_before`, `new` (facts of this call that no earlier one had), `learned` (facts left out because an
    update has learned from them), `calibrating` (whether the others are calibration facts since an update, so that
    they set the thresholds themselves) and `begun` (how often the test has begun). Other callers of the file wait.
    """
    with _locked(state):
        kept, vocabulary = _read(state, settings), predictor.model.vocabulary
        updates, reference = (
            len(predictor.provenance.get("updates", ())),
            reference_of(predictor, calibration),
        )
        held = (predictor.method.held_out() if calibration is None else calibration).over(vocabulary)
        marks, held_marks, arrived = _marks(reference), _marks(held), _marks(facts)
        begun, base, counted, trained = 1, list[str](), reference[:0], np.zeros(0, np.bool_)
        if kept is not None:
            begun, base, counted = kept["begun"], kept["calibration"], _counted(kept, vocabulary)
            trained = np.array(kept["trained"], np.bool_)
            if 2 * len(set(held_marks) & set(base)) < len(set(base)):
                raise InputError(f"{state} belongs to another run; name another file")
        # facts that must be compared with and are no longer held out by the run: counted ones can be added
        expected = Counter([*base, *_marks(counted)])
        added = _rows_of(expected - Counter(held_marks), _marks(counted))
        learned_since = (
            _in_training(predictor, counted) & ~trained & (kept is not None and updates > kept["updates"])
        )
        if (expected - Counter(held_marks)).total() > added.sum() or learned_since.any():
            kept, begun, base, expected = None, begun + 1, [], Counter()
            counted, trained, added = counted[:0], trained[:0], added[:0]
        new = ~np.isin(arrived, [*_marks(counted), *(base if updates else [])])
        # facts that an update has held out are calibration facts now; the others of the same file it has learned from
        apart = np.isin(marks, np.array(arrived)[new]) & (updates > 0)
        learned = new & (updates > 0) & _in_training(predictor, facts) & ~np.isin(arrived, held_marks)
        if kept is None:
            base = [mark for mark, is_apart in zip(marks, apart, strict=True) if not is_apart]
            compared = reference[~apart]
        else:
            others = reference[~apart & ~np.isin(marks, list(expected))]
            compared = concatenate([held[_rows_of(expected, held_marks)], others, counted[added]])
        watched = None if kept is None else kept["watched"]
        monitor = Monitor(predictor, calibration=compared, watched=watched, **settings)
        monitor.spend(1 / (begun * (begun + 1)))
        if kept is not None:
            monitor.resume(kept)
        before, tested = monitor.facts, facts[new & ~learned].over(vocabulary)
        monitor.update(tested, tested.truth)
        calls = (0 if kept is None else kept["calls"]) + (monitor.facts > before)
        if monitor.facts > before:
            tested = tested[in_vocabulary(tested)]
            content = {
                "format": FORMAT,
                "settings": settings,
                "calls": calls,
                "begun": begun,
                "updates": updates,
                "watched": list(monitor.relations),
                "calibration": base,
                "counted": concatenate([counted, tested]).table().to_pydict(),
                "trained": [*trained.tolist(), *_in_training(predictor, tested).tolist()],
                **monitor.state(),
            }
            write_text(state, json.dumps({**content, "checksum": _checksum(content)}, allow_nan=False) + "\n")
    return monitor, {
        "file": str(state),
        "calls": calls,
        "facts_before": before,
        "new": int(new.sum()),
        "learned": int(learned.sum()),
        "calibrating": bool(apart.any()),
        "begun": begun,
    }


def _rows_of(missing: Counter[str], marks: Sequence[str]) -> NDArray[np.bool_]:
    """Rows that together have the missing marks, each as often as it is missing, where there are so many: (n,)."""
    left, chosen = Counter(missing), np.zeros(len(marks), np.bool_)
    for row, mark in enumerate(marks):
        chosen[row] = left[mark] > 0
        left[mark] -= 1
    return chosen


def _marks(facts: Graph) -> list[str]:
    """A short digest of the labels of each fact; an update may give a fact another confidence."""
    rows = zip(*facts.table().select(["head", "relation", "tail"]).to_pydict().values(), strict=True)
    return [hashlib.blake2b(json.dumps(row).encode(), digest_size=8).hexdigest() for row in rows]


def _counted(kept: Mapping[str, Any], vocabulary: Vocabulary) -> Graph:
    """The facts that a test has counted, in the ids of the run as it is now."""
    columns = kept["counted"]
    head, tail = (vocabulary.entity_ids(columns[name]) for name in ("head", "tail"))
    relation = vocabulary.relation_ids(columns["relation"])
    ends = np.array(
        [columns.get("lower", columns.get("confidence")), columns.get("upper", columns.get("confidence"))]
    )
    graph = Graph(head, relation, tail, ends.mean(axis=0), vocabulary)
    return graph.with_ends(ends.T) if "lower" in columns else graph


def _in_training(predictor: Predictor, facts: Graph) -> NDArray[np.bool_]:
    """Which facts have a triple that the run keeps among its training facts: (n,)."""
    train, facts = training_facts(predictor.model), facts.over(predictor.model.vocabulary)
    if train is None:
        return np.zeros(len(facts), np.bool_)
    return in_vocabulary(facts) & contained(facts.keys, np.unique(train.keys))


@contextmanager
def _locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Wait until no other program works with a state in this folder, and keep others waiting meanwhile.

    The system lets go of the lock when the program that holds it ends, in whatever way.
    """
    import fcntl

    folder = Path(path).absolute().parent
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read(path: str | os.PathLike[str], settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The content of a state file with a correct checksum and these settings; None if there is no file yet."""
    if not os.path.lexists(path):
        return None
    foreign = InputError(f"{path} is damaged or no state of a monitor; name another file to begin anew")
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            raise foreign
        kept = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise foreign from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); name another file") from None
    if (
        not isinstance(kept, dict)
        or kept.get("format") != FORMAT
        or kept.pop("checksum", None) != _checksum(kept)
    ):
        raise foreign
    for name, value in settings.items():
        if kept["settings"].get(name) != value:
            raise InputError(
                f"{path} was begun with {name} {json.dumps(kept['settings'].get(name))[:40]}, not {json.dumps(value)}, "
                "and a test cannot change on its way; give the same again or name another file"
            )
    return kept


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
