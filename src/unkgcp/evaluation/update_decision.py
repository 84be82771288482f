"""`unkgcp.update`: new facts join a run, and its trees are learned again only if the new facts are unlike the old ones.

`unkgcp.run.updates` decides which new facts teach and which calibrate. Here the monitor decides whether the trees of an
evidence run still fit: the new *training* facts are tested for exchangeability with training facts that the trees have
not learned from. Facts that are held out for calibration are never used for this decision: a model chosen by them would
fit them better than it fits queries, and the promise would break. For the same reason the run's calibration facts are
not used here, though `unkgcp monitor`, which changes nothing, compares with them.

>>> again = update(unkgcp.Predictor.load("run"), unkgcp.read("week-07.tsv"))     # doctest: +SKIP
>>> again.save("run")                                                            # doctest: +SKIP
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from unkgcp.errors import InputError
from unkgcp.evaluation.monitor import Stream
from unkgcp.evaluation.monitor.martingale import Bag, Martingale
from unkgcp.evidence.evidence_model import EvidenceModel
from unkgcp.graph.facts import Graph
from unkgcp.run.fitting import Report, silent
from unkgcp.run.predictor import Predictor
from unkgcp.run.updates import CALIBRATE_ON, UPDATES, check, divide, refreshed

LEVEL = 0.9  # the martingale also bets on misses at this level
FALSE_ALARM = 0.01
"""How often an update learns again though the new facts are like the old ones."""
MOST_TESTED = 10_000
"""At most so many new training facts are tested, drawn at random: more take long and find ever smaller changes."""
LEAST = 19
"""With fewer facts to compare with nothing is tested."""


def update(
    predictor: Predictor,
    facts: Graph,
    *,
    refit: bool = False,
    calibrate_on: str = "all",
    seed: int = 0,
    device: str = "auto",
    source: Mapping[str, Any] | None = None,
    report: Report = silent,
) -> Predictor:
    """The run with new facts in it, calibrated anew; `predictor` stays as it is.

    Each new fact is held out for calibration with the probability with which the run's own facts were, drawn with
    `seed`, and becomes a training fact otherwise. A triple that the run has already gets its new confidence and stays
    on its side. The promise is then for a random fact of the updated graph; with `calibrate_on="new"` for a random one
    of the new facts.

    The graph that evidence looks at grows. Its trees are learned again with `refit`, or where the monitor finds that
    the new training facts are unlike those before. A backbone is trained further from its present parameters, with
    `refit` from the beginning. `source` is stored in the history of the run: where the facts came from.
    """
    if calibrate_on not in CALIBRATE_ON:
        raise InputError(f"calibrate_on is {calibrate_on!r} but must be one of {', '.join(CALIBRATE_ON)}")
    start = time.monotonic()
    check(predictor, refit)
    division = divide(predictor, facts, seed)
    why, evidence = "it was asked for" if refit else None, None
    if not refit and predictor.method.evidence is not None:
        with report("joining the facts to the graph", None):
            evidence = predictor.method.evidence.over(division.train)
            empty = bool(predictor.method.options().get("allow_empty", False))
            why = reason_to_learn(evidence, division.taught, empty, seed)
    again = refreshed(
        predictor,
        division,
        relearn=refit,
        evidence=evidence if why is None else None,
        calibrate_on=calibrate_on,
        device=device,
        report=report,
    )
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": dict(source or {}),
        "facts": len(facts),
        **division.counts(),
        "seed": seed,
        "held_out_rate": division.rate,
        "calibrate_on": calibrate_on,
        "learned_again": why,
        "training_facts": len(division.train),
        "calibration_facts": again.method.size,
        "seconds": round(time.monotonic() - start, 3),
    }
    again.provenance[UPDATES] = [*predictor.provenance.get(UPDATES, []), record]
    return again


def reason_to_learn(model: EvidenceModel, new: int, empty: bool = False, seed: int = 0) -> str | None:
    """Why the trees of a model should be learned again, judged by its last `new` training facts; None if not.

    These facts and the facts that the trees have not learned from are scored alike, each over a graph without it. The
    new facts are tested in random order, because they came together.
    """
    if model.aside is None:
        return (
            "the run is of an older version, which does not tell which facts its trees have not learned from"
        )
    if len(model.aside) < LEAST or not new:
        return None
    rng, n = np.random.default_rng((seed, 0x5EE)), len(model.evidence.train)
    rows = n - 1 - rng.permutation(new)[:MOST_TESTED]
    scores, _ = model.left_out(np.concatenate([model.aside, rows]), empty)
    stream = Stream(Bag(scores[: len(model.aside)]), Martingale(LEVEL), -math.log(FALSE_ALARM))
    stream.update(scores[len(model.aside) :], rng.random(len(rows)))
    if stream.alarm_at is None:
        return None
    return (
        f"the monitor finds new training facts unlike those before, at a false-alarm rate of {FALSE_ALARM:g}"
    )
