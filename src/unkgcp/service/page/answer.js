// The answer to one triple: its interval at several levels, and the facts behind it.

import { axis, count, drawn, inWords, make, named, percent, span, three } from "./dom.js";
import { link } from "./state.js";

const TITLES = {
  same: "This very triple",
  pair: "Head and tail under other relations",
  reversed: "From tail to head",
  head_relation: "Same head and relation",
  relation_tail: "Same relation and tail",
};
export const WHY = {
  "unknown-entity": "An entity has no training fact, so nothing is claimed: the interval is the whole range.",
  "unknown-relation": "The relation has no training fact, so nothing is claimed: the interval is the whole range.",
};

export function triple({ head, relation, tail }) {
  const part = (text, kind) => make("span", { class: `part ${kind}` }, named(text || "?"));
  return make("span", { class: "triple" }, part(head, "entity"), " ", part(relation, "relation"), " ", part(tail, "entity"));
}

export function answer(query, asked, result, known, run, saving) {
  const [score, lower, upper, status] = [result.score, result.lower, result.upper, result.status].map((column) => column[0]);
  const place = asked.indexOf(query.level);
  const at = (column) => result[column]?.[0][place];
  const chosen = { no_fact: at("no_fact"), fact_lower: at("fact_lower"), fact_upper: at("fact_upper") };
  for (const name of ["promise", "value", "belief", "other", "other_belief"]) chosen[name] = result[name]?.[0];
  const { value, other } = chosen;
  const rows = asked.map((level, i) =>
    make(
      "tr",
      { class: i === place ? "chosen" : null },
      make("th", { scope: "row" }, make("a", { href: link({ ...query, level }), text: percent(level) })),
      make("td", { class: "drawing" }, drawn({ lower: lower[i], upper: upper[i], score, known, value, other, kind: i === place ? "strong" : "" })),
      make("td", { class: "number", text: span(lower[i], upper[i]) }),
      make("td", { class: "number width", text: three(upper[i] - lower[i]) }),
    ),
  );
  return make(
    "section",
    { class: "answer", "aria-labelledby": "answer-title" },
    make("h2", { id: "answer-title" }, triple(query)),
    make("p", { class: "lead" }, ...sentence(status, score, query.level, lower[place], upper[place]), ...believed(chosen)),
    ...(status === "ok" ? besides(chosen) : []).map((text) => make("p", { class: "note", text })),
    ...result.notes.map((note) => make("p", { class: "note", text: note })),
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
    legend(known !== null, typeof value === "number"),
    make("p", { class: "promise", text: promise(run) }),
    more(query, saving),
  );
}

function sentence(status, score, level, lower, upper) {
  if (status !== "ok") return [WHY[status]];
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
  return [` ${said} ${inWords(one)}${one.belief < 0.5 ? "; no value is more likely than not" : ""}.`];
}

// Sentences that only some runs add to a completion, or to a triple at one level. A run for the open world says whether
// it may be no fact, and the interval if it is one. A run with a promise per relation says whose facts the promise stands
// on. An evidence run says which confidence is expected of a completion, facts and non-facts together.
export function besides({ no_fact, fact_lower, fact_upper, promise, presumes_fact, expected }) {
  const found = [];
  if (no_fact !== undefined) {
    const interval = `its confidence if it is a fact: ${span(fact_lower, fact_upper)}`;
    found.push(no_fact ? `It may be no fact at all (confidence 0); ${interval}.` : `It looks like a fact; ${interval}.`);
  }
  if (presumes_fact) found.push("The interval presumes a fact.");
  if (typeof expected === "number") found.push(`Expected, with 0 if it is no fact: ${three(expected)}.`);
  if (promise !== undefined) found.push(BASIS[promise]);
  return found;
}

export const promise = (run) =>
  `Guarantee of ${run.method}: ${run.guarantee} (${count(run.calibration_facts, "calibration fact", "calibration facts")}).`;

function legend(known, value) {
  const entry = (mark, text) => make("li", {}, make("span", { class: `key ${mark}`, "aria-hidden": "true" }), text);
  return make(
    "ul",
    { class: "legend" },
    entry("range", "interval"),
    entry("score", "predicted confidence"),
    value ? entry("value", "likely value") : null,
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
  const cards = groups.map((group) => card(TITLES[group.name], summed(group), group.facts, level));
  if (found.paths.count) {
    const between = `through ${count(found.paths.count, "entity", "entities")}`;
    cards.push(card("Paths of two facts", between, found.paths.facts, level, "paths"));
  }
  section.append(cards.length ? make("div", { class: "cards" }, ...cards) : make("p", { text: "No training fact is close to this triple." }));
  return section;
}

const summed = ({ count: n, mean }) => (n ? `${count(n, "fact", "facts")}, mean ${three(mean)}` : "no facts");

function card(title, summary, facts, level, kind = "") {
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
