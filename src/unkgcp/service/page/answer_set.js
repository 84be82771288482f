// The set of entities that contains the answer of (head, relation, ?) or (?, relation, tail) with a chosen probability.

import { BASIS, noted, triple } from "./answer.js";
import { choice } from "./completing.js";
import { count, make, named, percent } from "./dom.js";
import { SAFE, downloads, rowsAs } from "./download.js";
import { LEVELS, link } from "./state.js";

const LEAST = [0, 0.5, 0.7, 0.9];
const numeral = (value) => value.toLocaleString("en");

export const sizeSentence = ({ size, candidates }) => `${numeral(size)} of ${count(candidates, "entity", "entities")}`;

export function answerSet(state, found, changed, fail) {
  const open = state.head ? "tail" : "head";
  const pick = (name) => (value) => changed({ ...state, [name]: Number(value) });
  const levels = LEVELS.includes(state.level) ? LEVELS : [...LEVELS, state.level];
  const rows = found.answers.map(({ rank, head, relation, tail, share }) => ({ rank, head, relation, tail, share }));
  return make(
    "section",
    { class: "answer-set", "aria-labelledby": "set-title" },
    make("h2", { id: "set-title" }, triple(state)),
    make("p", { class: "lead" }, ...sentence(state, found, open)),
    ...noted(found.notes, found.everything),
    make("p", { class: "promise", text: promised(state, found, open) }),
    make(
      "div",
      { class: "controls", role: "group", "aria-label": "What is asked for" },
      choice("level", "Probability", levels, state.level, percent, pick("level")),
      choice("least", "New facts from confidence", LEAST.includes(state.least) ? LEAST : [...LEAST, state.least], state.least, (least) => (least ? String(least) : "any"), pick("least")),
    ),
    make("ol", { class: "members" }, ...rows.map((row) => member(state, row, open))),
    found.more ? make("p", { class: "hint", text: `The ${numeral(rows.length)} best of ${numeral(found.size)} are listed.` }) : null,
    make(
      "p",
      { class: "more" },
      downloads("Save the listed", "answer-set", ["csv", "json", SAFE], (format) => rowsAs(format, ["rank", "head", "relation", "tail", "share"], rows), fail),
      make("a", { href: link({ ...state, view: "" }), text: "Completions with intervals" }),
      make("a", { href: link(state), text: "Link to this set" }),
    ),
  );
}

function sentence(state, found, open) {
  const strong = (text) => make("strong", { text });
  if (found.everything) {
    return ["The set is all of the ", strong(count(found.candidates, "entity", "entities")), " that could answer, so it says nothing: ",
      `there are too few calibration facts (${numeral(found.calibration)}) for ${percent(state.level)}, or nothing tells the candidates apart.`];
  }
  return [`The ${open} of a new fact is one of these `, strong(sizeSentence(found)), ` with a probability of at least ${percent(state.level)}.`];
}

function promised(state, found, open) {
  const least = state.least ? `, with a confidence of at least ${state.least}` : "";
  const basis = found.promise ? ` ${BASIS[found.promise]}` : "";
  const known = found.known ? ` ${count(found.known, "entity answers", "entities answer")} by a training fact already and ${found.known === 1 ? "is" : "are"} not in the set.` : "";
  return `Promised for a new fact that is exchangeable with the calibration facts and none of the training facts${least}: its ${open} is in its set with at least that probability, on average over such questions. Nothing is promised of a single member, nor of a question that no new fact answers. ${numeral(found.calibration)} calibration facts set this threshold.${basis}${known}`;
}

function member(state, row, open) {
  const { head, relation, tail, share, rank } = row;
  const bar = make("span", { class: "bar", "aria-hidden": "true" });
  const range = make("span", { class: "range strong" });
  range.style.width = `${100 * share}%`;
  bar.append(range);
  return make(
    "li",
    {},
    make("span", { class: "rank", text: String(rank), "aria-hidden": "true" }),
    make("a", { class: "label", href: link({ head, relation, tail, level: state.level }) }, named(row[open])),
    bar,
    make("span", { class: "number" }, make("span", { class: "unseen", text: " share of the likelihood " }), `${(100 * share).toFixed(1)} %`),
  );
}
