"""A table that is described once, for a terminal, a page and a paper; and numbers as texts.

HTML is safe by construction: whatever is not `Html` already is escaped.

>>> print(FigureTable(["level", "coverage"], [["0.9", "0.903"]]).terminal())
level  coverage
0.9       0.903
>>> tag("p", "a < b & ", tag("b", "c"), class_="note")
Html('<p class="note">a &lt; b &amp; <b>c</b></p>')
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from unicodedata import category


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


@dataclass
class FigureTable:
    """Rows of texts under columns; a page also takes cells that are markup.

    `text_columns` are aligned left on a page, all other columns hold numbers. `groups` are titles above the columns of
    a page, each with the number of columns it spans.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]] = ()
    title: str = ""
    text_columns: Collection[int] = (0,)
    groups: Sequence[tuple[str, int]] = ()

    def add(self, *cells: str) -> None:
        self.rows = [*self.rows, cells]

    def terminal(self) -> str:
        """Columns under their titles, the first one aligned left, all others right."""
        lines = [list(self.columns), *map(list, self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def latex(self, label: str) -> str:
        """A table of booktabs with the title as its caption."""
        titles, *lines = (" & ".join(map(latex_text, row)) + " \\\\" for row in [self.columns, *self.rows])
        columns = "".join("l" if place in self.text_columns else "r" for place in range(len(self.columns)))
        return "\n".join(
            [
                "% needs \\usepackage{booktabs}",
                "\\begin{table}",
                "\\centering",
                f"\\caption{{{latex_text(self.title)}}}",
                f"\\label{{{label}}}",
                f"\\begin{{tabular}}{{{columns}}}",
                "\\toprule",
                titles,
                "\\midrule",
                *lines,
                "\\bottomrule",
                "\\end{tabular}",
                "\\end{table}",
            ]
        )

    def html(self, *, class_: str | None = None, titled: bool = False) -> Html:
        """A table that scrolls by itself where it is too wide.

        `titled`: every cell also carries its column's title, for screens so narrow that rows are set as blocks.
        """

        def kind(place: int) -> str | None:
            return "text" if place in self.text_columns else None

        titles = (tag("th", title, class_=kind(i), scope="col") for i, title in enumerate(self.columns))
        head = [tag("tr", *titles)]
        if self.groups:
            cells = (tag("th", title, colspan=span, scope="colgroup") for title, span in self.groups)
            head.insert(0, tag("tr", *cells, class_="groups"))
        body = []
        for first, *others in self.rows:
            rest = (
                tag(
                    "td",
                    cell if kind(i) else _typeset(cell),
                    class_=kind(i),
                    data_title=self.columns[i] if titled else None,
                )
                for i, cell in enumerate(others, 1)
            )
            body.append(tag("tr", tag("th", first, class_=kind(0), scope="row"), *rest))
        inner = tag("table", tag("thead", *head), tag("tbody", *body), class_=class_)
        named = f"Table: {self.title or ', '.join(filter(None, self.columns))}"
        return tag("div", inner, class_="scroll", tabindex="0", role="group", aria_label=named)


def _typeset(shown: str) -> str:
    """Numbers as a page shows them: a real minus sign, an en dash for none and between two."""
    if isinstance(shown, Html):
        return shown
    sign, rest = ("\N{MINUS SIGN}", shown[1:]) if shown[:1] == "-" != shown else ("", shown)
    return sign + rest.replace("-", "\N{EN DASH}")


def latex_text(value: str) -> str:
    """Text as LaTeX shows it."""
    marks = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    marks |= {mark: f"\\{mark}" for mark in "&%$#_{}"}
    return "--" if value == "-" else "".join(marks.get(mark, mark) for mark in value)


# Numbers as texts.


SMALLEST_SHOWN = 1e-6  # what is smaller is shown as zero


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash where there is none; never a zero with a minus sign, and small ones with two digits."""
    if value is None or math.isnan(value):
        return "-"
    if SMALLEST_SHOWN <= value < 10.0 ** (1 - digits):
        digits = 1 - math.floor(math.log10(value))
    return f"{value:.{digits}f}" if round(value, digits) else f"{0:.{digits}f}"


def percent(level: float) -> str:
    """A level or a share, `90 %`, with the digits it has."""
    return f"{round(100 * level, 4):g} %"


def of_100(share: float) -> str:
    """A share of facts as a count among 100; whole ones, but never all or none of them where some are not.

    >>> of_100(0.914), of_100(0.9991), of_100(1.0)
    ('91', '99.9', '100')
    """
    whole = round(100 * share)
    return f"{whole}" if 0 < whole < 100 or share in (0.0, 1.0) else f"{min(99.9, max(0.1, 100 * share)):.1f}"


def counted(n: int, what: str, several: str | None = None) -> str:
    """`1 relation`, `2 relations`, `3 entities`."""
    return f"{n:,} {what if n == 1 else several or what + 's'}"


LONGEST = 120  # characters of a label that are shown


def printable(label: str, longest: int = LONGEST) -> str:
    """A label from a user's data as it can be shown: without control characters, cut if it is longer."""
    shown = "".join(
        "\N{REPLACEMENT CHARACTER}" if category(mark) in ("Cc", "Cf", "Cs", "Zl", "Zp") else mark
        for mark in label[: longest + 1]
    )
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def draw_interval(
    lower: float, upper: float, prediction: float | None = None, truth: float | None = None, columns: int = 41
) -> str:
    """The range [0, 1] on one line of a terminal: [ ] the interval, ● the prediction, x the true confidence.

    >>> draw_interval(0.25, 0.75, prediction=0.5, truth=0.625, columns=17)
    '|····[───●─x─]····|'
    """

    def at(value: float) -> int:
        return min(columns - 1, max(0, round(value * (columns - 1))))

    cells = ["·"] * columns
    cells[at(lower) : at(upper) + 1] = "─" * (at(upper) + 1 - at(lower))
    cells[at(lower)], cells[at(upper)] = "[", "]"
    for value, mark in ((prediction, "●"), (truth, "x")):
        if value is not None:
            cells[at(value)] = mark
    return f"|{''.join(cells)}|"
