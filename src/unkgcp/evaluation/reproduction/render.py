"""A table in three forms: Markdown to read, LaTeX to print, CSV to compute with.

A table has display rows, in which a cell may be marked valid or best, and plain records for the CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unkgcp.files import write_text


@dataclass(frozen=True)
class Cell:
    """A text with its marks: `valid` (reaches the level), `best` (the sharpest valid one of its group)."""

    text: str
    valid: bool = False
    best: bool = False


@dataclass
class Table:
    """Display rows under a header; `rules` are the rows before which a line is drawn in LaTeX."""

    name: str
    title: str
    note: str
    header: Sequence[str]
    rows: list[list[Cell]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    rules: list[int] = field(default_factory=list)

    def add(self, *cells: str | Cell) -> None:
        self.rows.append([cell if isinstance(cell, Cell) else Cell(cell) for cell in cells])

    def rule(self) -> None:
        """A line before the next row."""
        self.rules.append(len(self.rows))

    def write(self, folder: Path) -> None:
        """name.md, name.csv and name.tex in the folder."""
        write_text(folder / f"{self.name}.md", self.markdown())
        write_text(folder / f"{self.name}.csv", self.csv())
        write_text(folder / f"{self.name}.tex", self.latex())

    def markdown(self) -> str:
        def shown(cell: Cell) -> str:
            text = cell.text.replace("|", "\\|")
            text = f"**{text}**" if cell.best else text
            return f"{text} ✓" if cell.valid else text

        lines = [f"# {self.title}", "", self.note, "", "| " + " | ".join(self.header) + " |"]
        lines.append("|" + "---|" * len(self.header))
        lines += ["| " + " | ".join(shown(cell) for cell in row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        def shown(cell: Cell) -> str:
            text = escape(cell.text)
            text = f"\\textbf{{{text}}}" if cell.best else text
            return f"\\textcolor[HTML]{{006B3C}}{{{text}}}" if cell.valid else text

        lines = [
            "% needs booktabs and xcolor",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{escape(self.title)}. {escape(self.note)}}}",
            f"\\begin{{tabular}}{{{'l' * len(self.header)}}}",
            "\\toprule",
            " & ".join(escape(title) for title in self.header) + " \\\\",
            "\\midrule",
        ]
        for place, row in enumerate(self.rows):
            if place in self.rules and place:
                lines.append("\\midrule")
            lines.append(" & ".join(shown(cell) for cell in row) + " \\\\")
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}"]) + "\n"

    def csv(self) -> str:
        """The records, or the display rows where there are none."""
        text = io.StringIO()
        if self.records:
            writer = csv.DictWriter(text, list(self.records[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.records)
        else:
            plain = csv.writer(text, lineterminator="\n")
            plain.writerow(self.header)
            plain.writerows([cell.text for cell in row] for row in self.rows)
        return text.getvalue()


def escape(text: str) -> str:
    """Text as LaTeX shows it."""
    table = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    table |= {mark: f"\\{mark}" for mark in "&%$#_{}"}
    return (
        "".join(table.get(mark, mark) for mark in text).replace("±", "$\\pm$").replace("✓", "\\checkmark{}")
    )


def number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def with_spread(found: dict[str, Any] | None, digits: int = 3) -> str:
    """mean (standard deviation)."""
    if found is None or found["mean"] is None:
        return "-"
    return f"{found['mean']:.{digits}f}" + ("" if found["sd"] is None else f" ({found['sd']:.{digits}f})")


def as_printed(pair: Sequence[float | None]) -> str:
    """[mean, standard deviation] the way the paper prints it."""
    return "-" if pair[0] is None else f"{pair[0]:.2f} ({pair[1]:.3f})"


def difference(ours: float | None, theirs: float | None, digits: int = 2) -> str:
    if ours is None or theirs is None:
        return "-"
    return f"{ours - theirs:+.{digits}f}"
