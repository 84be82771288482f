"""The paper's figures, drawn from the cells, and one HTML page with all tables and figures."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from benchmarks.paper.blocks import PREDICTORS, Block
from benchmarks.paper.cells import LEVEL, LEVELS
from benchmarks.paper.tables import Table

# Okabe and Ito's colours, which colour-blind readers tell apart; marks and lines differ too
LOOKS = {
    "fpi": {"color": "#dd9200", "marker": "^", "linestyle": ":"},
    "qr": {"color": "#cc79a7", "marker": "D", "linestyle": "-."},
    "cp": {"color": "#0068a8", "marker": "s", "linestyle": "--", "markerfacecolor": "white"},
    "unkgcp": {"color": "#c94a00", "marker": "o", "linestyle": "-"},
}
INK = {"color": "#1f2328", "linewidth": 0.8, "linestyle": (0, (3, 3))}
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "unkgcp",
    "font.size": 8.5,
    "lines.markersize": 4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#d4dae0",
    "figure.constrained_layout.use": True,
}
TITLES = {
    "levels": "Mean width and coverage against the level (the paper's Figures 1 and 4-8)",
    "conditionality": "Mean width of covering intervals against the error (Figures 2 and 9-13)",
    "calibration": "Coverage and width against the number of calibration facts (Figures 3 and 14-18)",
}
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-size:.85rem}td,th{padding:.15rem .6rem;border-bottom:1px solid #d4dae0;"
    "text-align:left}div{overflow-x:auto}"
)


def draw(blocks: Sequence[Block]) -> Iterator[tuple[str, Figure]]:
    """(name, figure) of every figure, a protocol and a data set at a time."""
    drawings = {"levels": draw_levels, "conditionality": draw_errors, "calibration": draw_sizes}
    with matplotlib.rc_context(SETTINGS):
        for protocol, data in dict.fromkeys((block.protocol, block.data) for block in blocks):
            chosen = [block for block in blocks if (block.protocol, block.data) == (protocol, data)]
            for part in ("positive", "negative"):
                for kind, drawing in drawings.items():
                    yield f"{kind}-{protocol}-{data}-{part}", panels(chosen, part, drawing)


def panels(blocks: Sequence[Block], part: str, drawing: Callable[[Any, Any, Block, str], None]) -> Figure:
    """Two rows of axes with a column for each model, and one legend."""
    figure = Figure(figsize=(0.7 + 2.2 * len(blocks), 4.3))
    grid = figure.subplots(2, len(blocks), sharex="col", sharey="row", squeeze=False)
    for (top, bottom), block in zip(grid.T, blocks, strict=True):
        drawing(top, bottom, block, part)
        top.set_title(block.titles[1], loc="left", weight="bold")
    handles = {
        line.get_label(): line for axes in grid[0] for line in axes.lines if line.get_label()[0] != "_"
    }
    figure.legend(handles.values(), handles, loc="outside upper left", ncols=len(handles) or 1, frameon=False)
    return figure


def curve(axes: Any, method: str, x: Any, mean: Any, spread: Any = None) -> None:
    axes.plot(x, mean, label=PREDICTORS[method], **LOOKS[method])
    if spread is not None:
        low, high = np.clip([mean - spread, mean + spread], 0, 1)
        axes.fill_between(x, low, high, color=LOOKS[method]["color"], alpha=0.15, linewidth=0)


def draw_levels(top: Any, bottom: Any, block: Block, part: str) -> None:
    for method in block.methods("predictors"):
        for axes, kind in ((top, "sharpness"), (bottom, "coverage")):
            means = np.array([block.figure(method, part, kind, level) for level in LEVELS])
            curve(axes, method, LEVELS, means[:, 0], np.nan_to_num(means[:, 1]))
    bottom.plot(LEVELS, LEVELS, **INK)
    bottom.set_xticks(LEVELS, [f"{100 * level:g}" for level in LEVELS])
    bottom.set(xlabel="level (%)", ylabel="coverage")
    top.set(ylabel="mean width")


def draw_errors(top: Any, bottom: Any, block: Block, part: str) -> None:
    path = ("conditionality", part)
    edges = block.values(*path, "edges").mean(0)
    middle = (edges[1:] + edges[:-1]) / 2
    for method in block.methods(*path, "predictors"):
        widths = np.ma.masked_invalid(block.values(*path, "predictors", method, "width"))
        curve(top, method, middle, widths.mean(0).filled(np.nan))
    bottom.bar(middle, block.values(*path, "count").sum(0), width=np.diff(edges) * 0.86, color="#5b636c")
    bottom.set_yscale("symlog", linthresh=1)
    bottom.set(xlabel="absolute error of the prediction", ylabel="facts")
    top.set(ylabel="mean width, covered facts")


def draw_sizes(top: Any, bottom: Any, block: Block, part: str) -> None:
    for method, figures in block.curves(part):
        for axes, kind in ((top, "coverage"), (bottom, "sharpness")):
            curve(axes, method, block.sizes(part), figures[kind], figures[f"{kind}_sd"])
    top.axhline(LEVEL, **INK)
    bottom.set_xscale("log")
    bottom.set(xlabel="calibration facts", ylabel="mean width")
    top.set(ylabel="coverage")


def write_page(folder: Path, tables: Sequence[Table], blocks: Sequence[Block]) -> Path:
    """figures/*.svg, and report.html with every table and figure in it."""
    sections = [f"<h2 id='{t.name}'>{escape(t.title)}</h2><p>{escape(t.note)}</p>{html(t)}" for t in tables]
    pictures: dict[str, list[str]] = {kind: [] for kind in TITLES}
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, figure in draw(blocks):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        (folder / "figures" / f"{name}.svg").write_text(buffer.getvalue(), encoding="utf-8")
        svg = buffer.getvalue()
        image = (
            f"<img alt='{name}' src='figures/{name}.svg'>"
            if len(svg) > 2_000_000
            else svg[svg.index("<svg") :]
        )
        pictures[name.split("-")[0]].append(f"<h3>{escape(name)}</h3><div>{image}</div>")
    sections += [f"<h2>{escape(TITLES[kind])}</h2>{''.join(found)}" for kind, found in pictures.items()]
    title = "Prediction intervals for uncertain knowledge graphs: the paper's experiments"
    head = (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title><style>{STYLE}</style>"
    )
    path = folder / "report.html"
    path.write_text(f"{head}<h1>{title}</h1>{''.join(sections)}</html>\n", encoding="utf-8")
    return path


def html(table: Table) -> str:
    """The table as HTML; what Markdown sets in bold stays so."""
    cells = [[escape(cell) for cell in row] for row in (table.columns, *table.rows)]
    texts = [[f"<b>{cell[2:-2]}</b>" if cell.startswith("**") else cell for cell in row] for row in cells]
    rows = [
        "".join(f"<{tag}>{cell}</{tag}>" for cell in row)
        for tag, row in zip(["th", *["td"] * len(table.rows)], texts, strict=True)
    ]
    return f"<div><table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table></div>"
