"""Parts of a report page: the page itself, sections, figures, large numbers, bars, and names and numbers as texts."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from unkgcp._version import __version__
from unkgcp.evaluation.figure_design import DATA, Drawn, inline, to_svg
from unkgcp.evaluation.tables import Html, join, tag, text

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset

LONGEST = 120  # characters of a label that are shown


def label(value: str) -> Html:
    """A label from a user's data: without control characters, cut if very long, isolated in its writing direction."""
    shown = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in ("Cc", "Cs", "Cf") else character
        for character in value[: LONGEST + 1]
    )
    if len(shown) > LONGEST:
        shown = shown[: LONGEST - 1] + "…"
    return tag("bdi", shown or "(empty)", class_="label")


# The page around a report: one file, no script, nothing loaded from anywhere.

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

WIDTH = 4.6  # inches of a figure of a run: two stand side by side on a desk, one fits on a phone


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: the key of its link, its heading, its content, and a short title for the contents list."""

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


def figure(drawn: Drawn, key: str, caption: object, description: str) -> Html:
    """A drawing inside the page with what it shows and its numbers to save; `key` is unique on the page."""
    picture = Html(inline(to_svg(drawn), key, description))
    numbers = tag(
        "a",
        "Numbers as CSV",
        href=f"data:text/csv;charset=utf-8,{quote(drawn.csv())}",
        download=f"{key}.csv",
        aria_label=f"Numbers as CSV: {description}",
    )
    return tag(
        "figure",
        tag("div", picture, class_="scroll", tabindex="0", role="group", aria_label=f"Figure: {description}"),
        tag("figcaption", caption, " ", numbers),
        id=key,
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


# Names and numbers as texts: data sets, percentages, spans, durations.


def data_name(name: object) -> str:
    """What a data set is called: the benchmarks as the paper writes them, a file by the last part of its path."""
    written = str(name)
    return (
        (DATA | {"demo": "demo graph"}).get(written)
        or written.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
        or written
    )


def percent(value: float, digits: int = 0) -> str:
    """`90 %`, with a narrow space; more digits where the level has them."""
    shown = f"{100 * value:.{digits}f}" if digits else f"{round(100 * value, 4):g}"
    return f"{shown}\u202f%"


def span(ends: tuple[float, float]) -> str:
    """`0.123–0.456`."""
    return f"{ends[0]:.3f}\N{EN DASH}{ends[1]:.3f}"


def duration(seconds: float) -> str:
    """`12 s`, `3.4 min` or `1.2 h`."""
    if seconds < 120:
        return f"{seconds:.1f}\u202fs" if seconds < 10 else f"{seconds:.0f}\u202fs"
    return f"{seconds / 60:.1f}\u202fmin" if seconds < 7200 else f"{seconds / 3600:.1f}\u202fh"


# Labels for people: a data set whose labels are ids may bring their names along.


def readable_relations(dataset: Dataset, ids: Sequence[int]) -> list[str]:
    """Labels of relations, with their names where labels are ids."""
    names = {} if dataset.names is None else dataset.names.relations
    return _readable(dataset.splits.test.vocabulary.relations, names, ids)


def readable_entities(dataset: Dataset, ids: Sequence[int]) -> list[str]:
    """Labels of entities, with their names where labels are ids."""
    names = {} if dataset.names is None else dataset.names.entities
    return _readable(dataset.splits.test.vocabulary.entities, names, ids)


def _readable(labels: Any, names: Mapping[str, str], ids: Sequence[int]) -> list[str]:
    chosen = [labels[int(number)].as_py() for number in ids]
    return [label if names.get(label, label) == label else f"{names[label]} ({label})" for label in chosen]
