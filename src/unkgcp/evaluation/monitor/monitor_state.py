"""A monitor's state in a file, so that weekly calls of `unkgcp monitor` are one test.

What it is: one JSON file, written whole, that says to which run and settings it belongs and which facts were counted,
and that holds `Monitor.state`. Later facts are ranked among all earlier ones, so the scores of these are in it: some 30
bytes a fact. What it is not: a log, or a place to join several tests; the state of another run or another level is
refused, and so is a file that was not written by `save`.

>>> monitor = Monitor(predictor)                                       # doctest: +SKIP
>>> calls = resume(monitor, "watch.json")                              # doctest: +SKIP
>>> if counted(calls, facts, "week-07.tsv") is None:                                  # doctest: +SKIP
...     monitor.update(facts, facts.truth)
...     save(monitor, "watch.json", [*calls, Call.of(facts)])
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unkgcp.errors import InputError
from unkgcp.evaluation.monitor import Monitor
from unkgcp.files import write_text
from unkgcp.graph.facts import Graph
from unkgcp.run.provenance import CALIBRATION, CONFIG, MODEL, VOCABULARY

FORMAT, VERSION = "unkgcp-monitor", 1
LARGEST = 1 << 30
"""Bytes that a state may have: some thirty million facts."""
TELLING = 10
"""A file that begins with so many or more facts of an earlier call is refused; fewer may be chance."""
OPTIONS = {
    "confidence": "--confidence",
    "false_alarm": "--false-alarm",
    "seed": "--seed",
    "by_relation": "--by-relation",
}


@dataclass(frozen=True, slots=True)
class Call:
    """The labelled facts of one call: how many, and a fingerprint that does not depend on their order."""

    facts: int
    fingerprint: str

    @classmethod
    def of(cls, facts: Graph) -> Call:
        return cls(len(facts), fingerprints(facts, [len(facts)])[len(facts)])


def resume(monitor: Monitor, path: str | os.PathLike[str]) -> list[Call]:
    """Let a new monitor continue the test in the file, and give the calls so far; none if there is no such file yet."""
    if not os.path.lexists(path):
        return []
    found = _read(path)
    if found["run"] != identity(monitor):
        raise InputError(
            f"{path} belongs to another run, or to this one before it was calibrated anew; name another file"
        )
    for name, option in OPTIONS.items():
        before, now = found["settings"].get(name), getattr(monitor, name)
        if before != now:
            raise InputError(
                f"{path} was begun with {option} {json.dumps(before)[:40]}, not {json.dumps(now)}, and a test "
                "cannot change on its way; give the same again or name another file"
            )
    try:
        calls = [Call(int(call["facts"]), str(call["fingerprint"])) for call in found["calls"]]
        monitor.resume(found["state"])
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise _foreign(path) from error
    return calls


def save(monitor: Monitor, path: str | os.PathLike[str], calls: Sequence[Call]) -> None:
    """Write the state whole, or not at all."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "run": identity(monitor),
        "settings": {name: getattr(monitor, name) for name in OPTIONS},
        "calls": [asdict(call) for call in calls],
        "state": monitor.state(),
    }
    write_text(path, json.dumps({**content, "checksum": _checksum(content)}, allow_nan=False) + "\n")


def counted(calls: Sequence[Call], facts: Graph, name: str) -> int | None:
    """Which call (from 1) had exactly these facts, in whatever order; None if none had.

    A file (called `name`) that begins with the facts of an earlier call and has more is an InputError: the first facts
    would be counted twice.
    """
    sizes = {call.facts for call in calls if call.facts <= len(facts)}
    found = fingerprints(facts, sizes)
    for number, call in enumerate(calls, start=1):
        if found.get(call.facts) != call.fingerprint:
            continue
        if call.facts == len(facts):
            return number
        if call.facts >= TELLING:
            raise InputError(
                f"the first {call.facts:,} facts of {name} are those of call {number} and would count twice; "
                "give only the facts that came after them"
            )
    return None


def fingerprints(facts: Graph, sizes: Collection[int]) -> dict[int, str]:
    """A fingerprint of the first n facts for each n in `sizes`: the sum of their hashes, which ignores the order."""
    found, total, wanted = {0: f"{0:064x}"}, 0, set(sizes)
    for number, line in enumerate(_lines(facts[: max(wanted, default=0)]), start=1):
        total += int.from_bytes(hashlib.sha256(line).digest(), "big")
        if number in wanted:
            found[number] = f"{total % (1 << 256):064x}"
    return found


def identity(monitor: Monitor) -> str:
    """SHA-256 of what a test depends on in a run: model, labels, method and calibration."""
    files = monitor.predictor.provenance.get("files")
    if monitor.predictor.folder is None or not files:
        raise InputError("a monitor can be kept for a run on disk only; save the predictor and load it again")
    named = [name for name in (CONFIG, MODEL, VOCABULARY, CALIBRATION) if name != MODEL or name in files]
    parts = [files[name]["sha256"] for name in named]  # not every run has a model
    if monitor.calibration is not None:  # named by the user, for methods that keep no scores
        parts.append(Call.of(monitor.calibration).fingerprint)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _lines(facts: Graph) -> Iterator[bytes]:
    """Each fact as bytes: labels and confidence, whatever file it came from."""
    entities, relations = (
        labels.to_pylist() for labels in (facts.vocabulary.entities, facts.vocabulary.relations)
    )
    columns = zip(
        facts.head.tolist(), facts.relation.tolist(), facts.tail.tolist(), facts.truth.tolist(), strict=True
    )
    for head, relation, tail, truth in columns:
        yield json.dumps([entities[head], relations[relation], entities[tail], truth]).encode()


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of a state file with a correct checksum; an InputError for anything else."""
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            raise _foreign(path)
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (ValueError, RecursionError) as error:
        raise _foreign(path) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); name another file") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise _foreign(path)
    if found.get("version") != VERSION:
        raise InputError(
            f"{path} has version {json.dumps(found.get('version'))[:20]}, this program reads {VERSION}; "
            "name another file to begin anew"
        )
    checksum = found.pop("checksum", None)
    if checksum != _checksum(found) or not isinstance(found.get("settings"), dict):
        raise _foreign(path)
    return found


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _foreign(path: str | os.PathLike[str]) -> InputError:
    return InputError(f"{path} is damaged or no state of a monitor; name another file to begin anew")
