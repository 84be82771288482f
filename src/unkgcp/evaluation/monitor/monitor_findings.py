"""What a monitor found: as one plain object, which `unkgcp monitor --json` prints, in sentences, and as a picture.

The `verdict` of the object is `alarm`, or `no evidence` against the promise, which does not say that the promise holds.
Capital is given as its logarithm to base 10, because it may be too large for a float.

>>> describe(monitor)["verdict"]     # doctest: +SKIP
'no evidence'
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.evaluation.monitor import Monitor, Stream
from unkgcp.evaluation.tables import Table, number
from unkgcp.files import atomic_path
from unkgcp.graph.facts import Graph

LAWS = {True: "beta-binomial", False: "hypergeometric"}
CORRECTION = (
    "Bonferroni over the relations with a martingale of their own, within half of the false-alarm rate"
)


def describe(monitor: Monitor) -> dict[str, Any]:
    """All findings after the facts so far."""
    predictor, facts = monitor.predictor, monitor.facts
    return {
        "model": predictor.model.called,
        "method": predictor.method.name,
        "verdict": "alarm" if monitor.broken else "no evidence" if facts else "nothing compared",
        "alarms": monitor.alarms(),
        "false_alarm": monitor.false_alarm,
        "calibration_facts": len(monitor.reference.scores),
        "facts": facts,
        "unknown": dict(monitor.unknown),
        "coverage": {
            "confidence": monitor.confidence,
            "covered": monitor.hits,
            "coverage": monitor.hits / facts if facts else None,
            "p_value": monitor.coverage_p_value,
            "law": LAWS[monitor.reference.hits is None],
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
    """A sentence if the facts seem to be sorted, so that their order is not the one in which they came; else None.

    In a file sorted by relation or entity every new block looks like a change, though the facts may be as before.
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
    """Whether the number of equal neighbours is nearer to the most possible than to what random order gives."""
    if len(column) < 2:
        return False
    neighbours = int((column[1:] == column[:-1]).sum())
    counts = np.unique(column, return_counts=True)[1].astype(np.float64)
    by_chance = float((counts * (counts - 1)).sum() / len(column))
    most = len(column) - len(counts)
    return most - by_chance >= 20 and neighbours - by_chance >= 0.5 * (most - by_chance)


# The text for people: a few sentences, a line that draws the capital over the facts, and the relations.

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
    if found["relations"]["watched"]:
        lines += ["", _relation_lines(found["relations"])]
    return "\n".join([*lines, "", verdict(found), scope(found)])


def scope(found: dict[str, Any]) -> str:
    """The sentence that says whether the false-alarm rate is for this call or for all calls."""
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
    """The verdict as one sentence."""
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


def _relation_lines(relations: dict[str, Any]) -> str:
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
    lines = [Table(["relation", "facts", "coverage", "evidence", "adjusted p", ""], shown).terminal()]
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


# The picture: the capital over the facts, as SVG, PNG or PDF.

ENDINGS = (".svg", ".png", ".pdf")
RELATIONS = 3
"""Relations drawn: those with the most evidence against them."""


def check_target(path: str) -> None:
    """Refuse a name that says no kind of picture, before any work is done."""
    if not path.lower().endswith(ENDINGS):
        raise InputError(f"{path} does not end in {', '.join(ENDINGS)}; its ending says how to draw it")


def draw(monitor: Monitor, path: str) -> None:
    """Write the picture; it appears under its name when it is whole."""
    check_target(path)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("a plot needs matplotlib: pip install 'unkgcp[plot]'") from None
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    _evidence(axes, monitor)
    ending = path.lower().rsplit(".", 1)[1]
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(ending, {})
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=ending, dpi=150, metadata=metadata)


def _evidence(axes: Any, monitor: Monitor) -> None:
    streams = sorted(monitor.relations.items(), key=lambda item: -item[1].martingale.log_largest)
    labels = monitor.predictor.model.vocabulary.relations
    for code, stream in streams[:RELATIONS]:
        if len(stream.path):
            # in units of its own alarm, so that one line shows the alarm of all of them
            scaled = stream.path * (monitor.all.log_alarm / stream.log_alarm)
            place = np.linspace(1, max(monitor.facts, 1), len(scaled))
            axes.plot(place, scaled / math.log(10), lw=0.8, alpha=0.7, label=labels[code].as_py())
    path = monitor.all.path
    axes.plot(np.arange(1, len(path) + 1), path / math.log(10), color="black", lw=1.4, label="all facts")
    axes.axhline(
        monitor.all.log_alarm / math.log(10),
        color="tab:red",
        ls="--",
        lw=1,
        label=f"alarm ({monitor.false_alarm:g})",
    )
    axes.axhline(0, color="grey", lw=0.5)
    axes.set(xlabel="labelled facts", ylabel="evidence against (log10 capital)")
    coverage = monitor.hits / monitor.facts if monitor.facts else math.nan
    axes.set_title(
        f"{'alarm' if monitor.broken else 'no evidence against'}: coverage {coverage:.3f} at {monitor.confidence:g}",
        loc="left",
    )
    axes.figure.legend(frameon=False, fontsize="small", loc="outside right upper")
