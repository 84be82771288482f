"""What a monitor found: one plain object, and sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.martingale import Floats, Stream
from unkgcp.evaluation.monitor.promise_monitor import Monitor
from unkgcp.evaluation.tables import FigureTable, counted, number
from unkgcp.graph.facts import Graph


def describe(monitor: Monitor, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All findings. `verdict` is `alarm`, or `no evidence`, which does not say that the promise holds.

    Capital is given as its logarithm to base 10, because it may be too large for a float. `coverage` is that of the
    facts of this call; None where they set the thresholds themselves.
    """
    facts, own = int(monitor.facts_of.sum()), kept is not None and kept["calibrating"]
    labels = monitor.predictor.model.vocabulary.relations
    rows = []
    for code in np.flatnonzero(monitor.facts_of).tolist():
        label, count = labels[code].as_py(), int(monitor.facts_of[code])
        coverage = None if own else int(monitor.hits_of[code]) / count
        row = {"relation": label, "facts": count, "coverage": coverage}
        if (stream := monitor.relations.get(label)) is not None:
            # corrected for how many relations are watched
            adjusted = min(1.0, stream.martingale.p_value * len(monitor.relations))
            row |= {**_stream(stream), "adjusted_p_value": adjusted}
        rows.append(row)
    return {
        "model": monitor.predictor.model.called,
        "method": monitor.predictor.method.name,
        "verdict": "alarm" if monitor.broken else "no evidence" if monitor.facts else "nothing compared",
        "alarms": monitor.alarms,
        "false_alarm": monitor.false_alarm,
        "calibration_facts": monitor.calibration_facts,
        "facts": monitor.facts,
        "left_out": dict(monitor.left_out),
        "repeats": monitor.repeats,
        "coverage": {
            "confidence": monitor.confidence,
            "facts": facts,
            "covered": None if own else int(monitor.hits_of.sum()),
            "coverage": None if own or not facts else monitor.coverage,
            "p_value": None if own else monitor.coverage_p_value,
        },
        "martingale": {**_stream(monitor.all), "rate": monitor.rate},
        "relations": {"watched": len(monitor.relations), "rows": rows},
    }


def _stream(stream: Stream) -> dict[str, Any]:
    logs = (stream.martingale.log_capital, stream.martingale.log_largest, stream.log_alarm)
    names = ("log10_capital", "log10_largest", "log10_alarm")
    return {
        **{name: log / math.log(10) for name, log in zip(names, logs, strict=True)},
        "alarm_at": stream.alarm_at,
        "p_value": stream.martingale.p_value,
    }


SHOWN = 12
"""Relations in the text; the object has all."""


def monitor_text(findings: Mapping[str, Any], path: Floats) -> str:
    """The findings in sentences; path: the logarithm of the capital after each fact."""
    martingale, kept, coverage = findings["martingale"], findings["state"], findings["coverage"]
    lines = [
        f"{findings['facts']:,} labelled facts beside {findings['calibration_facts']:,} facts to compare with"
        + (
            ""
            if kept is None
            else f", in {counted(kept['calls'], 'call')} ({kept['facts_before']:,} before this one)"
        )
    ]
    left_out = {kind: count for kind, count in findings["left_out"].items() if count}
    if left_out:
        named = ", ".join(f"{count:,} about a {kind}" for kind, count in left_out.items())
        lines.append(f"left out, because no calibration fact is of their kind or a label is new: {named}")
    if findings["repeats"]:
        lines.append(
            "left out, because another fact of the same new entity, pair or triple is counted: "
            f"{findings['repeats']:,}"
        )
    if kept is not None and kept["learned"]:
        lines.append(f"left out, because an update has learned from them: {kept['learned']:,}")
    if not findings["facts"]:
        return "\n".join(
            [*lines, "there is nothing to compare: no labelled fact is of a kind that was calibrated"]
        )
    lines += [
        _coverage_sentence(coverage),
        f"evidence against the promise: {_times(martingale['log10_capital'])} now, "
        f"{_times(martingale['log10_largest'])} at most; alarm at {_times(martingale['log10_alarm'])}",
        sparkline(path, martingale["log10_alarm"] * math.log(10)),
    ]
    if findings["relations"]["watched"]:
        lines += [_relation_table(findings["relations"])]
    return "\n".join([*lines, verdict(findings), scope(findings)])


def _coverage_sentence(coverage: Mapping[str, Any]) -> str:
    level = f"{100 * coverage['confidence']:g} %"
    if coverage["coverage"] is None:
        return (
            f"coverage at {level} is not counted: since the update these facts set the thresholds themselves"
        )
    shares = (
        f"coverage at {level}: {coverage['coverage']:.4f} ({coverage['covered']:,} of {coverage['facts']:,})"
    )
    if coverage["coverage"] >= coverage["confidence"]:
        return f"{shares}, which is above the level"
    if coverage["p_value"] is None:
        return f"{shares}; no law says how far below the level chance alone may take it"
    return f"{shares}; by chance so few or fewer with probability {coverage['p_value']:.3g} at most (for one look)"


def verdict(findings: Mapping[str, Any]) -> str:
    """The verdict as one sentence."""
    rate, coverage = f"{findings['false_alarm']:g}", findings["coverage"]
    if findings["verdict"] == "no evidence":
        low = coverage["p_value"] is not None and coverage["p_value"] <= findings["false_alarm"]
        doubt = "; the low coverage above is a sign of its own, if this was the only look" if low else ""
        if coverage["coverage"] is not None and coverage["coverage"] >= coverage["confidence"]:
            doubt = "; coverage above the level breaks no promise"
        return (
            "no evidence against the promise: no sign that these facts are unlike the calibration facts "
            f"(false-alarm rate {rate}){doubt}"
        )
    first, relations = (
        findings["martingale"]["alarm_at"],
        [name for name in findings["alarms"] if name != "all"],
    )
    reasons = [f"the alarm went off at fact {first:,}"] if first is not None else []
    if relations:
        more = f" and {len(relations) - 3} more" if len(relations) > 3 else ""
        reasons.append(f"relations with an alarm of their own: {', '.join(relations[:3])}{more}")
    if coverage["coverage"] is not None and coverage["coverage"] >= coverage["confidence"]:
        reasons.append("their intervals still cover often enough, so the run may be wider than it need be")
    return (
        "alarm: strong evidence that these facts are not like the calibration facts, for which alone the promise "
        f"was made; {'; '.join(reasons)} (false-alarm rate {rate})"
    )


def scope(findings: Mapping[str, Any]) -> str:
    """The sentence that says whether the false-alarm rate is for this call or for all calls."""
    rate, kept = f"{findings['false_alarm']:g}", findings["state"]
    if kept is None:
        return (
            f"This call is a test of its own: over several calls false alarms of rate {rate} each add up; "
            "--state FILE makes them one test."
        )
    begun = kept["begun"]
    again = (
        f" It has begun {begun} times, because updates learned from facts that it had counted; monitor after the "
        "update and it goes on."
        if begun > 1
        else ""
    )
    return f"All calls with {kept['file']} are one test, with one false-alarm rate of {rate}.{again}"


def sparkline(path: Floats, alarm: float, columns: int = 60) -> str:
    """The largest capital in each stretch of the facts, from 1 or less (lowest bar) to the alarm (highest).

    >>> sparkline(np.array([0.0, 1.0, 2.0, 4.6]), alarm=4.6)
    '▁▂▄█'
    """
    bars = "▁▂▃▄▅▆▇█"
    cuts = np.linspace(0, len(path), min(columns, len(path)) + 1).astype(int)[:-1]
    share = np.clip(np.maximum.reduceat(path, cuts) / alarm, 0, 1) if len(path) else ()
    return "".join(bars[int(value * (len(bars) - 1))] for value in share)


def _relation_table(relations: Mapping[str, Any]) -> str:
    rows = sorted(relations["rows"], key=lambda row: (-row.get("log10_largest", -math.inf), -row["facts"]))
    table = FigureTable(["relation", "facts", "coverage", "evidence", "adjusted p", ""])
    for row in rows[:SHOWN]:
        evidence = (
            [_times(row["log10_largest"]), f"{row['adjusted_p_value']:.2g}"]
            if "log10_largest" in row
            else ["-", "-"]
        )
        alarm = "ALARM" if row.get("alarm_at") else ""
        table.add(row["relation"], f"{row['facts']:,}", number(row["coverage"]), *evidence, alarm)
    more = [f"... and {len(rows) - SHOWN:,} more relations (--json lists all)"] if len(rows) > SHOWN else []
    return "\n".join([table.terminal(), *more])


def _times(log10: float) -> str:
    """A capital: 0.3, 45, 1e+12."""
    return f"1e{log10:+.0f}" if abs(log10) > 6 else f"{10**log10:.3g}"


def order_caution(facts: Graph) -> str | None:
    """A sentence if the facts seem to be sorted, so that their order is not the one in which they came; else None.

    In a file sorted by relation or entity every new block looks like a change, though the facts may be as before.
    """
    names = ("head", "relation", "tail", "confidence")
    by = [name for name in names if _sorted(getattr(facts, name))]
    if not by:
        return None
    return (
        f"the facts seem to be sorted by {' and '.join(by)}, which looks like a change even where there is none; "
        "--shuffle takes them in random order"
    )


def _sorted(column: NDArray[Any]) -> bool:
    """Whether the number of equal neighbours is nearer to the most possible than to what random order gives."""
    if len(column) < 2:
        return False
    neighbours = int((column[1:] == column[:-1]).sum())
    counts = np.unique(column, return_counts=True)[1].astype(np.float64)
    by_chance = float((counts * (counts - 1)).sum() / len(column))
    most = len(column) - len(counts)
    return most - by_chance >= 20 and neighbours - by_chance >= 0.5 * (most - by_chance)
