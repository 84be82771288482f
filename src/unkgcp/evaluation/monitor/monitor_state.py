"""One test over many calls: a monitor whose evidence is kept in a file, under a lock from reading to writing."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.evaluation.monitor.promise_monitor import Monitor, reference_of
from unkgcp.files import locked, reading, write_text
from unkgcp.graph.facts import Graph, Vocabulary, concatenate, contained, in_vocabulary
from unkgcp.methods.method import training_facts
from unkgcp.run.predictor import Predictor

FORMAT = "unkgcp-monitor 3"


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
    with locked(state):
        updates, vocabulary = len(predictor.provenance.get("updates", ())), predictor.model.vocabulary
        reference = reference_of(predictor, calibration)
        held = (predictor.method.held_out() if calibration is None else calibration).over(vocabulary)
        course = _course(predictor, state, settings, held, updates)
        held_marks, arrived, counted = _marks(held), np.array(_marks(facts)), _marks(course.counted)
        new = ~np.isin(arrived, [*counted, *(course.calibration if updates else [])])
        learned = new & (updates > 0) & _in_training(predictor, facts) & ~np.isin(arrived, held_marks)
        # facts that an update has held out are calibration facts now; the others of the same file it has learned from
        marks = np.array(_marks(reference))
        apart = np.isin(marks, arrived[new]) & (updates > 0)
        others = ~apart & ~np.isin(marks, [*course.calibration, *counted])
        compared = concatenate([held[_rows_of(course.expected, held_marks)], reference[others], course.added])
        kept = course.kept
        monitor = Monitor(predictor, calibration=compared, watched=kept.get("watched"), **settings)
        monitor.spend(1 / (course.begun * (course.begun + 1)))
        if kept:
            monitor.resume(kept)
        before, tested = monitor.facts, facts[new & ~learned].over(vocabulary)
        monitor.update(tested, tested.truth)
        calls = kept.get("calls", 0) + (monitor.facts > before)
        if monitor.facts > before:
            tested = tested[in_vocabulary(tested)]
            content = {
                "format": FORMAT,
                "settings": settings,
                "calls": calls,
                "begun": course.begun,
                "updates": updates,
                "watched": list(monitor.relations),
                "calibration": course.calibration if kept else marks[~apart].tolist(),
                "counted": concatenate([course.counted, tested]).table().to_pydict(),
                "trained": [*course.trained.tolist(), *_in_training(predictor, tested).tolist()],
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
        "begun": course.begun,
    }


class Course(NamedTuple):
    """How far a test has come, in the ids of the run as it is now.

    kept: the content of its file, empty for a test that begins. begun: how often it has begun. calibration: the marks
    of the calibration facts that it began with. counted: the facts that were tested. trained: which of these were
    training facts then. added: those that calibration facts are compared with too, because the run holds them no more.
    """

    kept: dict[str, Any]
    begun: int
    calibration: list[str]
    counted: Graph
    trained: NDArray[np.bool_]
    added: Graph

    @property
    def expected(self) -> Counter[str]:
        """The marks of all facts that a test which goes on must be compared with."""
        return Counter([*self.calibration, *_marks(self.counted)])


def _course(
    predictor: Predictor,
    state: str | os.PathLike[str],
    settings: Mapping[str, Any],
    held: Graph,
    updates: int,
) -> Course:
    """The test in a file. It begins once more if the run has lost facts that it needs, or has learned from some."""
    kept, none = _read(state, settings), held[:0]
    if kept is None:
        return Course({}, 1, [], none, np.zeros(0, np.bool_), none)
    counted, trained = _counted(kept, predictor.model.vocabulary), np.array(kept["trained"], np.bool_)
    held_marks, first = _marks(held), set(kept["calibration"])
    if 2 * len(first.intersection(held_marks)) < len(first):
        raise InputError(f"{state} belongs to another run; name another file")
    course = Course(kept, kept["begun"], kept["calibration"], counted, trained, none)
    missing = course.expected - Counter(held_marks)
    added = _rows_of(missing, _marks(counted))
    learned_since = _in_training(predictor, counted) & ~trained & (updates > kept["updates"])
    if missing.total() > added.sum() or learned_since.any():
        return Course({}, kept["begun"] + 1, [], none, trained[:0], none)
    return course._replace(added=counted[added])


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
    return in_vocabulary(facts) & contained(facts.keys, np.sort(train.keys))


def _read(path: str | os.PathLike[str], settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The content of a state file with a correct checksum and these settings; None if there is no file yet."""
    if not os.path.lexists(path):
        return None
    with reading(path, "name another file to begin anew"):
        if not Path(path).is_file():  # a pipe would make the reader wait for ever
            raise ValueError("it is not a plain file")
        kept: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        if kept.get("format") != FORMAT or kept.pop("checksum", None) != _checksum(kept):
            raise ValueError("it is not what a monitor wrote")
    for name, value in settings.items():
        if kept["settings"].get(name) != value:
            raise InputError(
                f"{path} was begun with {name} {json.dumps(kept['settings'].get(name))[:40]}, not {json.dumps(value)}, "
                "and a test cannot change on its way; give the same again or name another file"
            )
    return kept


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
