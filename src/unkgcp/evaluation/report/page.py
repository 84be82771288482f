"""The page around a report: one file, no script, nothing loaded from anywhere.

What it is: head, style sheet, contents, sections. A content security policy in the page itself forbids every
request and every script, whatever a label may contain. What it is not: it knows nothing of what is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from unkgcp._version import __version__
from unkgcp.evaluation.figures.style import inline, to_svg
from unkgcp.evaluation.report.html import Html, join, tag, text

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

WIDTH = 4.6  # inches of a figure of a run: two stand side by side on a desk, one fits on a phone


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: what the contents list calls it, its heading and what stands in it."""

    key: str
    title: str
    body: Sequence[Html]
    short: str | None = None


def page(title: str, kicker: str, lead: Sequence[Html], sections: Sequence[Section], about: Html) -> str:
    """The whole document."""
    contents = tag("ul", *(tag("li", tag("a", s.short or s.title, href=f"#{s.key}")) for s in sections))
    body = join(
        [
            tag("header", tag("p", kicker, class_="kicker"), tag("h1", title), *lead),
            tag("nav", contents, aria_label="Contents"),
            tag("main", *(tag("section", tag("h2", s.title), *s.body, id=s.key) for s in sections)),
            tag("footer", about, tag("p", f"Written by unkgcp {__version__}. This page loads nothing.")),
        ]
    )
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{text(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<title>{text(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def paragraph(*parts: object, class_: str | None = None) -> Html:
    return tag("p", *parts, class_=class_)


def figure(drawn: Any, key: str, caption: object, description: str) -> Html:
    """A drawing inside the page with what it shows; `key` is unique on the page."""
    picture = Html(inline(to_svg(drawn), key, description))
    return tag(
        "figure", tag("div", picture, class_="scroll", tabindex="0"), tag("figcaption", caption), id=key
    )


def tiles(entries: Sequence[tuple[object, object, object]]) -> Html:
    """Large numbers: (what, number, remark)."""
    return tag(
        "dl",
        *(
            tag(
                "div", tag("dt", name), tag("dd", number, class_="number"), tag("dd", remark, class_="remark")
            )
            for name, number, remark in entries
        ),
        class_="tiles",
    )


def beside(*parts: Html, broad: bool = False) -> Html:
    """Parts next to each other where there is room; `broad` ones need more of it."""
    return tag("div", *parts, class_="beside broad" if broad else "beside")


def mark(holds: bool | None, yes: str = "holds", no: str = "does not hold", open_: str = "open") -> Html:
    """A verdict, in words and with a sign, never by colour alone."""
    if holds is None:
        return tag("span", f"○ {open_}", class_="mark open")
    return tag("span", f"✓ {yes}" if holds else f"✗ {no}", class_="mark yes" if holds else "mark no")


def bar(interval: tuple[float, float], score: float, truth: tuple[float, float]) -> Html:
    """An interval on [0, 1]: a thick line, the prediction a ring, the true confidence a tick, or a bracket if it spans
    something itself."""
    (lower, upper), (first, last) = interval, truth

    def at(value: float) -> float:
        return round(4 + 152 * min(max(value, 0.0), 1.0), 2)

    inside = lower <= first and last <= upper
    true = f"{first:.2f}" if first == last else f"{first:.2f} to {last:.2f}"
    said = f"interval {lower:.2f} to {upper:.2f}, predicted {score:.2f}, true {true}"
    drawn = f"M{at(first)} 1.5V14.5" + ("" if first == last else f"H{at(last)}V1.5")
    return Html(
        f'<svg class="bar" role="img" aria-label="{text(said)}" viewBox="0 0 160 16">'
        f'<path class="axis" d="M4 8H156M4 5V11M156 5V11"/>'
        f'<path class="span" d="M{at(lower)} 8H{max(at(upper), at(lower) + 0.5)}"/>'
        f'<circle class="guess" cx="{at(score)}" cy="8" r="3.2"/>'
        f'<path class="{"truth" if inside else "truth missed"}" d="{drawn}"/></svg>'
    )
