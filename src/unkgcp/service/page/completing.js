// Completions of (head, relation, ?) or (?, relation, tail): a sorted list of intervals, to be filtered.

import { besides, noted, promise, sentenceOf, triple, why } from "./answer.js";
import { axis, count, drawn, inWords, make, named, percent, predicted, say, span, three } from "./dom.js";
import { SAFE, downloads, rowsAs } from "./download.js";
import { LEVELS, link } from "./state.js";

export function completing(state, result, run, changed, fail) {
  const open = state.head ? "tail" : "head";
  const [first] = result.answers;
  if (first?.[open] === null) {
    return make("section", { class: "completing" }, make("h2", {}, triple(state)), make("p", { class: "lead", text: `${why(first.status, null).split(",")[0]}, so nothing can be completed.` }));
  }
  const shown = make("p", { class: "hint", id: "shown" });
  const ranking = rankings(result.answers);
  const said = result.answers.map((one) => [...besides(one), one.kind && `Kind of query: ${one.kind}.`, one.status === "ok" && one.score !== null ? "" : why(one.status, one.score)].filter(Boolean));
  const ofAll = (said[0] ?? []).filter((text) => said.every((texts) => texts.includes(text))); // said once, above the list
  if (result.answers.some((one) => typeof one.value === "number")) ofAll.push("Under each: what the model believes, if it is a fact.");
  if (ranking.expected && result.answers.some((one) => one.known !== null)) ofAll.push("Training facts come first.");
  const rows = result.answers.map((one, i) => row(state, one, i, open, ranking[state.rank](one), said[i].filter((text) => !ofAll.includes(text)).map((text) => text.replace("Kind of query: ", ""))));
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
    ...[...ofAll, result.presumption && sentenceOf(result.presumption)].filter(Boolean).map((text) => make("p", { class: "picking", text })),
    ...noted(result.notes, result.answers.some(({ lower, upper }) => lower <= 0 && upper >= 1)),
    make(
      "div",
      { class: "controls", role: "group", "aria-label": "What is shown" },
      choice("level", "Level", LEVELS.includes(state.level) ? LEVELS : [...LEVELS, state.level], state.level, percent, (value) => chosen("level")(Number(value))),
      choice("rank", "Best by", ["score", "lower"], state.rank, (name) => ranking.names[name], chosen("rank")),
      unobserved(state.fresh === "yes", run.facts !== null, (on) => chosen("fresh")(on ? "yes" : "no")),
      slider("Lower end at least", state.lower, slid("lower")),
      slider("Width at most", state.width, slid("width")),
    ),
    make("p", { class: "picking", text: `Whoever picks from this list, by the sliders or by eye, picks by looking at the answers: among what is picked, ${percent(state.level)} intervals may hold less often than ${percent(state.level)}.` }),
    make(
      "div",
      { class: "above" },
      shown,
      axis(),
      ...["interval", ranking.short[state.rank]].map((text) => make("span", { class: "number", "aria-hidden": "true", text })),
    ),
    list,
    make(
      "p",
      { class: "more" },
      downloads("Save the list", "completions", ["csv", "json", SAFE], (format) => rowsAs(format, Object.keys(result.answers[0] ?? {}), result.answers), fail),
      make("a", { href: link({ ...state, view: "set" }), text: `A set that contains the ${open}` }),
      make("a", { href: link(state), text: "Link to this list" }),
    ),
  );
}

// What each choice of an order goes by. An evidence run counts the chance that a completion is no fact, which has
// confidence 0.
function rankings(answers) {
  if (!answers.some((one) => typeof one.expected === "number")) {
    return { names: { score: "score", lower: "lower end" }, short: { score: "score", lower: "lower" }, score: (one) => one.score, lower: (one) => one.lower };
  }
  return {
    expected: true,
    names: { score: "expected confidence", lower: "expected lower end" },
    short: { score: "expected", lower: "expected" },
    score: (one) => one.expected,
    lower: (one) => one.lower * (one.known === null ? Math.min(one.expected / Math.max(one.score, 1e-9), 1) : 1),
  };
}

function row(state, one, i, open, rank, more) {
  const { head, relation, tail, lower, upper, known, value, other } = one;
  const believed = typeof value === "number" ? [inWords(one)] : [];
  const element = make(
    "li",
    {},
    make("span", { class: "rank", text: String(i + 1), "aria-hidden": "true" }),
    make("a", { class: "label", href: link({ head, relation, tail, level: state.level }) }, named(one[open])),
    drawn({ lower, upper, score: predicted(one), known, other, kind: "strong" }),
    make("span", { class: "number" }, make("span", { class: "unseen", text: " interval " }), span(lower, upper)),
    make("span", { class: "number score-text" }, make("span", { class: "unseen", text: " ranked by " }), rank === null ? "–" : three(rank)),
    known === null ? null : make("span", { class: "badge", text: `fact ${three(known)}` }),
    believed.length || more.length ? make("span", { class: "besides", text: [...believed, ...more].join(" ") }) : null,
  );
  return { element, one };
}

function unobserved(on, possible, changed) {
  const box = make("input", { type: "checkbox", name: "fresh", checked: on, disabled: !possible, onchange: () => changed(box.checked) });
  return make("label", { class: "switch" }, box, make("span", { text: "Unobserved only" }));
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
