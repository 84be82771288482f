"""Markup that is safe by construction: whatever is not `Html` already is escaped.

What it is: a handful of functions that nest. What it is not: a template language.

>>> tag("p", "a < b & ", tag("b", "c"), class_="note")
Html('<p class="note">a &lt; b &amp; <b>c</b></p>')
>>> tag("p", "<script>")
Html('<p>&lt;script&gt;</p>')
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from html import escape

LONGEST = 120  # characters of a label that are shown


class Html(str):
    """Text that is markup already."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Html({str(self)!r})"


def text(value: object) -> Html:
    """A value as text of a page; markup stays what it is."""
    return value if isinstance(value, Html) else Html(escape(str(value), quote=True))


def join(parts: Iterable[object], between: str = "") -> Html:
    """Several pieces one after the other."""
    return Html(between.join(text(part) for part in parts))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element; `class_` and `for_` lose their underscore, an attribute that is None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def label(value: str) -> Html:
    """A label from somebody's data: no control characters, cut if very long, its writing direction its own."""
    shown = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in ("Cc", "Cs", "Cf") else character
        for character in value[: LONGEST + 1]
    )
    if len(shown) > LONGEST:
        shown = shown[: LONGEST - 1] + "…"
    return tag("bdi", shown or "(empty)", class_="label")


def table(
    header: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    words: Collection[int] = (0,),
    caption: object | None = None,
    groups: Sequence[tuple[object, int]] = (),
    class_: str | None = None,
    titled: bool = False,
) -> Html:
    """A table that scrolls by itself where it is too wide; columns in `words` are text, all others numbers.

    `groups`: titles above the header, each with the number of columns it spans. `titled`: every
    cell also carries its column's title, for screens so narrow that rows are set as blocks.
    """

    def kind(place: int) -> str | None:
        return "words" if place in words else None

    head = [tag("tr", *(tag("th", title, class_=kind(i), scope="col") for i, title in enumerate(header)))]
    if groups:
        cells = (tag("th", title, colspan=span, scope="colgroup") for title, span in groups)
        head.insert(0, tag("tr", *cells, class_="groups"))
    body = [
        tag(
            "tr",
            *(
                tag("th", cell, class_=kind(i), scope="row")
                if i == 0
                else tag("td", cell, class_=kind(i), data_title=header[i] if titled else None)
                for i, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    parts = [] if caption is None else [tag("caption", caption)]
    inner = tag("table", *parts, tag("thead", *head), tag("tbody", *body), class_=class_)
    return tag("div", inner, class_="scroll", tabindex="0")
