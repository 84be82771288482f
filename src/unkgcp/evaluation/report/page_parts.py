"""Parts of a report page: the page itself, sections, figures, large numbers, bars, and names and numbers as texts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from unkgcp._version import __version__
from unkgcp.evaluation.evaluation_texts import short_name
from unkgcp.evaluation.figure_design import image, inline
from unkgcp.evaluation.tables import Html, join, printable, tag, text
from unkgcp.graph.datasets import Dataset


def label(value: str) -> Html:
    """A label from a user's data, isolated in its writing direction."""
    return tag("bdi", printable(value) or "(empty)", class_="label")


# The page around a report: one file, no script, nothing loaded from anywhere.

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


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


def figure(drawing: Any, key: str, caption: object, description: str) -> Html:
    """A drawing inside the page with what it shows, and to save; `key` is unique on the page."""
    svg = image(drawing, "svg").decode()
    files_of = {
        "SVG": ("image/svg+xml", quote(svg)),
        "PNG": ("image/png;base64", b64encode(image(drawing, "png")).decode()),
    }
    links = [
        tag(
            "a",
            kind,
            href=f"data:{media},{content}",
            download=f"{key}.{kind.lower()}",
            aria_label=f"Figure as {kind}: {description}",
        )
        for kind, (media, content) in files_of.items()
    ]
    return tag(
        "figure",
        tag(
            "div",
            Html(inline(svg, key, description)),
            class_="scroll",
            tabindex="0",
            role="group",
            aria_label=f"Figure: {description}",
        ),
        tag("figcaption", caption, " ", tag("span", *(join([link, " "]) for link in links), class_="saves")),
        id=key,
    )


def tiles(entries: Sequence[tuple[object, object, object, bool]]) -> Html:
    """Large numbers: (what, number, remark, whether it is flagged)."""
    shown = (
        tag(
            "div",
            tag("dt", name),
            tag("dd", number, class_="number away" if flagged else "number"),
            tag("dd", remark, class_="remark"),
        )
        for name, number, remark, flagged in entries
    )
    return tag("dl", *shown, class_="tiles")


def beside(*parts: Html) -> Html:
    """Parts next to each other where there is room."""
    return tag("div", *parts, class_="beside")


def bar(interval: tuple[float, float], prediction: float, truth: tuple[float, float]) -> Html:
    """An interval on [0, 1]: a thick line, the prediction a ring, the true confidence a tick, or a bracket if it spans
    something itself."""
    (lower, upper), (first, last) = interval, truth

    def at(value: float) -> float:
        return round(4 + 152 * min(max(value, 0.0), 1.0), 2)

    inside = lower <= first and last <= upper
    true = f"{first:.2f}" if first == last else f"{first:.2f} to {last:.2f}"
    description = f"interval {lower:.2f} to {upper:.2f}, predicted {prediction:.2f}, true {true}"
    drawn = f"M{at(first)} 1.5V14.5" + ("" if first == last else f"H{at(last)}V1.5")
    return Html(
        f'<svg class="bar" role="img" aria-label="{text(description)}" viewBox="0 0 160 16">'
        f'<path class="axis" d="M4 8H156M4 5V11M156 5V11"/>'
        f'<path class="span" d="M{at(lower)} 8H{max(at(upper), at(lower) + 0.5)}"/>'
        f'<circle class="guess" cx="{at(prediction)}" cy="8" r="3.2"/>'
        f'<path class="{"truth" if inside else "truth missed"}" d="{drawn}"/></svg>'
    )


# Names and numbers as texts.

NAMES = {
    "cn15k": "CN15k",
    "nl27k": "NL27k",
    "ppi5k": "PPI5k",
    "demo": "demo graph",
    "ukge": "UKGE",
    "ukge-rect": "UKGE rect",
    "passleaf": "PASSLEAF",
    "beurre": "BEUrRE",
    "cp": "CP",
    "fpi": "FPI",
    "qr": "QR",
    "unkgcp": "UnKGCP",
}
"""How data sets, models and methods are written where that differs from what they are called."""


def named(name: str) -> str:
    """The name for people: of a file the last part of its path."""
    return NAMES.get(name) or short_name(name)


def percent(value: float, digits: int = 0) -> str:
    """`90 %`, with a narrow space; more digits where the level has them."""
    shown = f"{100 * value:.{digits}f}" if digits else f"{round(100 * value, 4):g}"
    return f"{shown}\u202f%"


def span(ends: tuple[float, float]) -> str:
    """`0.123–0.456`."""
    return f"{ends[0]:.3f}\N{EN DASH}{ends[1]:.3f}"


# Labels for people: a data set whose labels are ids may bring their names along.


def readable(dataset: Dataset, what: str, ids: Sequence[int]) -> list[str]:
    """Labels of `entities` or `relations`, with their names where labels are ids."""
    names: Mapping[str, str] = {} if dataset.names is None else getattr(dataset.names, what)
    labels = getattr(dataset.splits.test.vocabulary, what)
    chosen = [labels[int(number)].as_py() for number in ids]
    return [label if names.get(label, label) == label else f"{names[label]} ({label})" for label in chosen]
