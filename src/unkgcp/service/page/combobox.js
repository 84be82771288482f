// Type-ahead for a text field, after the ARIA combobox pattern with a list: arrows move, Enter takes, Escape closes.
// The focus never leaves the field.

import { labels } from "./api.js";
import { byId, count, make, named, say, short } from "./dom.js";

const PAUSE = 90; // milliseconds after the last key

export function combobox(input, kind, failed) {
  const list = byId(input.getAttribute("aria-controls"));
  let options = [];
  let active = -1;
  let timer = 0;
  let asking = null;
  let exact = { label: "", shown: "" }; // a text field drops line ends; the label chosen may have some

  function set(label) {
    input.value = label;
    exact = { label, shown: input.value };
  }

  function close() {
    clearTimeout(timer);
    asking?.abort();
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function mark(place) {
    active = place;
    [...list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === place)));
    if (place < 0) {
      input.removeAttribute("aria-activedescendant");
    } else {
      input.setAttribute("aria-activedescendant", list.children[place].id);
      list.children[place].scrollIntoView({ block: "nearest" });
    }
  }

  function take(place) {
    set(options[place].label);
    close();
    say(`${short(input.value)} chosen`);
  }

  function show(found) {
    options = found.labels;
    list.replaceChildren(
      ...options.map(({ label, facts }, i) =>
        make(
          "li",
          { role: "option", id: `${list.id}-${i}`, "aria-selected": "false",
            onmousedown: (event) => event.preventDefault(), onclick: () => take(i) },
          named(label, { class: "label" }),
          facts === null ? null : make("span", { class: "facts", text: count(facts, "fact", "facts") }),
        ),
      ),
    );
    list.hidden = options.length === 0;
    input.setAttribute("aria-expanded", String(options.length > 0));
    mark(-1);
    say(options.length === 0 ? "no such label" : `${count(options.length, "label", "labels")}${found.more ? ", and more" : ""}`);
  }

  async function look() {
    asking?.abort();
    asking = new AbortController();
    try {
      const found = await labels(kind, input.value.trim(), asking.signal);
      if (document.activeElement === input) show(found);
    } catch (error) {
      if (error.name !== "AbortError") failed(error);
    }
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE);
  });
  input.addEventListener("blur", close);
  input.addEventListener("click", () => list.hidden && look());
  input.addEventListener("keydown", (event) => {
    const open = !list.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) return look();
      const step = event.key === "ArrowDown" ? 1 : -1;
      mark((active + step + options.length + (active < 0 && step < 0 ? 1 : 0)) % options.length);
    } else if (event.key === "Enter" && open && active >= 0) {
      event.preventDefault();
      take(active);
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      close();
    } else if (event.key === "Tab" && open && active >= 0) {
      take(active);
    }
  });
  const value = () => (input.value === exact.shown ? exact.label : input.value.trim());
  return { close, set, value };
}
