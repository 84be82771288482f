"""Choosing from a list of candidates in a real browser: paste, upload, threshold, what is selected, downloads."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from tests.browser.conftest import LINES, SCRIPT
from unkgcp.errors import InputError
from unkgcp.tabular.query_files import query_batches


def triples(count: int = 150) -> list[tuple[str, str, str]]:
    """Known candidates, two unknown ones, one with markup in its label."""
    rng = np.random.default_rng(8)
    ids = rng.integers(11, 58, (count, 2)).tolist()
    known = [
        (f"Entity {head}", ("likes", "knows", "meets")[i % 3], f"Entity {tail}")
        for i, (head, tail) in enumerate(ids)
    ]
    return [
        *known,
        ("nobody", "likes", "Entity 11"),
        ("Entity 11", "hates", "Entity 12"),
        (SCRIPT, "likes", "Entity 11"),
    ]


def tsv(rows: list[tuple[str, str, str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def choose(page) -> None:
    page.get_by_role("button", name="Choose", exact=True).click()
    page.locator(".chosen-list").wait_for()


def test_a_pasted_list_is_chosen_from(open_page, address, predictor):
    visit = open_page(f"{address}/")
    page = visit.page
    page.get_by_role("link", name="Choose from a list").click()
    page.get_by_label("Triples, one a line").fill(tsv(triples()))
    page.get_by_label("Lower bound").fill("0.6")
    page.get_by_label("Allowed share of wrong ones").fill("0.2")
    choose(page)
    assert page.url == f"{address}/?view=list&low=0.6&share=0.2"
    found = predictor.select(triples(), "confidence >= 0.6", 0.2, 0.9)
    selected = found.selected["selected"]
    assert 10 < selected.sum() < 140
    title = f"{selected.sum()} of 153 candidates selected"
    assert page.get_by_role("heading", name=title).count() == 1
    assert page.get_by_role("status").inner_text() == title
    assert "exchangeable with the calibration facts" in page.locator(".chosen-list").inner_text()
    rows = page.locator(".choices tbody tr")
    assert rows.count() == 100
    page.get_by_role("button", name="Show all 153 rows").click()
    assert rows.count() == 153
    order = sorted(range(153), key=lambda row: (found.p_value[row], row))
    assert page.locator(".choices .p").all_inner_texts() == [f"{found.p_value[row]:.4f}" for row in order]
    verdicts = page.locator(".choices .verdict strong").all_inner_texts()
    assert verdicts == ["yes" if selected[row] else "no" for row in order]
    cut = f"{found.p_value[selected].max():.4f}"
    page.get_by_label("Show").select_option("not selected")
    assert set(page.locator(".choices .verdict small").all_inner_texts()) == {f" p-value above {cut}"}
    page.get_by_label("Show").select_option("unknown")
    assert sorted(page.locator(".choices .verdict small").all_inner_texts()) == [
        " An entity has no training fact",
        " The relation has no training fact",
    ]
    assert visit.problems == []
    assert visit.outside == []


def saved(page, name: str) -> tuple[str, str]:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name, exact=True).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes().decode()


def test_what_is_downloaded_is_what_python_says(open_page, address, predictor, tmp_path):
    rows = [*triples(60), (LINES, "knows", 'Entity "11"')]
    with io.StringIO(newline="") as text:
        csv.writer(text).writerows(
            [("weight", "object", "subject", "predicate"), *((1, t, h, r) for h, r, t in rows)]
        )
        (tmp_path / "given.csv").write_text(text.getvalue(), encoding="utf-8", newline="")
    page = open_page(f"{address}/?view=list&test=below&high=0.6&share=0.3&level=0.8").page
    page.get_by_label("or a file").set_input_files(tmp_path / "given.csv")
    page.wait_for_function("() => document.querySelector('#candidate-text').value")
    choose(page)
    found = predictor.select(rows, "confidence < 0.6", 0.3, 0.8)
    name, text = saved(page, "Download all as CSV")
    got = list(csv.DictReader(io.StringIO(text, newline="")))
    assert name == "candidates.csv"
    assert list(got[0]) == [
        "head",
        "relation",
        "tail",
        "score",
        "lower",
        "upper",
        "status",
        "p_value",
        "selected",
    ]
    assert [(row["head"], row["relation"], row["tail"]) for row in got] == rows
    for column in ("lower", "upper", "p_value"):
        assert [float(row[column]) for row in got] == getattr(found, column).tolist()
    assert [row["score"] == "" for row in got] == (found.code != 0).tolist()
    assert [row["selected"] for row in got] == [
        str(one).lower() for one in found.selected["selected"].tolist()
    ]
    name, text = saved(page, "Download the selected as TSV")
    assert name == "selected.tsv"
    lines = [line.split("\t")[:3] for line in text.splitlines()]
    assert lines[1:] == [
        list(row) for row, chosen in zip(rows, found.selected["selected"], strict=True) if chosen
    ]
    page.get_by_role("button", name="Download all as TSV").click()  # a label has a line end
    assert "download CSV" in page.get_by_role("alert").inner_text()


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
        page.get_by_role("button", name="Choose", exact=True).click()
        page.get_by_role("alert").filter(has_text=re.compile(words, re.IGNORECASE)).wait_for()


def test_what_the_service_refuses_is_shown(open_page, address):
    page = open_page(f"{address}/?view=list&low=0").page
    page.get_by_label("Triples, one a line").fill(tsv(triples(3)))
    page.get_by_role("button", name="Choose", exact=True).click()
    page.get_by_role("alert").filter(visible=True).wait_for()
    assert "nothing to choose" in page.get_by_role("alert").inner_text()


def test_nothing_selected_is_explained(open_page, address):
    page = open_page(f"{address}/?view=list&low=0.95&share=0.001").page
    page.get_by_label("Triples, one a line").fill(tsv(triples(5)))
    choose(page)
    assert "Nothing is selected: for some r" in page.locator(".chosen-list .lead").inner_text()


READ = "async text => (await import('/table_text.js')).triplesFrom(text)"
READABLE = [
    "a\tb\tc\nd\te\tf\n",
    "\ufeffa\tb\tc\r\nd\te\tf",
    "head\trelation\ttail\n1\t2\t3\n",
    "weight\ttail\tRelation\thead\n0.5\tc\tb\ta\n",
    "a\tb\tc\t0.7\n\nd\te\tf\t0.8\n",
    'a,b,c\n"x, y",b,"say ""hi"""\n',
    'subject,predicate,object\n"two\nlines",b,c\n',
    "h\tr\tt\na\tb\tc\n",
    'a "quoted" word\tb\tc\n',
    " a\tb \tc\n",
]
UNREADABLE = ["a\tb\tc\na\tb\n", 'a,b,c\na"b,c,d\n', "a\tb\t\n", "\n\n"]


def test_lists_are_read_and_refused_as_the_commands_do(open_page, address, tmp_path):
    page = open_page(f"{address}/?view=list").page
    path = tmp_path / "list.txt"
    for text in READABLE:
        path.write_text(text, encoding="utf-8", newline="")
        rows = [tuple(row.values()) for batch in query_batches(str(path)) for row in batch.to_pylist()]
        assert [tuple(row) for row in page.evaluate(READ, text)] == rows
    for text in UNREADABLE:
        path.write_text(text, encoding="utf-8", newline="")
        with pytest.raises(InputError):
            list(query_batches(str(path)))
        with pytest.raises(Exception, match=r"line|there are no triples"):
            page.evaluate(READ, text)


def test_a_list_by_keyboard_alone_on_a_phone(open_page, address):
    """From the address line to the downloads with Tab, arrows, letters and Enter; nothing is wider than the screen."""
    visit = open_page(f"{address}/?view=list", width=360, height=740)
    page = visit.page
    page.locator("#candidates").wait_for()
    page.locator("#candidate-text").focus()
    page.keyboard.insert_text(tsv(triples(20)))
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.innerText"))
        if reached[-1] == "low":
            page.keyboard.type("0.6")
        if reached[-1] == "Choose":
            page.keyboard.press("Enter")
            break
    assert reached == ["candidate-file", "test", "low", "share", "candidate-level", "Choose"]
    page.locator(".chosen-list").wait_for()
    assert re.search("low=0.6", page.url)
    assert page.evaluate("document.activeElement.id") == "result"
    page.keyboard.press("Tab")
    assert (
        page.evaluate("document.activeElement.getAttribute('aria-label')") == "Download the selected as CSV"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert visit.problems == []
