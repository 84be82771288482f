"""What a monitor found, as one plain object: `unkgcp monitor --json` prints it.

What it is: numbers and names. What it is not: a decision; `verdict` is the monitor's own: `alarm`, or `no evidence`
against the promise, which does not say that the promise holds. Capital is given as its
logarithm to base 10: alarms go off at capitals that floats may not hold.

>>> describe(monitor)["verdict"]     # doctest: +SKIP
'no evidence'
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evaluation.monitor.watch import Monitor, Stream
from unkgcp.graph import Graph

LAWS = {True: "beta-binomial", False: "hypergeometric"}
CORRECTION = (
    "Bonferroni over the relations with a martingale of their own, within half of the false-alarm rate"
)


def describe(monitor: Monitor) -> dict[str, Any]:
    """Everything there is to say after the facts so far."""
    predictor, facts = monitor.predictor, monitor.facts
    return {
        "model": predictor.model.config.model,
        "method": predictor.method.name,
        "verdict": "alarm" if monitor.broken else "no evidence" if facts else "nothing compared",
        "alarms": monitor.alarms(),
        "false_alarm": monitor.false_alarm,
        "calibration_facts": len(monitor.yardstick.scores),
        "facts": facts,
        "unknown": dict(monitor.unknown),
        "coverage": {
            "confidence": monitor.confidence,
            "covered": monitor.hits,
            "coverage": monitor.hits / facts if facts else None,
            "p_value": monitor.coverage_p_value,
            "law": LAWS[monitor.yardstick.hits is None],
        },
        "martingale": {**_stream(monitor.all), "rate": monitor.rate},
        "relations": _relations(monitor),
    }


def _stream(stream: Stream) -> dict[str, Any]:
    martingale = stream.martingale
    return {
        "log10_capital": martingale.log_capital / math.log(10),
        "log10_largest": martingale.log_largest / math.log(10),
        "largest_at": martingale.largest_at,
        "log10_alarm": stream.log_alarm / math.log(10),
        "alarm_at": stream.alarm_at,
        "p_value": martingale.p_value,
    }


def _relations(monitor: Monitor) -> dict[str, Any]:
    labels = monitor.predictor.model.vocabulary.relations
    rows = []
    for code in np.flatnonzero(monitor.facts_of).tolist():
        facts, covered = int(monitor.facts_of[code]), int(monitor.hits_of[code])
        row = {"relation": labels[code].as_py(), "facts": facts, "coverage": covered / facts}
        stream = monitor.relations.get(code)
        if stream is not None:
            adjusted = min(1.0, stream.martingale.p_value * len(monitor.relations))
            row |= {**_stream(stream), "adjusted_p_value": adjusted}
        rows.append(row)
    return {
        "watched": len(monitor.relations),
        "rate": monitor.false_alarm / 2 if monitor.relations else None,
        "correction": CORRECTION if monitor.relations else None,
        "rows": rows,
    }


def order_caution(facts: Graph) -> str | None:
    """A sentence if the facts stand in an order that is visibly not that of their coming, else None.

    A file sorted by relation or entity is a change after every block; it says nothing about the facts.
    """
    columns: dict[str, NDArray[Any]] = {
        "head": facts.head,
        "relation": facts.relation,
        "tail": facts.tail,
        "confidence": facts.confidence,
    }
    by = [name for name, column in columns.items() if _sorted(column)]
    if not by:
        return None
    return (
        f"the facts seem to be sorted by {' and '.join(by)}, which looks like a change even where there is none; "
        "--shuffle takes them in random order"
    )


def _sorted(column: NDArray[Any]) -> bool:
    """Whether equal neighbours are nearer to the most there can be than to what chance makes of them."""
    if len(column) < 2:
        return False
    neighbours = int((column[1:] == column[:-1]).sum())
    counts = np.unique(column, return_counts=True)[1].astype(np.float64)
    by_chance = float((counts * (counts - 1)).sum() / len(column))
    most = len(column) - len(counts)
    return most - by_chance >= 20 and neighbours - by_chance >= 0.5 * (most - by_chance)
