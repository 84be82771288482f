"""One design for every figure: palette, type, and how a figure becomes SVG and PNG.

All settings and colours of matplotlib are here. The colours are Okabe and Ito's, which colour-blind readers tell
apart; what differs in colour also differs in mark or line, so that a figure reads in grey too. Text stays text in SVG,
and the same data give the same bytes. matplotlib is loaded when something is drawn; without it drawing is an
`InputError` that names the extra to install.

>>> with design():                                            # doctest: +SKIP
...     svg = image(draw_slices(["a"], [100], [0.9], 0.9), "svg")
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from unkgcp.lazy import library

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


DASHED = (0, (3, 3))
_PROPERTIES = {"#ffffff": "var(--paper)", **{code: f"var(--{name})" for name, code in COLOURS.items()}}
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
    "savefig.dpi": 160,
}


@contextmanager
def design() -> Iterator[None]:
    """Everything drawn and saved inside has the common design."""
    matplotlib = library("matplotlib", "a figure")
    with matplotlib.rc_context(), warnings.catch_warnings():
        # a label may be in a script that the layout's font lacks; the font of the page has it
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def sheet(width: float, height: float) -> Any:
    """An empty figure of so many inches, without a window and without matplotlib's global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def image(figure: Any, kind: str) -> bytes:
    """A figure of matplotlib as an `svg` or `png` file, without a date; the same figure gives the same bytes."""
    engine = figure.get_layout_engine()
    if engine is not None:  # laid out once, so that every later rendering has the same layout
        engine.execute(figure)
        figure.set_layout_engine("none")
    buffer = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()


def inline(svg: str, name: str, description: str) -> str:
    """An SVG of `image` for the inside of a page: with ids of its own, and the page's colours and font.

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
