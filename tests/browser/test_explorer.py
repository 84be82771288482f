"""The explorer page in a real browser: typing, answers, links, filters, hostile labels, small screens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from tests.browser.conftest import LONG, RIGHT_TO_LEFT, SCRIPT, started
from unkgcp.methods.intervals import in_words
from unkgcp.run import Predictor, calibrate

DASH = "\N{EN DASH}"
TOKEN = "a-long-and-secret-token"


@pytest.fixture(scope="module")
def guarded(run: Path, browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(TOKEN)
    yield from started(str(run), "--token-file", str(file))


def box(page, name):
    return page.get_by_role("combobox", name=name, exact=True)


def pick(page, name, typed, presses):
    """Choose a label by keyboard alone."""
    field = box(page, name)
    field.focus()
    page.keyboard.type(typed)
    # not the list of what was typed a moment ago
    page.wait_for_function("([list, typed]) => document.querySelector(list).innerText.toLowerCase().startsWith(typed)",
                           arg=[f"#{field.get_attribute('aria-controls')}", typed.lower()])  # fmt: skip
    assert field.get_attribute("aria-expanded") == "true"
    for _ in range(presses):
        page.keyboard.press("ArrowDown")
    chosen = page.locator(f"#{field.get_attribute('aria-activedescendant')}")
    assert chosen.get_attribute("aria-selected") == "true"
    page.keyboard.press("Enter")
    assert field.get_attribute("aria-expanded") == "false"
    assert field.get_attribute("aria-activedescendant") is None


def clamped(label) -> str:
    """A label as the page shows it."""
    return label if len(label) <= 120 else f"{label[:90]} … {label[-25:]}"


def three(value) -> str:
    return f"{value:.3f}"


def numbers(page) -> list[list[str]]:
    """Level, interval and width of every row of the answer."""
    rows = page.locator(".answer tbody tr")
    return [
        [rows.nth(i).locator(part).inner_text() for part in ("th", "td.number >> nth=0", "td.width")]
        for i in range(rows.count())
    ]


def test_an_answer_by_keyboard_alone(open_page, address, predictor):
    visit = open_page(f"{address}/")
    page = visit.page
    pick(page, "Head", "entity 1", 2)
    pick(page, "Relation", "k", 1)
    pick(page, "Tail", "ENTITY 2", 3)
    page.keyboard.press("Enter")
    page.locator(".answer").wait_for()
    assert page.url == f"{address}/?head=Entity+11&relation=knows&tail=Entity+22"
    levels = [0.5, 0.8, 0.9, 0.95, 0.99]
    found = predictor.interval([("Entity 11", "knows", "Entity 22")], levels)
    assert numbers(page) == [
        [f"{100 * level:g} %", f"{three(low)} {DASH} {three(high)}", three(high - low)]
        for level, low, high in zip(levels, found.lower[0], found.upper[0], strict=True)
    ]
    lead = page.locator(".lead").inner_text()
    assert three(found.score[0]) in lead
    assert f"{three(found.lower[0, 2])} to {three(found.upper[0, 2])}" in lead
    assert page.get_by_role("status").inner_text().startswith(f"score {three(found.score[0])}")
    assert page.evaluate("document.activeElement.id") == "result"  # where a screen reader goes on reading
    widths = [
        page.locator(".answer .range").nth(i).evaluate("e => e.getBoundingClientRect().width")
        for i in range(5)
    ]
    whole = page.locator(".answer .bar").first.evaluate("e => e.getBoundingClientRect().width")
    np.testing.assert_allclose(np.array(widths) / whole, (found.upper - found.lower)[0], atol=0.01)
    assert visit.problems == []
    assert visit.outside == []


def test_escape_and_leaving_close_the_list(open_page, address):
    page = open_page(f"{address}/").page
    field = box(page, "Head")
    field.click()
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("Escape")
    assert field.get_attribute("aria-expanded") == "false"
    page.keyboard.press("ArrowDown")
    page.get_by_role("option").nth(3).click()
    assert field.input_value() != ""
    assert page.get_by_role("option").count() == 0
    field.fill("no such label at all")
    page.get_by_text("no such label", exact=True).wait_for(state="attached")
    assert page.get_by_role("option").count() == 0


def test_evidence_is_shown_and_leads_on(open_page, address, predictor):
    facts = predictor.facts.graph(predictor.model.vocabulary).table().to_pylist()
    fact = next(row for row in facts if row["head"].startswith("Entity") and row["tail"].startswith("Entity"))
    query = f"head={fact['head']}&relation={fact['relation']}&tail={fact['tail']}"
    visit = open_page(f"{address}/?{query}")
    page = visit.page
    same = page.locator(".card", has_text="This very triple")
    same.wait_for()
    best = max(row["confidence"] for row in facts if {**row, "confidence": 0} == {**fact, "confidence": 0})
    assert same.locator("li .number").first.inner_text() == three(best)
    assert page.locator(".answer .bar .known").count() == 5
    other = page.locator(".card", has_text="Same head and relation").locator("li a").first
    shown = other.inner_text()
    other.click()
    page.wait_for_function("shown => document.querySelector('h2 .triple').innerText === shown", arg=shown)
    page.go_back()
    page.wait_for_function("head => document.querySelector('#tail').value === head", arg=fact["tail"])
    assert visit.problems == []


@pytest.mark.parametrize("side", ["head", "tail"])
def test_completions_are_sorted_and_filtered(open_page, address, predictor, side):
    visit = open_page(f"{address}/?{side}=Entity+11&relation=knows&level=0.8")
    page = visit.page
    rows = page.locator(".completions li")
    rows.first.wait_for()
    found = predictor.complete(**{side: "Entity 11"}, relation="knows", k=50, confidence=0.8)
    labels = found.labels.column("tail" if side == "head" else "head").to_pylist()
    assert rows.locator("a").all_inner_texts() == [clamped(" ".join(label.split())) for label in labels]
    assert page.locator("#shown").inner_text() == "50 of 50 completions shown"

    def kept(lower, width):
        return int(np.sum((found.lower >= lower) & (found.upper - found.lower <= width)))

    lower = float(np.round(np.median(found.lower), 2))
    width = float(np.round(np.quantile(found.upper - found.lower, 0.75), 2))
    page.get_by_role("slider", name="Lower end at least").fill(str(lower))
    assert page.locator("#shown").inner_text() == f"{kept(lower, 1)} of 50 completions shown"
    page.get_by_role("slider", name="Width at most").fill(str(width))
    assert 0 < kept(lower, width) < 50
    assert rows.filter(visible=True).count() == kept(lower, width)
    assert f"lower={lower:g}" in page.url
    again = open_page(page.url).page
    again.locator(".completions li").first.wait_for(state="attached")
    assert again.locator("#shown").inner_text() == f"{kept(lower, width)} of 50 completions shown"
    page.get_by_label("Best by").select_option("lower")
    page.wait_for_url(re.compile("rank=lower"))
    assert visit.problems == []


def test_training_facts_can_be_left_out(open_page, address):
    page = open_page(f"{address}/?head=Entity+11&relation=knows&k=60").page
    page.locator(".badge").first.wait_for()
    page.get_by_label("Training facts").select_option("yes")
    page.wait_for_url(re.compile("fresh=yes"))
    page.locator(".badge").first.wait_for(state="detached")
    assert page.locator(".completions li").count() > 40


def test_a_changed_choice_keeps_the_focus_of_the_keyboard(open_page, address):
    page = open_page(f"{address}/?head=Entity+11&relation=knows").page
    page.locator(".completions li").first.wait_for()
    for name, shown in {
        "Level": "level=0.99",
        "Best by": "rank=lower",
        "Training facts": "fresh=yes",
    }.items():
        page.get_by_label(name).focus()
        page.evaluate("document.querySelector('.completing').dataset.old = 'yes'")
        page.keyboard.press("End")
        page.wait_for_url(re.compile(shown))
        page.wait_for_function("() => !document.querySelector('.completing').dataset.old")
        assert page.evaluate("document.activeElement.closest('label')?.innerText").startswith(name)


def test_the_guarantee_stands_above_a_list_of_completions(open_page, address, predictor):
    page = open_page(f"{address}/?head=Entity+11&relation=knows").page
    page.locator(".completions li").first.wait_for()
    promise = page.locator(".completing .promise")
    assert predictor.guarantee in promise.inner_text()
    assert promise.bounding_box()["y"] < page.locator(".completions").bounding_box()["y"]


def test_labels_from_right_to_left_leave_the_rest_in_order(open_page, address):
    """Each label is isolated: brackets, arrows and numbers around it stay where they are."""
    page = open_page(f"{address}/?head={RIGHT_TO_LEFT}&relation=knows&tail=Entity+11").page
    page.locator(".answer").wait_for()
    edges = page.locator("h2 .part").evaluate_all("all => all.map(e => e.getBoundingClientRect().left)")
    assert edges == sorted(edges)
    assert page.locator("h2 .part bdi").all_inner_texts() == [RIGHT_TO_LEFT, "knows", "Entity 11"]
    assert box(page, "Head").evaluate("e => getComputedStyle(e).direction") == "rtl"
    page = open_page(f"{address}/?relation=knows&tail=Entity+11&k=100").page
    page.locator(".completions li").first.wait_for()
    rows = page.locator(".completions a")
    assert rows.locator("bdi").count() == rows.count() > 0
    page.get_by_role("combobox", name="Head").click()
    options = page.locator("#head-options li")
    options.first.wait_for()
    assert options.locator("bdi").count() == options.count()


def test_long_labels_are_clamped_and_shown_whole_when_pointed_at(open_page, address):
    page = open_page(f"{address}/?head={LONG}&relation=knows&tail=Entity+11", width=390).page
    page.locator(".answer").wait_for()
    label = page.locator("h2 bdi").first
    assert label.get_attribute("title") == LONG
    shown = label.inner_text()
    assert len(shown) <= 120
    assert (shown[:80], shown[-20:]) == (LONG[:80], LONG[-20:])
    assert len(page.title()) < 200
    assert page.locator("#result h2").first.bounding_box()["height"] < 300
    page.locator(".completions, .evidence").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_hostile_labels_are_only_text(open_page, address):
    visit = open_page(f"{address}/")
    page = visit.page
    dialogs = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    pick(page, "Head", "<img", 1)
    pick(page, "Relation", "likes", 1)
    pick(page, "Tail", "zoë", 1)
    page.keyboard.press("Enter")
    page.locator(".answer").wait_for()
    assert "ok" not in page.locator("#problem").inner_text()
    assert page.locator("h2 .part").first.inner_text() == SCRIPT
    assert page.locator(".lead").inner_text().startswith("Predicted confidence")  # the line end was not lost
    assert page.locator("#result img, #result script, form img").count() == 0
    again = open_page(page.url)
    again.page.locator(".lead").wait_for()
    assert again.page.locator(".lead").inner_text() == page.locator(".lead").inner_text()
    open_page(f"{address}/?head={SCRIPT}&relation={SCRIPT}&tail={SCRIPT}&level={SCRIPT}").page.locator(
        ".lead"
    ).wait_for()
    assert dialogs == []
    assert visit.problems == []


def test_what_is_unknown_or_missing_is_said(open_page, address):
    page = open_page(f"{address}/?head=nobody&relation=knows&tail=Entity+11").page
    page.get_by_text("nothing is claimed").wait_for()
    assert numbers(page)[0][1] == f"0.000 {DASH} 1.000"
    page = open_page(f"{address}/?head=nobody&relation=knows").page
    assert "'nobody'" in page.get_by_role("alert").inner_text()
    page = open_page(f"{address}/?relation=knows").page
    assert "head" in page.get_by_role("alert").inner_text()
    page = open_page(f"{address}/?head=Entity+11&relation=knows&tail=Entity+12&level=7&k=x&width=").page
    page.locator(".answer").wait_for()


def test_the_token_is_asked_for_and_kept(open_page, guarded):
    page = open_page(f"{guarded}/?head=Entity+11&relation=knows&tail=Entity+12").page
    field = page.get_by_label("This service needs a token")
    field.fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_role("alert").filter(visible=True).wait_for()
    field.fill(TOKEN)
    page.keyboard.press("Enter")
    page.locator(".answer").wait_for()
    assert not field.is_visible()
    page.reload()
    page.locator(".answer").wait_for()
    assert TOKEN not in page.url
    assert page.evaluate("document.cookie + Object.values(localStorage).join()") == ""


# the text with the least contrast to what is behind it: its ratio and its markup
FAINTEST = """all => all.filter(e => e.offsetParent !== null).map(element => {
  const parse = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  let behind = element;
  while (behind && parse(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
  const back = getComputedStyle(behind ?? document.documentElement).backgroundColor;
  const [a, b] = [getComputedStyle(element).color, back].map(t => luminance(parse(t))).sort((x, y) => y - x);
  return [(a + 0.05) / (b + 0.05), element.outerHTML];
}).sort((x, y) => x[0] - y[0])[0]"""
TEXTS = (
    "h1, h1 span, #about span, label, .hint, .lead, th, td, .legend li, .promise, a, button, small, dt, .number, "
    ".badge, .rank"
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "query", ["head=Entity+11&relation=knows&tail=Entity+12", "head=Entity+11&relation=knows"]
)
def test_text_can_be_read_and_fits(open_page, address, scheme, query):
    visit = open_page(f"{address}/?{query}", width=390, height=800, scheme=scheme)
    page = visit.page
    page.locator("#result section").last.wait_for()
    ratio, markup = page.locator(TEXTS).evaluate_all(FAINTEST)
    assert ratio >= 4.5, markup
    thumbs = page.locator("button, input:not([type=range]), select").filter(visible=True)
    heights = thumbs.evaluate_all("all => all.map(e => e.getBoundingClientRect().height)")
    assert min(heights) >= 40
    for width in (320, 390, 768, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.problems == []


def test_names_and_structure_for_those_who_listen(open_page, address):
    page = open_page(f"{address}/?head=Entity+11&relation=knows&tail=Entity+12").page
    page.locator(".evidence").wait_for()
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.title() == "Entity 11 knows Entity 12 · UnKGCP"
    levels = page.locator("h1, h2, h3").evaluate_all("all => all.map(e => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    for name in ("Head", "Relation", "Tail"):
        field = box(page, name)
        assert field.get_attribute("aria-autocomplete") == "list"
        assert page.locator(f"#{field.get_attribute('aria-controls')}").get_attribute("role") == "listbox"
    assert page.get_by_role("table", name="Interval at each level").count() == 1
    assert page.get_by_role("region", name="Answer").count() == 1
    assert page.locator(".bar:not([aria-hidden=true])").count() == 0
    assert (
        page.get_by_role("link", name="Link to this answer").get_attribute("href").startswith("/?head=Entity")
    )


def test_the_page_is_small_and_asks_only_its_own_service(open_page, address):
    visit = open_page(f"{address}/?head=Entity+11&relation=knows&tail=Entity+12")
    visit.page.locator(".evidence").wait_for()
    assert visit.outside == []
    sizes = visit.page.evaluate(
        "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
        ".map(e => e.decodedBodySize)"
    )
    assert sum(sizes) < 100_000


@pytest.fixture(scope="module")
def open_predictor(predictor: Predictor) -> Predictor:
    """Queries may be no facts, and intervals may be empty."""
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    assert predictor.model.facts is not None
    facts = predictor.model.facts.graph(predictor.model.vocabulary)
    others = facts.with_confidence(
        np.clip(facts.confidence + 1e-4, 0, 1)
    )  # close to training facts, but none of them
    options = {"population": "open", "kinds": ("uniform",), "allow_empty": True}
    return calibrate(predictor.model, others, "evidence", **options)


def test_no_fact_and_no_value(open_predictor: Predictor, browser, open_page, tmp_path: Path) -> None:
    open_predictor.save(tmp_path / "run")
    labels = [(f"Entity {i:02d}", "knows", f"Entity {j:02d}") for i in range(10, 16) for j in range(20, 26)]
    found = open_predictor.interval(labels, [0.02, 0.9])
    assert found.fact_lower is not None
    assert found.no_fact is not None
    empty, possible = np.isnan(found.lower[:, 0]), found.no_fact[:, 0]
    assert empty.any()
    row = int(np.flatnonzero(empty)[0])
    head, _, tail = (label.replace(" ", "+") for label in labels[row])
    for address in started(str(tmp_path / "run")):
        visit = open_page(f"{address}/?head={head}&relation=knows&tail={tail}&level=0.02")
        lead = visit.page.locator(".answer .lead")
        lead.wait_for()
        assert "no value is sure enough for the level 2 %" in lead.inner_text()
        assert visit.page.locator(".answer tr.chosen td.number").first.inner_text() == "empty"
        note = visit.page.locator(".answer .note").first.inner_text()
        assert note.startswith("It may be no fact at all" if possible[row] else "It looks like a fact")
        assert visit.problems == []
        many = open_page(f"{address}/?head={head}&relation=knows&level=0.02&k=60")
        listed = many.page.locator(".completions li")
        listed.first.wait_for()
        assert "empty" in many.page.locator(".completions").inner_text()
        assert "if it is a fact: " in listed.first.locator(".besides").inner_text()
        every = listed.count()
        assert many.page.locator(".completions li:visible").count() == every
        narrow = open_page(f"{address}/?head={head}&relation=knows&level=0.02&k=60&width=0.5")
        narrow.page.locator("#shown").wait_for()
        assert "empty" not in "".join(narrow.page.locator(".completions li:visible").all_inner_texts())
        assert many.problems == narrow.problems == []


def test_the_page_says_what_the_model_believes(
    doubtful_predictor: Predictor, open_page, several: str
) -> None:
    labels = [(f"Entity {i:02d}", "knows", f"Entity {j:02d}") for i in range(10, 20) for j in range(20, 26)]
    found = doubtful_predictor.interval(labels, 0.9)
    columns = [found.value, found.belief, found.other, found.other_belief]
    told = [[column[row].item() for column in columns if column is not None] for row in range(len(labels))]
    rows = {
        "sure": next(row for row, modes in enumerate(told) if modes[1] >= 0.5 and not np.isnan(modes[2])),
        "doubtful": next(row for row, modes in enumerate(told) if modes[1] < 0.5 and not np.isnan(modes[2])),
    }
    for kind, row in rows.items():
        head, relation, tail = (label.replace(" ", "+") for label in labels[row])
        visit = open_page(f"{several}/?head={head}&relation={relation}&tail={tail}")
        lead = visit.page.locator(".answer .lead")
        lead.wait_for()
        doubt = "; no value is more likely than not" if kind == "doubtful" else ""
        assert lead.inner_text().endswith(f". The model believes {in_words(*told[row])}{doubt}.")
        marks = visit.page.locator(".answer tr.chosen .bar .value")
        places = marks.evaluate_all("marks => marks.map(mark => parseFloat(mark.style.left) / 100)")
        assert places == pytest.approx([told[row][0], told[row][2]])
        assert "likely value" in visit.page.locator(".legend").inner_text()
        assert visit.problems == []
    many = open_page(f"{several}/?head={head}&relation=knows&k=60")
    listed = many.page.locator(".completions li .besides")
    listed.first.wait_for()
    best = doubtful_predictor.complete(head.replace("+", " "), "knows", k=60)
    said = [
        [column[row].item() for column in (best.value, best.belief, best.other, best.other_belief)]  # type: ignore[index]
        for row in range(len(best))
    ]
    for shown, modes in zip(listed.all_inner_texts(), said, strict=True):
        assert shown.startswith(f"The model believes {in_words(*modes)}")
    assert many.problems == []
    unknown = open_page(f"{several}/?head=nobody&relation=knows&tail={tail}")
    unknown.page.locator(".answer .lead").wait_for()
    assert "believes" not in unknown.page.locator(".answer").inner_text()
    assert unknown.page.locator(".value").count() == 0
