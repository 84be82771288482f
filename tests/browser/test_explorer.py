"""The explorer in a real browser: what it shows is what Python says, and labels, files and proxies cannot hurt it."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed")

from tests.browser.conftest import LINES, LONG, RIGHT_TO_LEFT, SCRIPT, behind_nginx
from tests.processes import serving
from unkgcp.run.answers import masses

DASH = "\N{EN DASH}"
TRIPLE = ("Entity 11", "knows", "Entity 22")
QUERY = dict(zip(("head", "relation", "tail"), TRIPLE, strict=True))
OPEN = {"head": "Entity 11", "relation": "knows"}
LEVELS = [0.5, 0.8, 0.9, 0.95, 0.99]


def three(value) -> str:
    return f"{value:.3f}"


def predicted(found) -> str:
    """The number that the page says: inside the interval at every level."""
    if found.value is not None:
        return three(found.value[0])
    return three(np.clip(found.score[0], found.lower.max(), found.upper.min()))


def saved(page, name: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name, exact=True).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def records(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def box(page, name):
    return page.get_by_role("combobox", name=name, exact=True)


def pick(page, name, typed, presses):
    """Choose a label by keyboard alone."""
    field = box(page, name)
    field.focus()
    page.keyboard.insert_text(typed)  # as one piece: the list of a part of it would come in between
    options = page.locator(f"#{field.get_attribute('aria-controls')} li")
    options.filter(has_text=re.compile(re.escape(typed), re.IGNORECASE)).first.wait_for()
    for _ in range(presses):
        page.keyboard.press("ArrowDown")
    assert page.locator(f"#{field.get_attribute('aria-activedescendant')}").count() == 1
    page.keyboard.press("Enter")
    assert field.get_attribute("aria-expanded") == "false"


def test_an_answer_by_keyboard_alone(open_page, address, predictor):
    visit = open_page(f"{address}/")
    page = visit.page
    pick(page, "Head", "entity 1", 2)
    pick(page, "Relation", "k", 1)
    pick(page, "Tail", "ENTITY 2", 3)
    page.keyboard.press("Enter")
    page.locator(".answer").wait_for()
    assert page.url == f"{address}/?{urlencode(QUERY)}"
    found = predictor.interval([TRIPLE], LEVELS)
    rows = page.locator(".answer tbody tr")
    cells = [rows.nth(i).locator("th, td.number").all_inner_texts() for i in range(len(LEVELS))]
    assert cells == [
        [f"{100 * level:g} %", f"{three(low)} {DASH} {three(high)}", three(high - low)]
        for level, low, high in zip(LEVELS, found.lower[0], found.upper[0], strict=True)
    ]
    lead = page.locator(".lead").inner_text()
    assert predicted(found) in lead
    assert f"{three(found.lower[0, 2])} to {three(found.upper[0, 2])}" in lead
    assert page.get_by_role("status").inner_text().startswith(f"predicted {predicted(found)}")
    assert page.evaluate("document.activeElement.id") == "result"  # where a screen reader goes on reading
    assert visit.problems == visit.outside == []


@pytest.mark.parametrize("run", ["doubtful", "run"])
def test_the_first_page_leads_to_answers(open_page, several, run):
    visit = open_page(f"{several}/?run={run}")
    examples = visit.page.locator(".start a")
    for number, wanted in enumerate((".answer", ".completing", ".completing")):
        visit.page.goto(f"{several}/?run={run}")
        examples.nth(number).click()
        visit.page.locator(wanted).wait_for()
    assert examples.count() == 0
    assert visit.problems == []


def test_the_only_relation_is_filled_in(open_page, several):
    page = open_page(f"{several}/?run=single").page
    page.wait_for_function("label => document.querySelector('#relation').value === label", arg="r0")


def test_a_list_closes_and_says_when_there_is_no_such_label(open_page, address):
    page = open_page(f"{address}/").page
    field = box(page, "Head")
    field.click()
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("Escape")
    assert field.get_attribute("aria-expanded") == "false"
    field.fill("no such label at all")
    page.get_by_text("no such label", exact=True).wait_for(state="attached")
    assert page.get_by_role("option").count() == 0


def test_evidence_is_shown_and_leads_on(open_page, address, predictor):
    facts = predictor.facts.graph(predictor.model.vocabulary).table().to_pylist()
    fact = next(row for row in facts if row["head"].startswith("Entity") and row["tail"].startswith("Entity"))
    visit = open_page(f"{address}/?{urlencode({name: fact[name] for name in QUERY})}")
    same = visit.page.locator(".card", has_text="This very triple")
    same.wait_for()
    best = max(row["confidence"] for row in facts if {**row, "confidence": 0} == {**fact, "confidence": 0})
    assert same.locator("li .number").first.inner_text() == three(best)
    other = visit.page.locator(".card", has_text="Same head and relation").locator("li a").first
    shown = other.inner_text()
    other.click()
    visit.page.wait_for_function("text => document.querySelector('h2 .triple').innerText === text", arg=shown)
    visit.page.go_back()
    visit.page.wait_for_function("tail => document.querySelector('#tail').value === tail", arg=fact["tail"])
    assert visit.problems == []


@pytest.mark.parametrize("which", ["address", "several"])
def test_completions_come_in_the_order_of_the_switch(
    open_page, which, request, predictor, doubtful_predictor
):
    place, run = request.getfixturevalue(which), predictor if which == "address" else doubtful_predictor
    visit = open_page(f"{place}/?{urlencode(OPEN)}")
    page = visit.page
    rows = page.locator(".completions li")
    for rank in ("score", "lower"):
        page.get_by_label("Best by").select_option(rank)
        page.locator(".above", has_text="lower" if (rank, which) == ("lower", "address") else "").wait_for()
        page.wait_for_timeout(200)
        page.wait_for_function("() => !document.querySelector('[aria-busy]')")
        best = run.complete(*OPEN.values(), k=50, rank_by=rank, exclude_known=True)
        tails = [" ".join(label.split()) for label in best.labels.column("tail").to_pylist()]
        assert [text[:60] for text in rows.locator("a").all_inner_texts()] == [text[:60] for text in tails]
        texts = [text.split()[-1] for text in rows.locator(".score-text").all_inner_texts()]
        keys = [float(text) for text in texts if text != DASH]
        assert keys == sorted(keys, reverse=True)
    assert page.locator(".badge").count() == 0
    page.get_by_role("checkbox", name="Unobserved only").uncheck()
    page.locator(".badge").first.wait_for()
    assert "fresh=no" in page.url
    notes = page.locator(".completing > .picking").all_inner_texts()
    assert len(notes) == len(set(notes)) > 0
    assert visit.problems == []


def test_completions_are_filtered_and_the_address_remembers(open_page, address, predictor):
    page = open_page(f"{address}/?{urlencode({**OPEN, 'level': 0.8})}").page
    page.locator(".completions li").first.wait_for()
    found = predictor.complete(*OPEN.values(), k=50, confidence=0.8, exclude_known=True)
    lower = float(np.round(np.median(found.lower), 2))
    page.get_by_role("slider", name="Lower end at least").fill(str(lower))
    shown = f"{int(np.sum(found.lower >= lower))} of {len(found)} completions shown"
    assert page.locator("#shown").inner_text() == shown
    again = open_page(page.url).page
    again.locator("#shown", has_text=shown).wait_for()
    page.get_by_label("Level").focus()
    page.keyboard.press("End")
    page.wait_for_url(re.compile("level=0.99"))
    page.wait_for_function("() => !document.querySelector('[aria-busy]')")
    assert page.evaluate("document.activeElement.name") == "level"  # the keyboard stays where it was


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
    assert page.locator("h2 .part").first.inner_text() == SCRIPT
    assert page.locator(".lead").inner_text().startswith("Predicted confidence")  # the line end was not lost
    assert page.locator("#result img, #result script, form img").count() == 0
    page.goto(f"{address}/?{urlencode(dict.fromkeys(('head', 'relation', 'tail', 'level'), SCRIPT))}")
    page.locator(".lead").wait_for()
    page.goto(f"{address}/?{urlencode({**QUERY, 'head': RIGHT_TO_LEFT})}")
    page.locator(".answer").wait_for()
    edges = page.locator("h2 .part").evaluate_all("all => all.map(e => e.getBoundingClientRect().left)")
    assert edges == sorted(edges)  # a label from right to left leaves the rest in order
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{address}/?{urlencode({**QUERY, 'head': LONG})}")
    page.locator(".answer").wait_for()
    assert page.locator("h2 bdi").first.get_attribute("title") == LONG
    assert page.locator("#result h2").first.bounding_box()["height"] < 300
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert dialogs == visit.problems == []


SAID = {
    "head=nobody&relation=knows&tail=Entity+11": (".lead", "has no training fact"),
    "head=nobody&relation=knows": (".lead", "nothing can be completed"),
    "relation=knows": ("[role=alert]", "head, a tail or both"),
    "view=set&head=Entity+11&relation=knows&tail=Entity+12": ("[role=alert]", "leave head or tail empty"),
    "head=Entity+11&relation=knows&run=nobody": ("[role=alert]", "no run called nobody"),
}


@pytest.mark.parametrize("query", SAID)
def test_what_is_unknown_or_missing_is_said(open_page, address, query):
    place, words = SAID[query]
    page = open_page(f"{address}/?{query}").page
    page.locator(place).filter(has_text=re.compile(words, re.IGNORECASE)).wait_for()


def test_the_token_is_asked_for_and_kept(open_page, predictor):
    with serving(predictor, token=b"long-and-secret") as place:
        page = open_page(f"{place}/?{urlencode(QUERY)}").page
        field = page.get_by_label("This service needs a token")
        for token in ("wrong", "long-and-secret"):
            field.fill(token)
            page.keyboard.press("Enter")
            page.locator("[role=alert]:visible, .answer").wait_for()
        page.locator(".answer").wait_for()
        page.reload()
        page.locator(".answer").wait_for()
        assert "secret" not in page.url
        assert page.evaluate("document.cookie + Object.values(localStorage).join()") == ""


def test_the_page_is_small(open_page, address):
    visit = open_page(f"{address}/?{urlencode(QUERY)}")
    visit.page.locator(".evidence").wait_for()
    entries = "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
    assert visit.page.evaluate(f"{entries}.reduce((sum, e) => sum + e.decodedBodySize, 0)") < 100_000


# several runs


def test_a_run_is_chosen_kept_in_links_and_compared(open_page, several, predictor, doubtful_predictor):
    visit = open_page(f"{several}/?{urlencode(QUERY)}&level=0.8")
    page = visit.page
    lead = page.locator(".answer .lead")
    page.get_by_role("combobox", name="With", exact=True).select_option("run")
    rows = page.locator(".comparison tbody tr")
    for row, run in enumerate((doubtful_predictor, predictor)):
        found = run.interval([TRIPLE], 0.8)
        for text in (f"{three(found.lower[0])} {DASH} {three(found.upper[0])}", predicted(found)):
            rows.nth(row).filter(has_text=text).wait_for()
    page.get_by_role("combobox", name="Run", exact=True).select_option("run")
    lead.filter(has_text=predicted(predictor.interval([TRIPLE], LEVELS))).wait_for()
    assert page.locator(".believing").count() == 0  # it has no distribution
    links = page.locator("main a, nav a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert all(link.startswith("./?") and "run=run" in link for link in links)
    assert visit.problems == []


def test_the_distribution_is_drawn_once_and_to_scale(open_page, several, doubtful_predictor):
    visit = open_page(f"{several}/?{urlencode(QUERY)}", scheme="dark")
    page = visit.page
    picture = page.get_by_role("img", name="Distribution of")
    picture.wait_for()
    assert picture.locator("rect[rx]").count() == 0  # the intervals stand in the table above
    low, high, mass = masses(doubtful_predictor, TRIPLE)
    single = high - low < 1e-9
    places = picture.locator("g circle").evaluate_all(
        "all => all.map(c => (c.cx.baseVal.value - 56) / (720 - 56 - 24))"
    )
    assert places == pytest.approx(sorted(set(low[single].tolist())), abs=1e-6)
    lines = picture.locator("g line")
    heights = lines.evaluate_all("all => all.map(l => l.y1.baseVal.value - l.y2.baseVal.value)")
    heaviest = [float(mass[single & (low == at)].sum()) for at in sorted(set(low[single].tolist()))]
    np.testing.assert_allclose(
        np.array(heights) / max(heights), np.array(heaviest) / max(heaviest), rtol=1e-3
    )
    page.get_by_role("button", name="Which facts weighed most?").click()
    page.locator(".weighing .hint", has_text="left out, one at a time").wait_for()
    changes = page.locator(".weights .change").all_inner_texts()
    sizes = [abs(float(text.replace("\N{MINUS SIGN}", "-"))) for text in changes]
    assert sizes == sorted(sizes, reverse=True)
    name, content = saved(page, "Save the figure as SVG")
    assert (name, b"var(" in content, b"rgb(28, 35, 38)" in content) == ("answer.svg", False, True)
    name, content = saved(page, "Save the figure as PNG")
    assert (name, content[:4]) == ("answer.png", b"\x89PNG")
    found = doubtful_predictor.interval([TRIPLE], LEVELS)
    rows = records(saved(page, "Save the numbers as CSV")[1])
    assert [float(row["lower"]) for row in rows] == found.lower[0].tolist()
    rows = json.loads(saved(page, "Save the numbers as JSON")[1])
    assert [row["upper"] for row in rows] == found.upper[0].tolist()
    assert visit.problems == []


def test_an_answer_set_is_shown_with_what_it_promises(open_page, several, doubtful_predictor):
    visit = open_page(f"{several}/?{urlencode(OPEN)}")
    page = visit.page
    page.get_by_role("link", name="A set that contains the tail").click()
    page.locator(".answer-set .promise", has_text="exchangeable with the calibration facts").wait_for()
    page.get_by_role("combobox", name="Probability").select_option("0.5")
    found = doubtful_predictor.answers(*OPEN.values(), confidence=0.5, k=100)
    page.locator(".answer-set .lead", has_text=f"{found.size:,} of {found.candidates:,}").wait_for()
    rows = records(saved(page, "Save the listed as CSV")[1])
    assert [row["tail"] for row in rows] == found.entities.to_pylist()
    assert visit.problems == []


# a list of candidates


def triples(count: int) -> list[tuple[str, str, str]]:
    """Known candidates, two unknown ones, one with markup and one with a line end and a formula in its labels."""
    ids = np.random.default_rng(8).integers(11, 58, (count, 2)).tolist()
    known = [
        (f"Entity {h}", ("likes", "knows", "meets")[i % 3], f"Entity {t}") for i, (h, t) in enumerate(ids)
    ]
    unknown = [("nobody", "likes", "Entity 11"), ("Entity 11", "hates", "Entity 12")]
    return [*known, *unknown, (SCRIPT, "likes", "Entity 11"), (LINES, "knows", '=HYPERLINK("x")')]


def csv_text(rows) -> str:
    with io.StringIO(newline="") as text:
        csv.writer(text).writerows(rows)
        return text.getvalue()


def choose(page) -> None:
    page.get_by_role("button", name="Choose", exact=True).click()


def test_what_is_chosen_and_downloaded_is_what_python_says(open_page, address, predictor, tmp_path):
    rows = triples(150)
    (tmp_path / "given.csv").write_text(
        csv_text([("weight", "object", "subject", "predicate"), *((1, t, h, r) for h, r, t in rows)]),
        newline="",
    )
    visit = open_page(f"{address}/?view=list&low=0.6&share=0.2")
    page = visit.page
    page.locator("#candidates").wait_for()
    page.get_by_label("or a file").set_input_files(tmp_path / "given.csv")
    page.wait_for_function("() => document.querySelector('#candidate-text').value")
    choose(page)
    found = predictor.select(rows, "confidence >= 0.6", 0.2, 0.9)
    selected = found.selected["selected"]
    assert 10 < selected.sum() < 140
    page.get_by_role("heading", name=f"{selected.sum()} of 154 candidates selected").wait_for()
    assert page.locator(".choices tbody tr").count() == 100
    page.get_by_role("button", name="Show all 154 rows").click()
    order = sorted(range(154), key=lambda row: (found.p_value[row], row))
    assert page.locator(".choices .p").all_inner_texts() == [f"{found.p_value[row]:.4f}" for row in order]
    name, content = saved(page, "Download all as CSV")
    got = records(content)
    assert (name, [tuple(row[key] for key in QUERY) for row in got]) == ("candidates.csv", rows)
    for column in ("lower", "upper", "p_value"):
        assert [float(row[column]) for row in got] == getattr(found, column).tolist()
    assert [row["selected"] == "true" for row in got] == selected.tolist()
    safe = records(saved(page, "Download all as CSV for spreadsheets")[1])
    assert [row["tail"] for row in safe] == [*(t for _, _, t in rows[:-1]), '\'=HYPERLINK("x")']
    page.get_by_role("button", name="Download all as TSV").click()  # a label has a line end
    assert "download CSV" in page.get_by_role("alert").inner_text()
    assert visit.problems == visit.outside == []


WRONG = {
    "": "there are no triples",
    "a\tb\tc\nd\te\n": "line 2 has 2 fields separated by tabs",
    "a,b,c\n\na,b\n": "line 3 has 2 fields separated by commas",
    'a,b,c\n"a\n",b,c\na"b,c,d\n': "line 4 has a quotation mark",
}


def test_a_list_that_is_none_is_said_in_a_sentence(open_page, address):
    page = open_page(f"{address}/?view=list").page
    for text, words in WRONG.items():
        page.get_by_label("Triples, one a line").fill(text)
        choose(page)
        page.get_by_role("alert").filter(has_text=re.compile(words, re.IGNORECASE)).wait_for()


LARGE = {
    "bytes.csv": ("a,b,c\n" + "x" * (5 << 20), r"4,194,304 are the most"),
    "lines.csv": ("a,b,c\n" * 60_000, r"more than 10,000 lines"),
    "binary.csv": ("a,b,c\n" * 9_000 + "\udcff", r"is not UTF-8"),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_file_that_is_too_much_is_refused_and_nothing_is_left_of_the_one_before(
    open_page, address, tmp_path, name
):
    content, words = LARGE[name]
    (tmp_path / name).write_text(content, errors="surrogateescape")
    page = open_page(f"{address}/?view=list").page
    page.get_by_label("Triples, one a line").fill("Entity 11\tknows\tEntity 12")
    choose(page)
    page.locator(".chosen-list").wait_for()
    page.get_by_label("or a file").set_input_files(tmp_path / name)
    page.get_by_role("alert").filter(has_text=re.compile(words)).wait_for()
    assert page.locator("#result section").count() == 0
    choose(page)
    page.get_by_role("alert").filter(has_text="There are no triples yet").wait_for()


# behind a proxy


def test_the_page_works_under_a_path_behind_a_proxy_with_tls(open_page, predictor, tmp_path):
    service = serving(predictor, root_path="/kg", hosts=frozenset({"localhost"}))
    with service as place, behind_nginx(place, tmp_path) as address:
        visit = open_page(f"{address}/kg/?{urlencode(QUERY)}", ignore_https_errors=True)
        visit.page.locator(".evidence").wait_for()
        visit.page.get_by_role("link", name="Other tails").click()
        visit.page.locator(".completions li").first.wait_for()
        assert visit.page.url.startswith(f"{address}/kg/?")
        assert visit.problems == visit.outside == []
