"""Reports in a real browser: nothing is loaded, nothing complained about, figures are seen, on any screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.checks import faint, nameless, tabbed
from tests.evaluation.reports import write_hostile_run
from unkgcp.evaluation.report import write_report

BOXES = """figures => figures.map(figure => {
    const box = figure.getBoundingClientRect();
    const marks = [...figure.querySelectorAll('path, use, text')].filter(mark => {
        const seen = mark.getBoundingClientRect();
        return seen.width > 0 || seen.height > 0;
    });
    return {width: box.width, height: box.height, marks: marks.length,
            text: figure.querySelectorAll('text').length, id: figure.closest('figure').id};
})"""


@pytest.fixture(scope="module")
def pages(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    return {"run": write_report(write_hostile_run(folder / "hostile"))}


@pytest.mark.parametrize("which", ["run"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_a_report_stands_alone_and_is_seen(
    pages: dict[str, Path], open_page: Callable[..., Any], which: str, width: int, scheme: str
) -> None:
    visit = open_page(pages[which], width=width, scheme=scheme)
    assert visit.requests == [visit.address]
    assert visit.outside == []
    assert visit.problems == []
    assert visit.page.title() not in ("owned", "1")
    boxes = visit.page.locator("figure svg").evaluate_all(BOXES)
    assert len(boxes) == 5
    for box in boxes:
        assert box["width"] > 250, box
        assert box["height"] > 100, box
        assert box["marks"] > 20, box
        assert box["text"] > 5, box
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width, "only parts scroll sideways"
    assert faint(visit.page) == []
    assert nameless(visit.page) == []
    assert (
        tabbed(visit.page) == visit.page.locator("a[href], summary, [tabindex]").filter(visible=True).count()
    )


def test_a_figure_is_one_click_away(pages: dict[str, Path], open_page: Callable[..., Any]) -> None:
    visit = open_page(pages["run"])
    with visit.page.expect_download() as waiting:
        visit.page.locator("#slices-doubt").get_by_role("link", name="Figure as SVG").click()
    assert waiting.value.suggested_filename == "slices-doubt.svg"
    assert Path(waiting.value.path()).read_text(encoding="utf-8").startswith("<?xml")
    assert visit.problems == []


def test_night_is_dark_and_print_is_light(pages: dict[str, Path], open_page: Callable[..., Any]) -> None:
    visit = open_page(pages["run"], scheme="dark")

    def brightness(what: str, of: str) -> float:
        colour = visit.page.locator(of).first.evaluate(f"node => getComputedStyle(node).{what}")
        return sum(map(float, colour[colour.index("(") + 1 : -1].split(",")[:3])) / 765

    assert brightness("backgroundColor", "body") < 0.2
    assert brightness("fill", "figure svg text") > 0.7, "figures take the page's colours"
    visit.page.emulate_media(media="print")
    assert brightness("backgroundColor", "body") == 1
    assert brightness("fill", "figure svg text") < 0.3


def test_a_page_that_reaches_out_would_be_noticed(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    (tmp_path / "bad.html").write_text("<img src='https://outside.invalid/x.png'><script>nonsense(</script>")
    visit = open_page(tmp_path / "bad.html")
    assert visit.outside == ["https://outside.invalid/x.png"]
    assert any("SyntaxError" in problem or "Unexpected" in problem for problem in visit.problems)
