"""Every view of the explorer: names for all controls, contrast in both themes, a phone's width, the keyboard alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.checks import faint, nameless, tabbed

pytest.importorskip("fastapi", reason="fastapi is not installed")


FACT = "head=Entity+11&relation=knows&tail=Entity+22"


def weigh(page: Any) -> None:
    page.get_by_role("button", name="Which facts weighed most?").click()
    page.locator(".weighing .weights").wait_for()


def choose(page: Any) -> None:
    rows = [f"Entity {i}\tknows\tEntity {i + 3}" for i in range(11, 40)]
    page.get_by_label("Triples, one a line").fill("\n".join([*rows, "nobody\tknows\tEntity 11"]))
    page.get_by_role("button", name="Choose", exact=True).click()


# the address of a view, what is done there, and what is then to be seen
VIEWS: dict[str, tuple[str, Callable[[Any], None], str]] = {
    "answer": (f"{FACT}&with=run", weigh, ".comparison"),
    "completions": ("head=Entity+11&relation=knows&k=8", lambda page: None, ".completions li"),
    "set": ("view=set&head=Entity+11&relation=knows", lambda page: None, ".members li"),
    "start": ("", lambda page: None, ".start a"),
    "list": ("view=list&run=run&low=0.6&share=0.3", choose, ".choices"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_can_be_used_by_everybody(open_page, several, view):
    query, act, wanted = VIEWS[view]
    visit = open_page(f"{several}/?{query}", width=360, height=740)
    page = visit.page
    page.locator("#result section" if view != "list" else "#candidates").first.wait_for()
    act(page)
    page.locator(wanted).first.wait_for()
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert faint(page) == [], theme
    assert nameless(page) == []
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    controls = page.locator("a[href], button, input, select, textarea").filter(visible=True)
    many = controls.evaluate_all("all => all.filter(e => !e.disabled).length")
    assert tabbed(page) == many
    assert visit.problems == []


def test_the_switch_turns_the_colours_and_is_remembered(open_page, several):
    visit = open_page(f"{several}/", scheme="light")
    page = visit.page
    switch = page.get_by_role("button", name="Dark")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    assert switch.get_attribute("aria-pressed") == "false"
    switch.press("Enter")
    dark = page.evaluate(ground)
    assert dark != light
    assert switch.get_attribute("aria-pressed") == "true"
    page.reload()
    assert page.evaluate(ground) == dark
    switch.click()
    assert page.evaluate(ground) == light
    assert page.evaluate("localStorage.length") == 0  # what the system has is no choice
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) == dark
    assert visit.problems == []
