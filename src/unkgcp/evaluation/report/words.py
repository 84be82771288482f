"""Numbers as a reader wants them: percentages, spans, means with their spread, durations."""

from __future__ import annotations

import math
from typing import Any

from unkgcp.evaluation.report.html import Html, tag

DATA = {"cn15k": "CN15k", "nl27k": "NL27k", "ppi5k": "PPI5k", "demo": "demo graph"}
NOTHING = "\N{EN DASH}"


def data_name(name: object) -> str:
    """What a data set is called: the benchmarks as the paper writes them, a file by the last part of its path."""
    written = str(name)
    return DATA.get(written) or written.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or written


def percent(value: float, digits: int = 0) -> str:
    """`90 %`, with a narrow space; more digits where the level has them."""
    shown = f"{100 * value:.{digits}f}" if digits else f"{round(100 * value, 4):g}"
    return f"{shown}\u202f%"


def span(ends: tuple[float, float]) -> str:
    """`0.123–0.456`."""
    return f"{ends[0]:.3f}\N{EN DASH}{ends[1]:.3f}"


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash where there is none."""
    return NOTHING if value is None or math.isnan(value) else f"{value:.{digits}f}"


def mean_sd(entry: dict[str, Any], digits: int = 3) -> str:
    """`0.901 (0.003)`; the spread is left out where there is none."""
    spread = "" if entry.get("sd") is None else f" ({number(entry['sd'], digits)})"
    return number(entry.get("mean"), digits) + spread


def difference(ours: float | None, theirs: float | None) -> Html:
    """Ours less theirs, with its sign; emphasised beyond 0.05."""
    if ours is None or theirs is None:
        return tag("span", NOTHING, class_="small")
    gap = ours - theirs
    shown = f"{gap:+.3f}".replace("-", "\N{MINUS SIGN}")
    return tag("span", shown, class_="away" if abs(gap) > 0.05 else "small")


def duration(seconds: float | None) -> str:
    """`12 s`, `3.4 min` or `1.2 h`."""
    if seconds is None:
        return NOTHING
    if seconds < 120:
        return f"{seconds:.1f}\u202fs" if seconds < 10 else f"{seconds:.0f}\u202fs"
    return f"{seconds / 60:.1f}\u202fmin" if seconds < 7200 else f"{seconds / 3600:.1f}\u202fh"
