"""`unkgcp.update`: new facts join a run, and what is learned is learned again only where they ask for it.

`unkgcp.run.growing` has the rule by which new facts teach or calibrate. Here the monitor decides whether the trees of
an evidence run still fit: the new *training* facts are tested for exchangeability with training facts that the trees
have not learned from. Facts that are held out are never looked at for this: they would then choose what answers, and a
query, which chose nothing, would be unlike them. For the same reason the run's calibration facts are no measure here,
though they are one for `unkgcp monitor`, which changes nothing.

>>> again = update(unkgcp.Predictor.load("run"), unkgcp.read("week-07.tsv"))     # doctest: +SKIP
>>> again.save("run")                                                            # doctest: +SKIP
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from unkgcp.errors import InputError
from unkgcp.evaluation.monitor.watch import Monitor, Reference
from unkgcp.graph.facts import Graph
from unkgcp.run.fitting import Report, silent
from unkgcp.run.growing import CALIBRATE_ON, UPDATES, check, divide, refreshed
from unkgcp.run.predictor import Predictor

FALSE_ALARM = 0.01
"""How often new facts like the old ones make an update learn again."""
MOST_TESTED = 10_000
"""New training facts that the test looks at, drawn at random: more would take long and find ever smaller changes."""
LEAST = 19
"""Facts to compare with below which nothing is tested."""


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

    Each new fact is held out for calibration with the probability with which the run's own facts were, by a coin of
    `seed`, and teaches otherwise. A triple that the run has takes its new confidence where it is. The promise is then
    for a random fact of the updated graph; with `calibrate_on="new"` for a random one of the new facts.

    The graph that evidence looks at grows. Its trees are learned again with `refit`, or where the monitor finds that
    the new training facts are unlike those before. A backbone is trained further from where it stands, with `refit`
    from the beginning. `source`: what the history of the run is to say of where the facts came from.
    """
    if calibrate_on not in CALIBRATE_ON:
        raise InputError(f"calibrate_on is {calibrate_on!r} but must be one of {', '.join(CALIBRATE_ON)}")
    start = time.monotonic()
    check(predictor, refit)
    division = divide(predictor, facts, seed)
    why: str | None = "it was asked for" if refit else None
    if not refit:
        with report("comparing the new facts", None):
            why = reason_to_learn(predictor, division.new_train, seed)
    again = refreshed(
        predictor,
        division,
        relearn=why is not None,
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


def reason_to_learn(predictor: Predictor, facts: Graph, seed: int = 0) -> str | None:
    """Why the trees of the run should be learned again, by the look of new training facts; None if they need not.

    A run without trees has no reason: its backbone is trained further anyway. The facts are taken in random order: they
    came together.
    """
    method, model = predictor.method, predictor.method.evidence
    if model is None:
        return None
    if model.aside is None:
        return (
            "the run is of an older version, which does not tell which facts its trees have not learned from"
        )
    if len(model.aside) < LEAST:
        return None
    empty = bool(method.options().get("allow_empty", False))
    relation = model.evidence.train.relation[model.aside]
    reference = Reference(method, 0.9, model.left_out(model.aside, empty)[0], relation, None)
    monitor = Monitor(predictor, false_alarm=FALSE_ALARM, seed=seed, reference=reference)
    some = facts[np.random.default_rng((seed, 0x5EE)).permutation(len(facts))[:MOST_TESTED]]
    if not monitor.update(some, some.confidence).broken:
        return None
    alarms = monitor.alarms()
    named = [name for name in alarms if name != "all"]
    where = f" (relations {', '.join(named[:3])})" if named and "all" not in alarms else ""
    return f"the monitor finds new training facts unlike those before{where}, at a false-alarm rate of {FALSE_ALARM:g}"
