"""The capital and the coverage of a monitored stream, drawn over the facts, as SVG, PNG or PDF."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from unkgcp.errors import InputError
from unkgcp.evaluation.monitor.watch import Monitor
from unkgcp.files import atomic_path

ENDINGS = (".svg", ".png", ".pdf")
RELATIONS = 3
"""Relations drawn: those with the most evidence against them."""


def check_target(path: str) -> None:
    """Refuse a name that says no kind of picture, before any work is done."""
    if not path.lower().endswith(ENDINGS):
        raise InputError(f"{path} does not end in {', '.join(ENDINGS)}; its ending says how to draw it")
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder; give the name of a file")


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
            # in units of its own alarm, so that one line stands for all of them
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
