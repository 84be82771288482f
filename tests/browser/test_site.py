"""The site that `make docs` makes: nothing is fetched from elsewhere, and everybody can use it, from a folder.

`make docs` runs this over site/ once that is built; `make test` does not build it, and leaves this out.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser.checks import faint, nameless

SITE = Path(__file__).parents[2] / "site"
PAGES = (
    "index.html",
    "predicting.html",
    "tutorials/comparing-methods.html",
    "reference/unkgcp.html",
    "reference/commands.html",
)
LOADED = re.compile(
    r"""<(?:(?:script|img|iframe|source)\b[^>]*\bsrc|link\b[^>]*\bhref)=["']?(?:https?:)?//"""
)

# an outline around what has the focus, or around the label that stands for it; a field for text shows its caret
RING = """() => {
  const at = document.activeElement;
  const drawn = (element) => parseFloat(getComputedStyle(element).outlineWidth) > 0
    && getComputedStyle(element).outlineStyle !== "none";
  return at.type === "text" || drawn(at) || drawn(at.nextElementSibling);
}"""

# code and tables that are wider than their place and do not scroll there
CUT = """() => {
  const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  return [...document.querySelectorAll("pre, pre code, table")]
    .filter((each) => each.scrollWidth > each.clientWidth + 1 && !scrolls(each) && !scrolls(each.parentElement))
    .filter((each) => getComputedStyle(each).display !== "inline").map((each) => each.textContent.slice(0, 60));
}"""

pytestmark = pytest.mark.site


def test_no_page_loads_anything_from_elsewhere():
    pages = sorted(SITE.rglob("*.html"))
    assert len(pages) > 50, "make docs makes them"
    assert [page for page in pages if LOADED.search(page.read_text(encoding="utf-8"))] == []
    sheets = sorted(SITE.rglob("*.css"))
    far = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")
    assert [sheet for sheet in sheets if far.search(sheet.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_used_by_everybody(open_page, page, scheme):
    for width in (360, 1280):
        visit = open_page(SITE / page, width=width, scheme=scheme)
        assert faint(visit.page) == []
        assert nameless(visit.page) == []
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.page.evaluate(CUT) == []
        assert visit.problems == []
        assert [asked for asked in visit.outside if not asked.startswith(SITE.as_uri())] == []


def test_the_keyboard_alone_leads_from_the_first_page_to_an_answer(open_page):
    visit = open_page(SITE / "index.html", width=360)
    page = visit.page

    def press_until(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.getAttribute('aria-label')") == name:
                return
        raise AssertionError(f"Tab does not reach {name}")

    press_until("Search")
    page.keyboard.press("Enter")
    page.locator("input.md-search__input:focus").wait_for()
    page.keyboard.type("standardised")
    page.locator(".md-search-result__item a").first.wait_for()
    page.keyboard.press("ArrowDown")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert "evidence.html" in page.url
    assert visit.problems == []


def test_what_has_the_focus_shows_it(open_page):
    page = open_page(SITE / "index.html").page
    for _ in range(20):
        page.keyboard.press("Tab")
        assert page.evaluate(RING), page.evaluate("document.activeElement.outerHTML")


def test_the_first_page_is_there_within_a_second(open_page):
    loaded = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    assert min(open_page(SITE / "index.html").page.evaluate(loaded) for _ in range(3)) < 1000
