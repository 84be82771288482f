"""What everybody needs of a page: text with contrast, names for all controls, the focus to be seen."""

from __future__ import annotations

from typing import Any

# every visible text with less contrast to what is behind it than WCAG's AA asks for
FAINT = """() => {
  const numbers = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = (c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const over = ([r, g, b, a = 1], ground) => [r, g, b].map((c, i) => a * c + (1 - a) * ground[i]);
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const colour = numbers(getComputedStyle(element).backgroundColor);
    return colour.length === 3 || colour[3] === 1 ? colour : over(colour, behind(element.parentElement));
  };
  const opacity = (element) => (element ? getComputedStyle(element).opacity * opacity(element.parentElement) : 1);
  const beside = (element) => {
    const box = element.getBoundingClientRect();
    return box.right <= 0 || box.left >= innerWidth || !box.width;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const faint = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const seen = element.checkVisibility({visibilityProperty: true}) && !element.closest(".unseen, .skip, option");
    const solid = seen ? opacity(element) : 0;
    if (!solid || beside(element) || !walker.currentNode.data.trim()) continue;
    const style = getComputedStyle(element);
    const [r, g, b, alpha = 1] = numbers(element instanceof SVGElement ? style.fill : style.color);
    const ground = behind(element);
    const colour = over([r, g, b, alpha * solid], ground);
    const [high, low] = [luminance(colour), luminance(ground)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if ((high + 0.05) / (low + 0.05) < (large ? 3 : 4.5)) faint.push(element.outerHTML);
  }
  return faint;
}"""


STILL = """() => !document.querySelector("[aria-busy]")
  && document.getAnimations().every((each) => each.playState !== "running")"""


def faint(page: Any) -> list[str]:
    """Every visible text that is hard to read, once nothing fades any more."""
    page.wait_for_function(STILL)
    found: list[str] = page.evaluate(FAINT)
    return found


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
