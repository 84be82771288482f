"""Every view of the explorer: names for all controls, contrast in both themes, a phone's width, the keyboard alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")


FACT = "head=Entity+11&relation=knows&tail=Entity+22"


def weigh(page: Any) -> None:
    page.get_by_role("button", name="Which facts weighed most?").click()
    page.locator(".weighing .hint", has_text="one at a time").wait_for()


def choose(page: Any) -> None:
    rows = [f"Entity {i}\tknows\tEntity {i + 3}" for i in range(11, 40)]
    page.get_by_label("Triples, one a line").fill("\n".join([*rows, "nobody\tknows\tEntity 11"]))
    page.get_by_role("button", name="Choose", exact=True).click()


# the address of a view, what is done there, and what is then to be seen
VIEWS: dict[str, tuple[str, Callable[[Any], None], str]] = {
    "answer": (f"{FACT}&with=run", weigh, ".comparison"),
    "completions": ("head=Entity+11&relation=knows&k=8", lambda page: None, ".completions li"),
    "set": ("view=set&head=Entity+11&relation=knows", lambda page: None, ".members li"),
    "list": ("view=list&run=run&low=0.6&share=0.3", choose, ".choices"),
}

# every visible text with less contrast to what is behind it than WCAG's AA asks for
FAINT = """() => {
  const numbers = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = (c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return numbers(getComputedStyle(document.documentElement).backgroundColor);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const faint = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const seen = element.checkVisibility() && !element.closest(".unseen, .skip, option");
    if (!seen || !walker.currentNode.data.trim()) continue;
    const style = getComputedStyle(element);
    const colour = numbers(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [luminance(colour), luminance(behind(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(element.outerHTML);
  }
  return faint;
}"""


def nameless(page: Any) -> list[str]:
    """Roles of what can be focused and has no name for those who listen."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")
    found = []
    for node in tree["nodes"]:
        held = {one["name"]: one["value"].get("value") for one in node.get("properties", [])}
        role, name = (node.get(part, {}).get("value", "") for part in ("role", "name"))
        focusable = held.get("focusable") and not node.get("ignored") and role != "RootWebArea"
        if focusable and not name.strip():
            found.append(role)
    return found


# whether what has the focus shows it; null if it was here before
SHOWN = """() => {
  const element = document.activeElement;
  if (element === document.body) return true;
  if (element.dataset.seen) return null;
  element.dataset.seen = "yes";
  const style = getComputedStyle(element);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
}"""


def tabbed(page: Any) -> int:
    """How many places Tab reaches until it comes back to one; each must show that it has the focus."""
    shown = True
    while shown is not None:
        assert shown, page.evaluate("document.activeElement.outerHTML")
        page.keyboard.press("Tab")
        shown = page.evaluate(SHOWN)
    return page.locator("[data-seen]").count()


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
        assert page.evaluate(FAINT) == [], theme
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
