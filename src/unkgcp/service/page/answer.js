// The answer to one triple: its interval at several levels, and the facts behind it.

import { axis, count, drawn, inWords, make, named, percent, predicted, span, three } from "./dom.js";
import { link } from "./state.js";

const TITLES = {
  same: "This very triple",
  pair: "Head and tail under other relations",
  reversed: "From tail to head",
  head_relation: "Same head and relation",
  relation_tail: "Same relation and tail",
  paths: "Paths of two facts",
};
const WHY = {
  "unknown-entity": "An entity has no training fact",
  "unknown-relation": "The relation has no training fact",
};
// What a status says, and what it means for an interval: one of its kind, or none at all.
export const why = (status, score) => `${WHY[status] ?? "Too few calibration facts are of this kind of query"}${score === null ? ", so nothing is claimed: the interval is the whole range" : ": the interval is that of such queries"}.`;

export function triple({ head, relation, tail }) {
  const part = (text, kind) => make("span", { class: `part ${kind}` }, named(text || "?"));
  return make("span", { class: "triple" }, part(head, "entity"), " ", part(relation, "relation"), " ", part(tail, "entity"));
}

export function answer(query, asked, result, known, run, saving) {
  const [lower, upper, status] = [result.lower, result.upper, result.status].map((column) => column[0]);
  const score = predictedOf(result);
  const place = asked.indexOf(query.level);
  const at = (column) => result[column]?.[0][place];
  const chosen = { no_fact: at("no_fact"), fact_lower: at("fact_lower"), fact_upper: at("fact_upper") };
  for (const name of ["promise", "value", "belief", "other", "other_belief"]) chosen[name] = result[name]?.[0];
  const { other } = chosen;
  const rows = asked.map((level, i) =>
    make(
      "tr",
      { class: i === place ? "chosen" : null },
      make("th", { scope: "row" }, make("a", { href: link({ ...query, level }), text: percent(level) })),
      make("td", { class: "drawing" }, drawn({ lower: lower[i], upper: upper[i], score, known, other, kind: i === place ? "strong" : "" })),
      make("td", { class: "number", text: span(lower[i], upper[i]) }),
      make("td", { class: "number width", text: three(upper[i] - lower[i]) }),
    ),
  );
  return make(
    "section",
    { class: "answer", "aria-labelledby": "answer-title" },
    make("h2", { id: "answer-title" }, triple(query)),
    make("p", { class: "lead" }, ...sentence(status, score, query.level, lower[place], upper[place]), ...believed(chosen)),
    ...[...kindSentence(result.kind?.[0], run), ...(score === null ? [] : besides(chosen))].map((text) => make("p", { class: "note", text })),
    ...noted(result.notes, lower[place] <= 0 && upper[place] >= 1),
    make(
      "table",
      {},
      make("caption", { class: "unseen", text: "Interval at each level" }),
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          make("th", { scope: "col", text: "Level" }),
          make("th", { scope: "col", class: "drawing" }, make("span", { class: "unseen", text: "Drawing" }), axis()),
          make("th", { scope: "col", class: "number", text: "Interval" }),
          make("th", { scope: "col", class: "number width", text: "Width" }),
        ),
      ),
      make("tbody", {}, ...rows),
    ),
    legend(known !== null, typeof other === "number"),
    make("p", { class: "promise", text: promise(run) }),
    more(query, saving),
  );
}

// What is predicted lies in the interval at every level.
export const predictedOf = ({ score, value, lower, upper }) =>
  predicted({ score: score[0], value: value?.[0], lower: lower[0].includes(null) ? null : Math.max(...lower[0]), upper: Math.min(...upper[0]) });

// What the service notes of a level: of other groups of facts, unless an interval that is shown says nothing.
export const noted = (notes, caution) => notes.map((note) => make("p", { class: caution ? "caution" : "note", text: sentenceOf(note) }));
export const sentenceOf = (words) => `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;

// The kind of a query, and how the run did on test facts of its kind.
function kindSentence(kind, run) {
  if (!kind) return [];
  const figures = run.kinds[kind];
  const tested = figures?.n ? ` Of ${count(figures.n, "test fact", "test facts")} of this kind ${percent(Math.round(1000 * figures.coverage) / 1000)} were inside their ${percent(figures.confidence)} interval; mean width ${three(figures.sharpness)}, interval score ${three(figures.interval_score)}.` : "";
  return [`Kind of query: ${kind}.${tested}`];
}

function sentence(status, score, level, lower, upper) {
  if (score === null) return [why(status, score)];
  if (status !== "ok") return [...sentence("ok", score, level, lower, upper), " ", why(status, score)];
  const strong = (text) => make("strong", { text });
  if (lower === null) {
    return ["Predicted confidence ", strong(three(score)), "; no value is sure enough for the level ", percent(level), ", so the interval is empty. A higher level has one."];
  }
  return ["Predicted confidence ", strong(three(score)), "; the ", percent(level), " interval is ", strong(three(lower)), " to ", strong(three(upper)), "."];
}

export const BASIS = {
  relation: "The promise stands on calibration facts of this relation.",
  "similar relations": "The promise stands on calibration facts of this relation and of relations like it.",
  none: "No calibration fact is of this relation or of one like it, so the interval is the whole range.",
};

// The likeliest values, for a run that answers from a distribution: at most one sentence.
export function believed(one) {
  if (typeof one.value !== "number") return [];
  const said = one.no_fact === undefined ? "The model believes" : "If it is a fact, the model believes";
  return [` ${said} ${inWords(one)}${one.belief !== null && one.belief < 0.5 ? "; no value is more likely than not" : ""}.`];
}

// Sentences that only some runs add to a completion, or to a triple at one level. A run for the open world says whether
// it may be no fact, and the interval if it is one. A run with a promise per relation says whose facts the promise stands
// on.
export function besides({ no_fact, fact_lower, fact_upper, promise }) {
  const found = [];
  if (no_fact !== undefined) {
    const interval = `its confidence if it is a fact: ${span(fact_lower, fact_upper)}`;
    found.push(no_fact ? `It may be no fact at all (confidence 0); ${interval}.` : `It looks like a fact; ${interval}.`);
  }
  if (promise !== undefined) found.push(BASIS[promise]);
  return found;
}

export const promise = (run) =>
  `Guarantee of ${run.method}: ${run.guarantee} (${count(run.calibration_facts, "calibration fact", "calibration facts")}).`;

function legend(known, other) {
  const entry = (mark, text) => make("li", {}, make("span", { class: `key ${mark}`, "aria-hidden": "true" }), text);
  return make(
    "ul",
    { class: "legend" },
    entry("range", "interval"),
    entry("score", "predicted confidence"),
    other ? entry("value", "another likely value") : null,
    known ? entry("known", "training fact") : null,
  );
}

function more(query, saving) {
  const { head, relation, tail, level } = query;
  return make(
    "p",
    { class: "more" },
    make("a", { href: link({ head, relation, level }), text: "Other tails" }),
    make("a", { href: link({ relation, tail, level }), text: "Other heads" }),
    make("a", { href: link(query), text: "Link to this answer" }),
    ...saving,
  );
}

export function behind(found, level) {
  const groups = found.groups.filter((group) => group.count > 0);
  const section = make(
    "section",
    { class: "evidence", "aria-labelledby": "evidence-title" },
    make("h2", { id: "evidence-title", text: "Evidence in the training facts" }),
    make(
      "dl",
      {},
      ...[["Head", found.head], ["Relation", found.relation], ["Tail", found.tail]].map(([name, summary]) =>
        make("div", {}, make("dt", { text: name }), make("dd", { text: summed(summary) })),
      ),
    ),
  );
  const cards = groups.map((group) => card(TITLES[group.name], summed(group), group.facts, level, group.name));
  section.append(cards.length ? make("div", { class: "cards" }, ...cards) : make("p", { text: "No training fact is close to this triple." }));
  return section;
}

const summed = ({ name, count: n, mean }) => (name === "paths" ? `through ${count(n, "entity", "entities")}` : n ? `${count(n, "fact", "facts")}, mean ${three(mean)}` : "no facts");

function card(title, summary, facts, level, kind) {
  return make(
    "article",
    { class: `card ${kind}` },
    make("h3", {}, title, " ", make("small", { text: summary })),
    make(
      "ol",
      {},
      ...facts.map((fact) =>
        make(
          "li",
          {},
          make("a", { href: link({ ...fact, level }) }, triple(fact)),
          drawn({ lower: 0, upper: fact.confidence, kind: "fact" }),
          make("span", { class: "number", text: three(fact.confidence) }),
        ),
      ),
    ),
  );
}
