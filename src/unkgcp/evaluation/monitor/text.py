"""What a monitor found, for people: a few sentences, a line that shows how the capital went, and the relations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evaluation.text import number, table

BARS = "▁▂▃▄▅▆▇█"
SHOWN = 12
"""Relations listed: those with the most evidence against them."""


def monitor_text(found: dict[str, Any], path: NDArray[np.float64]) -> str:
    """The object of `describe` in words; path: (facts,) the logarithm of the capital after each fact."""
    coverage, martingale = found["coverage"], found["martingale"]
    unknown = sum(found["unknown"].values())
    lines = [
        f"{found['model']} + {found['method']}, {found['calibration_facts']:,} calibration facts; "
        f"{found['facts']:,} labelled facts{_calls(found.get('state'))}"
        + (f", {unknown:,} more left out: {_unknown(found['unknown'])}" if unknown else "")
    ]
    if not found["facts"]:
        return "\n".join([*lines, "there is nothing to compare: no labelled fact is about known things"])
    lines += [
        "",
        f"coverage at {coverage['confidence']:g}: {coverage['coverage']:.4f} ({coverage['covered']:,} of "
        f"{found['facts']:,}), as few or fewer by chance with probability {coverage['p_value']:.3g} "
        f"({coverage['law']}; for one look)",
        f"evidence: {_times(martingale['log10_capital'])} now, {_times(martingale['log10_largest'])} at most; "
        f"alarm at {_times(martingale['log10_alarm'])} (may be looked at after every fact)",
        sparkline(path, martingale["log10_alarm"] * math.log(10)),
    ]
    if found["relations"]["rows"]:
        lines += ["", _relations(found["relations"])]
    return "\n".join([*lines, "", verdict(found), scope(found)])


def scope(found: dict[str, Any]) -> str:
    """How far the false-alarm rate reaches."""
    rate = f"{found['false_alarm']:g}"
    if found.get("state") is None:
        return (
            f"This call is a test of its own: over several calls false alarms of rate {rate} each add up; "
            "--state FILE makes them one test."
        )
    return f"All calls with {found['state']['file']} are one test, with one false-alarm rate of {rate}."


def _calls(state: dict[str, Any] | None) -> str:
    if state is None:
        return ""
    calls = state["calls"]
    return f" in {calls:,} call{'' if calls == 1 else 's'} ({state['facts_before']:,} before this one)"


def verdict(found: dict[str, Any]) -> str:
    """One sentence."""
    rate = f"{found['false_alarm']:g}"
    if found["verdict"] == "no evidence":
        return (
            "no evidence against the promise: no sign that these facts are unlike the calibration facts "
            f"(false-alarm rate {rate})"
        )
    first = found["martingale"]["alarm_at"]
    relations = [name for name in found["alarms"] if name != "all"]
    parts = [f"the alarm went off at fact {first:,}"] if first is not None else []
    if relations:
        more = f" and {len(relations) - 3} more" if len(relations) > 3 else ""
        parts.append(f"relations with an alarm of their own: {', '.join(relations[:3])}{more}")
    return (
        "alarm: strong evidence that these facts are not like the calibration facts, for which alone the promise "
        f"was made; {'; '.join(parts)} (false-alarm rate {rate})"
    )


def sparkline(path: NDArray[np.float64], alarm: float, columns: int = 60) -> str:
    """The largest capital in each stretch of the facts, from 1 or less (lowest bar) to the alarm (highest).

    >>> sparkline(np.array([0.0, 1.0, 2.0, 4.6]), alarm=4.6)
    '▁▂▄█'
    """
    if not len(path):
        return ""
    cuts = np.linspace(0, len(path), min(columns, len(path)) + 1).astype(int)[:-1]
    share = np.clip(np.maximum.reduceat(path, cuts) / alarm, 0, 1)
    return "".join(BARS[int(value)] for value in share * (len(BARS) - 1))


def _relations(relations: dict[str, Any]) -> str:
    rows = sorted(
        relations["rows"],
        key=lambda row: (-row.get("log10_largest", -math.inf), -row["facts"], row["relation"]),
    )
    shown = [
        [
            row["relation"],
            f"{row['facts']:,}",
            number(row["coverage"], 3),
            _times(row["log10_largest"]) if "log10_largest" in row else "-",
            f"{row['adjusted_p_value']:.2g}" if "log10_largest" in row else "-",
            "ALARM" if row.get("alarm_at") else "",
        ]
        for row in rows[:SHOWN]
    ]
    lines = [table(["relation", "facts", "coverage", "evidence", "adjusted p", ""], shown)]
    if len(rows) > SHOWN:
        lines.append(f"... and {len(rows) - SHOWN:,} more relations (--json lists all)")
    if relations["correction"]:
        lines.append(f"{relations['watched']:,} relations watched: {relations['correction']}")
    return "\n".join(lines)


def _unknown(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in counts.items() if count)


def _times(log10: float) -> str:
    """A capital: 0.3, 45, 1e+12."""
    return f"1e{log10:+.0f}" if abs(log10) > 6 else f"{10**log10:.3g}"
