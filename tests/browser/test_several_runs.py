"""Several runs in a real browser: choosing one, comparing two, what is behind an evidence answer, saving it."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from unkgcp.run.answers import masses

QUERY = ("Entity 11", "knows", "Entity 22")
ASKED = "head=Entity+11&relation=knows&tail=Entity+22"


def saved(page, name: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name, exact=True).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def test_the_run_is_chosen_and_stays_in_every_link(open_page, several, predictor, doubtful_predictor):
    visit = open_page(f"{several}/?{ASKED}")
    page = visit.page
    page.locator(".answer").wait_for()
    lead = page.locator(".answer .lead")
    assert f"{doubtful_predictor.interval([QUERY]).score[0]:.3f}" in lead.inner_text()
    page.get_by_role("combobox", name="Run", exact=True).select_option("run")
    page.wait_for_url(re.compile("run=run"))
    page.locator("#about", has_text="method unkgcp").wait_for()
    page.locator(".answer .lead", has_text=f"{predictor.interval([QUERY]).score[0]:.3f}").wait_for()
    assert page.locator(".believing").count() == 0  # it has no distribution
    hrefs = page.locator("main a[href^='/?'], nav a").evaluate_all(
        "all => all.map(a => a.getAttribute('href'))"
    )
    assert all("run=run" in href for href in hrefs)
    again = open_page(page.url).page
    again.locator(".answer").wait_for()
    assert again.locator(".lead").inner_text() == lead.inner_text()
    nobody = open_page(f"{several}/?{ASKED}&run=nobody").page
    assert "no run called nobody" in nobody.get_by_role("alert").inner_text().lower()
    assert visit.problems == []


def test_two_runs_are_compared(open_page, several, predictor, doubtful_predictor):
    visit = open_page(f"{several}/?{ASKED}&level=0.8")
    page = visit.page
    page.get_by_role("combobox", name="With", exact=True).select_option("run")
    rows = page.locator(".comparison tbody tr")
    rows.first.wait_for()
    assert "with=run" in page.url
    for row, run in enumerate((doubtful_predictor, predictor)):
        found = run.interval([QUERY], 0.8)
        text = rows.nth(row).inner_text()
        assert f"{found.lower[0]:.3f} \N{EN DASH} {found.upper[0]:.3f}" in text
        assert f"{found.score[0]:.3f}" in text
    assert visit.problems == []


def test_the_distribution_is_drawn_to_scale(open_page, several, doubtful_predictor):
    visit = open_page(f"{several}/?{ASKED}")
    page = visit.page
    picture = page.get_by_role("img", name="Distribution and intervals of")
    picture.wait_for()
    low, high, mass = masses(doubtful_predictor, QUERY)
    single = high - low < 1e-9
    stems = picture.locator("g circle")
    places = stems.evaluate_all("all => all.map(c => (c.cx.baseVal.value - 56) / (720 - 56 - 24))")
    assert places == pytest.approx(sorted(set(low[single].tolist())), abs=1e-6)
    heights = picture.locator("g line").evaluate_all(
        "all => all.map(l => l.y1.baseVal.value - l.y2.baseVal.value)"
    )
    heaviest = {at: float(mass[single & (low == at)].sum()) for at in set(low[single].tolist())}
    ratios = [height / heaviest[at] for height, at in zip(heights, sorted(heaviest), strict=True)]
    assert max(ratios) == pytest.approx(min(ratios), rel=1e-3)
    cells = [{"low": 0.0, "high": 0.05, "mass": 0.4}, {"low": 0.5, "high": 0.5, "mass": 0.6}]
    parted = page.evaluate("async cells => (await import('/figure.js')).parted(cells)", cells)
    assert parted["bins"][:3] == pytest.approx([0.2, 0.2, 0])
    assert parted["values"] == [{"at": 0.5, "mass": 0.6}]
    assert visit.problems == []


def test_facts_that_weighed_most_are_found_on_demand(open_page, several):
    visit = open_page(f"{several}/?{ASKED}")
    page = visit.page
    page.get_by_role("button", name="Which facts weighed most?").click()
    page.locator(".weighing .hint", has_text="left out, one at a time").wait_for()
    said = page.locator(".weighing").inner_text()
    assert "not learned again" in said
    changes = [
        float(text.replace("\N{MINUS SIGN}", "-"))
        for text in page.locator(".weights .change").all_inner_texts()
    ]
    assert [abs(change) for change in changes] == sorted((abs(change) for change in changes), reverse=True)
    assert visit.problems == []


def test_figures_and_answers_are_saved(open_page, several, doubtful_predictor):
    visit = open_page(f"{several}/?{ASKED}", scheme="dark")
    page = visit.page
    page.locator(".believing").wait_for()
    name, content = saved(page, "Save the figure as SVG")
    root = ElementTree.fromstring(content)
    assert name == "answer.svg"
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert b"var(" not in content
    assert b"rgb(28, 35, 38)" in content  # the card of the dark theme
    name, content = saved(page, "Save the figure as PNG")
    assert (name, content[:4]) == ("answer.png", b"\x89PNG")
    assert int.from_bytes(content[16:20], "big") == 1440
    levels = [0.5, 0.8, 0.9, 0.95, 0.99]
    found = doubtful_predictor.interval([QUERY], levels)
    rows = list(csv.DictReader(io.StringIO(saved(page, "Save the numbers as CSV")[1].decode())))
    assert [float(row["lower"]) for row in rows] == found.lower[0].tolist()
    assert [row["upper"] for row in json.loads(saved(page, "Save the numbers as JSON")[1])] == found.upper[
        0
    ].tolist()
    page.get_by_role("link", name="Other tails").click()
    page.locator(".completions li").first.wait_for()
    best = doubtful_predictor.complete("Entity 11", "knows", k=50)
    listed = json.loads(saved(page, "Save the list as JSON")[1])
    assert [row["lower"] for row in listed] == best.lower.tolist()
    assert visit.problems == []


def test_an_answer_set_is_shown_with_what_it_promises(open_page, several, doubtful_predictor):
    visit = open_page(f"{several}/?head=Entity+11&relation=knows")
    page = visit.page
    page.get_by_role("link", name="A set that contains the tail").click()
    page.locator(".answer-set").wait_for()
    found = doubtful_predictor.answers("Entity 11", "knows", confidence=0.9, k=100)
    lead = page.locator(".answer-set .lead").inner_text()
    assert f"{found.candidates:,} entities" in lead
    assert (f"{found.size:,} of {found.candidates:,} entities" in lead) == (not found.everything)
    assert page.locator(".members li").count() == len(found)
    assert "exchangeable with the calibration facts" in page.locator(".answer-set .promise").inner_text()
    page.get_by_role("combobox", name="Probability").select_option("0.5")
    page.wait_for_url(re.compile("level=0.5"))
    smaller = doubtful_predictor.answers("Entity 11", "knows", confidence=0.5, k=100)
    page.locator(".answer-set .lead", has_text=f"{smaller.size:,} of").wait_for()
    _, content = saved(page, "Save the listed as CSV")
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    assert [row["tail"] for row in rows] == smaller.entities.to_pylist()
    page.get_by_role("combobox", name="Tail", exact=True).fill("Entity 12")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_role("alert").filter(has_text="leave head or tail empty").wait_for()
    assert visit.problems == []
