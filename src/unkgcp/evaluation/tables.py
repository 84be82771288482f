"""One model of a table, in five forms: terminal, Markdown, CSV, LaTeX and HTML.

A table is described once (columns, rows, notable cells); each form decides how to show it. HTML is safe by
construction: whatever is not `Html` already is escaped.

>>> print(Table(["level", "coverage"], [["0.9", "0.903"]]).terminal())
level  coverage
0.9       0.903
>>> tag("p", "a < b & ", tag("b", "c"), class_="note")
Html('<p class="note">a &lt; b &amp; <b>c</b></p>')
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from unkgcp.files import write_text

FORMS = ("md", "csv", "tex")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Html({str(self)!r})"


def text(value: object) -> Html:
    """A value as text of a page; markup stays what it is."""
    return value if isinstance(value, Html) else Html(escape(str(value), quote=True))


def join(parts: Iterable[object]) -> Html:
    """Several parts of a page, one after the other."""
    return Html("".join(text(part) for part in parts))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element; `class_` and `for_` lose their underscore, an attribute that is None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>{join(children)}</{name}>")


@dataclass(frozen=True, slots=True)
class Cell:
    """A text that readers should notice.

    `valid`: it reaches the level. `best`: it is the best of its group. `style`: a class of the page's style
    sheet, which only the HTML form uses.
    """

    text: str
    valid: bool = False
    best: bool = False
    style: str | None = None


@dataclass
class Table:
    """Rows under columns. Cells are texts, `Cell` or, in tables made for a page only, `Html`.

    `text_columns` are aligned left on a page, all other columns hold numbers. `groups` are titles above the
    columns, each with the number of columns it spans. `rules` are the rows above which LaTeX draws a line.
    `records` are written by the CSV form instead of the rows, where they hold more. `name` is that of the files.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]] = ()
    name: str = ""
    title: str = ""
    note: str = ""
    text_columns: Collection[int] = (0,)
    groups: Sequence[tuple[str, int]] = ()
    records: list[dict[str, Any]] = field(default_factory=list)
    rules: list[int] = field(default_factory=list)

    def add(self, *cells: str | Cell) -> None:
        self.rows = [*self.rows, cells]

    def rule(self) -> None:
        """Let LaTeX draw a line above the next row."""
        self.rules.append(len(self.rows))

    def terminal(self) -> str:
        """Columns under their titles, the first one aligned left, all others right."""
        lines = [list(self.columns), *([_cell(cell).text for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def markdown(self) -> str:
        def shown(cell: Cell) -> str:
            text = cell.text.replace("|", "\\|")
            text = f"**{text}**" if cell.best else text
            return f"{text} ✓" if cell.valid else text

        lines = [f"# {self.title}", "", self.note, "", f"| {' | '.join(self.columns)} |"]
        lines.append("|" + "---|" * len(self.columns))
        lines += [f"| {' | '.join(shown(_cell(cell)) for cell in row)} |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """The records, or the rows where there are none."""
        written = io.StringIO()
        if self.records:
            writer = csv.DictWriter(written, list(self.records[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.records)
        else:
            plain = csv.writer(written, lineterminator="\n")
            plain.writerow(self.columns)
            plain.writerows([_cell(cell).text for cell in row] for row in self.rows)
        return written.getvalue()

    def latex(self) -> str:
        def shown(cell: Cell) -> str:
            text = latex_text(cell.text)
            text = f"\\textbf{{{text}}}" if cell.best else text
            return f"\\textcolor[HTML]{{006B3C}}{{{text}}}" if cell.valid else text

        lines = [
            "% needs booktabs and xcolor",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{latex_text(self.title)}. {latex_text(self.note)}}}",
            f"\\begin{{tabular}}{{{'l' * len(self.columns)}}}",
            "\\toprule",
            " & ".join(latex_text(title) for title in self.columns) + " \\\\",
            "\\midrule",
        ]
        for place, row in enumerate(self.rows):
            if place in self.rules and place:
                lines.append("\\midrule")
            lines.append(" & ".join(shown(_cell(cell)) for cell in row) + " \\\\")
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}"]) + "\n"

    def html(
        self, *, caption: object = None, class_: str | None = None, titled: bool = False, once: int = 0
    ) -> Html:
        """A table that scrolls by itself where it is too wide.

        `titled`: every cell also carries its column's title, for screens so narrow that rows are set as
        blocks. `once`: in so many leading columns, a name that repeats the one above is left out.
        """

        def kind(place: int) -> str | None:
            return "text" if place in self.text_columns else None

        def shown(cell: Cell, place: int) -> Html:
            found = text(cell.text if kind(place) else _typeset(cell.text))
            if cell.best or cell.style:
                found = tag("span", found, class_=cell.style or "best")
            return join([found, " ✓"]) if cell.valid else found

        titles = (tag("th", title, class_=kind(i), scope="col") for i, title in enumerate(self.columns))
        head = [tag("tr", *titles)]
        if self.groups:
            cells = (tag("th", title, colspan=span, scope="colgroup") for title, span in self.groups)
            head.insert(0, tag("tr", *cells, class_="groups"))
        body: list[Html] = []
        above: list[Cell] = []
        for row in (list(map(_cell, row)) for row in self.rows):
            same = 0
            while same < once and above and row[same] == above[same]:
                same += 1
            above, row = row, [*[Cell("")] * same, *row[same:]]
            first = tag("th", shown(row[0], 0), class_=kind(0), scope="row")
            rest = (
                tag("td", shown(cell, i), class_=kind(i), data_title=self.columns[i] if titled else None)
                for i, cell in enumerate(row[1:], 1)
            )
            body.append(tag("tr", first, *rest))
        parts = [] if caption is None else [tag("caption", caption)]
        inner = tag("table", *parts, tag("thead", *head), tag("tbody", *body), class_=class_)
        named = f"Table: {self.title or ', '.join(filter(None, self.columns))}"
        return tag("div", inner, class_="scroll", tabindex="0", role="group", aria_label=named)

    def write(self, folder: Path) -> list[Path]:
        """name.md, name.csv and name.tex in the folder."""
        paths = [folder / f"{self.name}.{form}" for form in FORMS]
        for path, content in zip(paths, (self.markdown(), self.csv(), self.latex()), strict=True):
            write_text(path, content)
        return paths


def _cell(cell: str | Cell) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)


def _typeset(shown: str) -> str:
    """A number as a page shows it: an en dash for none, a real minus sign."""
    if isinstance(shown, Html) or shown[:1] != "-":
        return shown
    return "\N{EN DASH}" if shown == "-" else shown.replace("-", "\N{MINUS SIGN}")


def latex_text(value: str) -> str:
    """Text as LaTeX shows it."""
    marks = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    marks |= {mark: f"\\{mark}" for mark in "&%$#_{}"} | {"±": "$\\pm$", "✓": "\\checkmark{}"}
    return "".join(marks.get(mark, mark) for mark in value)


# Numbers as texts of cells.


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash where there is none."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def with_spread(found: Mapping[str, Any] | None, digits: int = 3) -> str:
    """`0.901 (0.003)`: mean and standard deviation, which is left out where there is none."""
    if found is None or found["mean"] is None:
        return "-"
    return number(found["mean"], digits) + ("" if found["sd"] is None else f" ({found['sd']:.{digits}f})")


def difference(ours: float | None, theirs: float | None, digits: int = 2) -> Cell:
    """Ours less theirs, with its sign; a page emphasises differences above 0.05."""
    if ours is None or theirs is None:
        return Cell("-", style="small")
    gap = ours - theirs
    return Cell(f"{gap:+.{digits}f}", style="away" if abs(gap) > 0.05 else "small")


def draw_interval(
    lower: float, upper: float, score: float | None = None, truth: float | None = None, columns: int = 41
) -> str:
    """The range [0, 1] on one line of a terminal: [ ] the interval, ● the score, x the true confidence.

    >>> draw_interval(0.25, 0.75, score=0.5, truth=0.625, columns=17)
    '|····[───●─x─]····|'
    """

    def at(value: float) -> int:
        return min(columns - 1, max(0, round(value * (columns - 1))))

    cells = ["·"] * columns
    cells[at(lower) : at(upper) + 1] = "─" * (at(upper) + 1 - at(lower))
    cells[at(lower)], cells[at(upper)] = "[", "]"
    if score is not None:
        cells[at(score)] = "●"
    if truth is not None:
        cells[at(truth)] = "x"
    return f"|{''.join(cells)}|"
