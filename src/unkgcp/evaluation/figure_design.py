"""One design for every figure: palette, marks, type, and how a figure becomes SVG and PNG.

All settings and colours of matplotlib are here. The colours are Okabe and Ito's, which colour-blind readers tell
apart; every method and model also has a mark and a line style of its own, so that a figure reads in grey too. Text
stays text in SVG, and the same data give the same bytes. matplotlib is loaded when something is drawn; without it
drawing is an `InputError` that names the extra to install.

>>> with design():                                            # doctest: +SKIP
...     save(draw_levels(panels), "figures/levels")
[PosixPath('figures/levels.svg'), PosixPath('figures/levels.png')]
"""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from unkgcp.errors import InputError
from unkgcp.files import atomic_path

# names of colours (custom properties of the report's style sheet) -> the colours on white paper
COLOURS = {
    "ink": "#1f2328",
    "soft": "#5b636c",
    "rule": "#d4dae0",
    "band": "#e4e9ee",
    "orange": "#dd9200",
    "sky": "#56b4e9",
    "green": "#00956d",
    "blue": "#0068a8",
    "red": "#c94a00",
    "plum": "#cc79a7",
}
INK, SOFT, RULE, BAND = (COLOURS[name] for name in ("ink", "soft", "rule", "band"))


class Look(NamedTuple):
    """How one series is drawn and called."""

    name: str
    colour: str
    marker: str
    line: str | tuple[float, tuple[float, ...]]
    size: float = 4.5
    hollow: bool = False


METHODS = {
    "fpi": Look("FPI", COLOURS["orange"], "^", (0, (1.2, 1.4))),
    "qr": Look("QR", COLOURS["plum"], "D", (0, (4, 1.2, 1.2, 1.2))),
    "cp": Look("CP", COLOURS["blue"], "s", (0, (4, 1.6)), 6.5, hollow=True),
    "unkgcp": Look("UnKGCP", COLOURS["red"], "o", "-", 4.0),
    "shortest": Look("shortest", COLOURS["sky"], "v", (0, (6, 1.2))),
    "evidence": Look("evidence", COLOURS["green"], "P", "-"),
    "best": Look("best possible", COLOURS["ink"], "_", (0, (6, 2))),
}
# for confidences that are intervals: never in one figure with the others
INTERVAL_METHODS = {
    "joint": Look("joint", COLOURS["red"], "o", "-"),
    "mean-length": Look("mean and length", COLOURS["blue"], "s", (0, (4, 1.6)), hollow=True),
}
MODELS = {
    "ukge": Look("UKGE", COLOURS["blue"], "o", "-"),
    "ukge-rect": Look("UKGE rect", COLOURS["sky"], "D", (0, (1.2, 1.4))),
    "passleaf": Look("PASSLEAF", COLOURS["orange"], "s", (0, (4, 1.6))),
    "beurre": Look("BEUrRE", COLOURS["green"], "^", (0, (4, 1.2, 1.2, 1.2))),
}
# how the paper writes the names of its data sets
DATA = {"cn15k": "CN15k", "nl27k": "NL27k", "ppi5k": "PPI5k"}
_PROPERTIES = {"#ffffff": "var(--paper)", **{code: f"var(--{name})" for name, code in COLOURS.items()}}
_SPARE = ("red", "blue", "green", "orange", "plum", "sky")
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "unkgcp",
    "text.parse_math": False,  # a label may hold dollar signs
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that a layout is the same everywhere
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 6,
    "axes.labelsize": 8.5,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "xtick.major.width": 0.7,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 2.4,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.constrained_layout.h_pad": 0.05,
    "figure.constrained_layout.wspace": 0.03,
    "figure.constrained_layout.hspace": 0.04,
    "savefig.dpi": 200,
}


def look(name: str, place: int = 0) -> Look:
    """The look of a method or a model; an unknown one gets a colour by its place."""
    known = (METHODS | INTERVAL_METHODS | MODELS).get(name)
    return known or Look(name, COLOURS[_SPARE[place % len(_SPARE)]], "o", "-")


def curve(
    axes: Any,
    name: str,
    place: int,
    x: ArrayLike,
    mean: ArrayLike,
    spread: ArrayLike | None = None,
    scale: float = 1.0,
) -> Any:
    """Draw a series in its look, with a spread around it if there is one; gives the line, for the legend.

    x, mean, spread: (n,). `scale` makes marks and line smaller where there are many.
    """
    style = look(name, place)
    values = np.asarray(mean, dtype=np.float64)
    if spread is not None:
        half = np.nan_to_num(np.asarray(spread, dtype=np.float64))
        low, high = np.maximum(values - half, 0.0), np.minimum(values + half, 1.0)
        axes.fill_between(x, low, high, color=style.colour, alpha=0.15, linewidth=0)
    (line,) = axes.plot(
        x,
        values,
        color=style.colour,
        linestyle=style.line,
        linewidth=1.6 * scale,
        marker=style.marker,
        markersize=style.size * scale,
        markerfacecolor="white" if style.hollow else style.colour,
        markeredgewidth=1.3 * scale if style.hollow else 0,
    )
    return line


def legend(figure: Any, handles: Mapping[str, Any], asked: Any = None) -> None:
    """One row of names above the panels; `asked` is the line of the level asked for."""
    named = {look(name, place).name: line for place, (name, line) in enumerate(handles.items())}
    if asked is not None:
        named["level asked for"] = asked
    figure.legend(
        named.values(),
        named,
        loc="outside upper left",
        ncols=min(len(named), max(2, int(figure.get_figwidth() / 1.15))),
        columnspacing=1.6,
        borderpad=0.0,
        borderaxespad=0.2,
    )


def matplotlib() -> Any:
    """The drawing library, or one sentence that says how to get it."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("figures need matplotlib; install it with pip install 'unkgcp[plot]'") from None
    return matplotlib


@contextmanager
def design() -> Iterator[None]:
    """Everything drawn and saved inside has the common design."""
    library = matplotlib()
    with library.rc_context(), warnings.catch_warnings():
        # a label may be in a script that the layout's font lacks; the font of the page has it
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        library.rcdefaults()
        library.rcParams.update(_SETTINGS)
        yield


def sheet(width: float, height: float) -> Any:
    """An empty figure of so many inches, without a window and without matplotlib's global state."""
    matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


class Drawn(NamedTuple):
    """A figure of matplotlib and the numbers that it shows, a row for each mark."""

    figure: Any
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    def csv(self) -> str:
        """The numbers as CSV, without the columns in which there is nothing."""
        plain = [["" if cell is None or cell != cell else cell for cell in row] for row in self.rows]
        kept = [place for place in range(len(self.columns)) if any(row[place] != "" for row in plain)]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([row[place] for place in kept] for row in [self.columns, *plain])
        return text.getvalue()


def save(drawn: Drawn, stem: str | os.PathLike[str]) -> list[Path]:
    """Write `stem`.svg and `stem`.png, each whole; neither carries a date."""
    written = []
    figure = drawn.figure
    _settle(figure)
    for kind, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
        path = Path(f"{os.fspath(stem)}.{kind}")
        with atomic_path(path) as partial:
            figure.savefig(partial, format=kind, metadata=metadata)
        written.append(path)
    return written


def _settle(figure: Any) -> None:
    """Lay the figure out once, so that every later rendering has the same layout."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")


def to_svg(drawn: Drawn) -> str:
    """The figure as the text of an SVG file."""
    figure = drawn.figure
    _settle(figure)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def inline(svg: str, name: str, description: str) -> str:
    """An SVG of `to_svg` for the inside of a page: with ids of its own, and the page's colours and font.

    Colours become custom properties (`var(--ink)`), so that the page decides what they are at night and in
    print. `name` must be unique on the page; `description` is what a screen reader says. Only tags are
    touched, never the text between them.
    """
    body = re.sub(r"<(metadata|style)\b.*?</\1>\s*", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', body)
    if size is None:
        raise ValueError("this is no SVG of a figure: it has no size")
    opening = (
        f'<svg role="img" aria-label="{escape(description, quote=True)}" viewBox="0 0 {size[1]} {size[2]}" '
        f'style="--natural: {float(size[1]) / 72:.2f}in">'
    )
    body = body[body.index(">") + 1 :]
    return opening + re.sub(r"<[^>]*>", lambda tag: _adopt(tag[0], name), body).strip()


def _adopt(tag: str, name: str) -> str:
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', tag).replace("url(#", f"url(#{name}-")
    tag = tag.replace("font-family: 'DejaVu Sans'; ", "")
    return re.sub(r"#[0-9a-f]{6}\b", lambda colour: _PROPERTIES.get(colour[0], colour[0]), tag)
