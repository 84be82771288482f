// Completions of (head, relation, ?) or (?, relation, tail): a sorted list of intervals, to be filtered.

import { BASIS, believed, besides, promise, triple } from "./answer.js";
import { axis, count, drawn, make, named, percent, say, span, three } from "./dom.js";
import { downloads, rowsAs } from "./download.js";
import { LEVELS, link } from "./state.js";

export function completing(state, result, run, changed, fail) {
  const open = state.head ? "tail" : "head";
  const shown = make("p", { class: "hint", id: "shown" });
  const rows = result.answers.map((one, i) => row(state, one, i, open));
  const list = make("ol", { class: "completions" }, ...rows.map(({ element }) => element));

  function filter() {
    let kept = 0;
    for (const { element, one } of rows) {
      const narrow = one.lower !== null && one.upper - one.lower <= state.width;
      element.hidden = (one.lower ?? 0) < state.lower || !(narrow || state.width === 1);
      kept += element.hidden ? 0 : 1;
    }
    shown.textContent = `${kept.toLocaleString("en")} of ${count(rows.length, "completion", "completions")} shown`;
  }

  const slid = (name) => (value) => {
    state[name] = value;
    filter();
    changed(state, true);
    say(shown.textContent);
  };
  const chosen = (name) => (value) => changed({ ...state, [name]: value }, false);
  filter();
  return make(
    "section",
    { class: "completing", "aria-labelledby": "completing-title" },
    make("h2", { id: "completing-title" }, triple(state)),
    make("p", { class: "promise", text: promise(run) }),
    ...[...new Set(result.answers.map((one) => BASIS[one.promise]))].filter(Boolean).map((text) => make("p", { class: "picking", text })),
    ...result.notes.map((note) => make("p", { class: "note", text: note })),
    make(
      "div",
      { class: "controls", role: "group", "aria-label": "What is shown" },
      choice("level", "Level", LEVELS.includes(state.level) ? LEVELS : [...LEVELS, state.level], state.level, percent, (value) => chosen("level")(Number(value))),
      choice("rank", "Best by", ["score", "lower"], state.rank, (name) => ({ score: "score", lower: "lower end" })[name], chosen("rank")),
      choice("fresh", "Training facts", ["no", "yes"], state.fresh, (name) => ({ no: "shown", yes: "left out" })[name], chosen("fresh")),
      slider("Lower end at least", state.lower, slid("lower")),
      slider("Width at most", state.width, slid("width")),
    ),
    make("p", { class: "picking", text: `Whoever picks from this list, by the sliders or by eye, picks by looking at the answers: among what is picked, ${percent(state.level)} intervals may hold less often than ${percent(state.level)}.` }),
    make(
      "div",
      { class: "above" },
      shown,
      axis(),
      ...["interval", "score"].map((text) => make("span", { class: "number", "aria-hidden": "true", text })),
    ),
    list,
    make(
      "p",
      { class: "more" },
      downloads("Save the list", "completions", ["csv", "json"], (format) => rowsAs(format, Object.keys(result.answers[0] ?? {}), result.answers), fail),
      make("a", { href: link({ ...state, view: "set" }), text: `A set that contains the ${open}` }),
      make("a", { href: link(state), text: "Link to this list" }),
    ),
  );
}

function row(state, one, i, open) {
  const { head, relation, tail, score, lower, upper, known, value, other } = one;
  // these two are the same for all completions and are said once, above the list
  const more = [...believed(one), ...besides({ ...one, promise: undefined, presumes_fact: undefined })];
  const element = make(
    "li",
    {},
    make("span", { class: "rank", text: String(i + 1), "aria-hidden": "true" }),
    make("a", { class: "label", href: link({ head, relation, tail, level: state.level }) }, named(one[open])),
    drawn({ lower, upper, score, known, value, other, kind: "strong" }),
    make("span", { class: "number" }, make("span", { class: "unseen", text: " interval " }), span(lower, upper)),
    make("span", { class: "number score-text" }, make("span", { class: "unseen", text: " score " }), three(score)),
    known === null ? null : make("span", { class: "badge", text: `fact ${three(known)}` }),
    more.length ? make("span", { class: "besides", text: more.join(" ").trim() }) : null,
  );
  return { element, one };
}

export function choice(name, title, values, value, shown, changed) {
  const select = make("select", { name, onchange: () => changed(select.value) },
    ...values.map((one) => make("option", { value: one, text: shown(one), selected: one === value })));
  return make("label", {}, make("span", { text: title }), select);
}

function slider(name, value, changed) {
  const output = make("output", { text: value.toFixed(2) });
  const input = make("input", {
    type: "range", min: 0, max: 1, step: 0.01, value, "aria-label": name,
    oninput: () => {
      output.textContent = Number(input.value).toFixed(2);
      changed(Number(input.value));
    },
  });
  return make("label", {}, make("span", {}, name, " ", output), input);
}
