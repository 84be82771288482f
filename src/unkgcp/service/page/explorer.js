// The page: reads the address, asks the service, shows the answer.

import * as api from "./api.js";
import { answer, behind, predictedOf, triple } from "./answer.js";
import { answerSet, sizeSentence } from "./answer_set.js";
import { candidateForm, chosen } from "./candidates.js";
import { combobox } from "./combobox.js";
import { comparing } from "./comparing.js";
import { completing } from "./completing.js";
import { byId, count, make, say, short, three } from "./dom.js";
import { SAFE, downloads, rowsAs } from "./download.js";
import { figure, figureAs, fitting } from "./figure.js";
import { believing, weighing } from "./reasons.js";
import { LEVELS, link, read } from "./state.js";

const form = byId("query");
const result = byId("result");
const problem = byId("problem");
let asking = null;
let runs = []; // those that are being served, the first one where none is named
let run = null; // the one that is being asked, with what /v1/about says of it

function fail(error) {
  if (error.name === "AbortError") return;
  if (error.status === 401) {
    byId("token").hidden = false;
    byId("token-value").focus();
  }
  problem.textContent = error.message.charAt(0).toUpperCase() + error.message.slice(1) + ".";
  problem.hidden = false;
}

function go(state, replace = false) {
  const address = link(state);
  if (replace) history.replaceState(null, "", address);
  else if (new URL(address, location).href !== location.href) history.pushState(null, "", address);
}

async function show(state, focus = false) {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  problem.hidden = true;
  for (const [name, box] of Object.entries(boxes)) box.set(state[name]);
  document.title = title(state);
  try {
    await describe(state);
  } catch (error) {
    return fail(error);
  }
  if (signal.aborted) return;
  arrange(state);
  if (state.view === "list") return result.replaceChildren(); // no address holds a list of candidates: it is sent by its form
  if (!state.relation && !state.head && !state.tail) return fill(signal, false, () => startParts(state, signal));
  if (!state.relation || !(state.head || state.tail)) {
    result.replaceChildren();
    return fail(new Error("give a relation and a head, a tail or both"));
  }
  if (state.view === "set" && state.head && state.tail) {
    result.replaceChildren();
    return fail(new Error("leave head or tail empty; the set is of what may stand there"));
  }
  const ask = state.view === "set" ? setParts : state.head && state.tail ? tripleParts : completionParts;
  await fill(signal, focus, () => ask(state, signal));
}

// Put the parts of an answer into the page when they are there.
async function fill(signal, focus, answered) {
  result.setAttribute("aria-busy", "true");
  try {
    const parts = await answered();
    const held = result.contains(document.activeElement) ? document.activeElement.name : "";
    result.replaceChildren(...parts);
    if (held) result.querySelector(`[name="${held}"]`)?.focus(); // the choice that was changed is in the new answer too
    if (focus) result.focus({ preventScroll: true });
  } catch (error) {
    if (error.name !== "AbortError") result.replaceChildren();
    fail(error);
  } finally {
    if (!signal.aborted) result.removeAttribute("aria-busy");
  }
}

// Show the form of the view, and mark the link of the view in the navigation.
function arrange(state) {
  form.hidden = state.view === "list";
  for (const hint of form.querySelectorAll("[data-of]")) hint.hidden = hint.dataset.of !== state.view;
  list.form.hidden = state.view !== "list";
  list.set(state, run);
  for (const anchor of document.querySelectorAll("nav a")) {
    anchor.href = link({ view: anchor.dataset.view });
    if (anchor.dataset.view === state.view) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
}

async function choose(read_form) {
  const state = read_form(read());
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  problem.hidden = true;
  go(state);
  await fill(signal, true, async () => [await chosen(state, list.triples(), signal, fail)]);
}

// What is shown before anything is asked: the only relation is filled in, and examples lead on.
async function startParts({ view }, signal) {
  if (run.relations === 1) boxes.relation.set((await api.labels("relations", "")).labels[0].label);
  const [one, other = one, third = one] = run.examples.map(([head, relation, tail]) => ({ head, relation, tail }));
  if (!one) return [];
  // where no fact that stands in the data was held out, nothing is claimed of such pairs: ask about one that is new
  const fact = await api.claimed([one, { ...one, tail: other.tail }, { ...one, tail: third.tail }, { ...third, tail: other.tail }], signal);
  const questions = [
    [{ head: other.head, relation: other.relation, view }, view ? "The set of tails" : "Which tails fit best?"],
    [{ relation: third.relation, tail: third.tail, view }, view ? "The set of heads" : "Which heads fit best?"],
  ];
  questions.splice(view ? 2 : 0, 0, [fact, fact === one ? "How confident is this fact?" : "How confident would this fact be?"]);
  const items = questions.map(([query, text]) => make("li", {}, make("a", { href: link(query) }, triple(query)), " ", make("small", { text })));
  return [make("section", { class: "start", "aria-labelledby": "start-title" }, make("h2", { id: "start-title", text: "Try one of these" }), make("ul", {}, ...items))];
}

// The parts of the answer to one triple: intervals, distribution, comparison, evidence.
async function tripleParts(state, signal) {
  const levels = [...new Set([...LEVELS, state.level])].sort((a, b) => a - b);
  const { head, relation, tail } = state;
  const without404 = (error) => {
    if (error.status === 404) return null; // a run without its training facts, or without a distribution
    throw error;
  };
  const [found, { notes }, facts, beside] = await Promise.all([
    api.intervals(state, levels, signal),
    api.intervals(state, state.level, signal), // what is noted of this level
    api.evidence({ head, relation, tail }, signal).catch(without404),
    comparing(state, runs, change, signal),
  ]);
  const [lower, upper] = [found.lower, found.upper].map((column) => column[0]);
  const score = predictedOf(found);
  const distributed = typeof found.value?.[0] === "number" && found.no_fact === undefined && found.status[0] === "ok";
  const told = distributed ? await api.distribution({ head, relation, tail }, signal).catch(without404) : null;
  const place = levels.indexOf(state.level);
  const said = lower[place] === null ? "empty interval" : `interval ${three(lower[place])} to ${three(upper[place])}`;
  say(score === null ? "unknown query, the whole range" : `predicted ${three(score)}, ${said}`);
  const same = facts?.groups.find((group) => group.name === "same");
  const known = same?.count ? same.facts[0].confidence : null;
  const rows = levels.map((level, i) => ({ head, relation, tail, level, score, lower: lower[i], upper: upper[i] }));
  const shown = { score, known, value: found.value?.[0], belief: found.belief?.[0], level: state.level, chosen: rows[place], rows };
  const saving = [
    downloads("Save the figure", "answer", ["svg", "png"], (format) => figureAs(format, figure(state, shown, told?.cells ?? null)), fail),
    downloads("Save the numbers", "answer", ["csv", "json", SAFE], (format) => rowsAs(format, Object.keys(rows[0]), rows), fail),
  ];
  return [
    answer(state, levels, { ...found, notes }, known, run, saving),
    told && believing(figure(state, { ...shown, rows: [] }, told.cells, fitting())),
    told && weighing(state, fail),
    beside,
    facts && behind(facts, state.level),
  ].filter(Boolean);
}

async function completionParts(state, signal) {
  const query = { relation: state.relation, k: state.k, rank_by: state.rank, confidence: state.level, ...given(state) };
  if (state.fresh === "yes" && run.facts !== null) query.exclude_known = true;
  const found = await api.completions(query, signal);
  say(count(found.answers.length, "completion", "completions"));
  return [completing(state, found, run, change, fail)];
}

async function setParts(state, signal) {
  say("the first answer set of a run takes a while");
  const found = await api.answers({ relation: state.relation, confidence: state.level, min_confidence: state.least, ...given(state) }, signal);
  say(sizeSentence(found));
  return [answerSet(state, found, change, fail)];
}

const given = ({ head, tail }) => (head ? { head } : { tail });

// Follow a choice that was changed inside an answer; with `replace` the page shows its answer already.
function change(state, replace = false) {
  go(state, replace);
  if (!replace) show(state);
}

function title({ view, head, relation, tail }) {
  if (view === "list") return "Candidates · UnKGCP";
  return relation ? `${[head || "?", relation, tail || "?"].map((label) => short(label)).join(" ")} · UnKGCP` : "UnKGCP explorer";
}

// Take the run that the address names: questions go to it from now on, and the page says what it is.
async function describe(state) {
  if (!runs.length) {
    ({ runs } = await api.runs());
    byId("run").append(...runs.map(({ name }) => make("option", { value: name, text: name })));
    byId("run-field").hidden = runs.length < 2;
  }
  const name = state.run || runs[0].name;
  if (!runs.some((one) => one.name === name)) throw new Error(`no run called ${short(name)} is served here; choose another`);
  if (run?.name === name) return;
  api.useRun(state.run);
  run = { ...(await api.about()), name };
  byId("run").value = name;
  const parts = [run.data, run.model === "none" ? null : `model ${run.model}`, `method ${run.method}`, count(run.entities, "entity", "entities"),
    count(run.relations, "relation", "relations"), run.facts === null ? null : count(run.facts, "training fact", "training facts")];
  byId("about").replaceChildren(...parts.filter(Boolean).map((text) => make("span", { text })));
}

const boxes = {
  head: combobox(byId("head"), "entities", fail),
  relation: combobox(byId("relation"), "relations", fail),
  tail: combobox(byId("tail"), "entities", fail),
};

const list = candidateForm(choose, () => {
  asking?.abort();
  problem.hidden = true;
  result.replaceChildren();
}, fail);

byId("run").addEventListener("change", () => {
  const name = byId("run").value;
  change({ ...read(), with: "", run: name === runs[0].name ? "" : name });
});

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const state = read();
  for (const [name, box] of Object.entries(boxes)) {
    box.close();
    state[name] = box.value();
  }
  go(state);
  show(state, true);
});

byId("token").addEventListener("submit", (event) => {
  event.preventDefault();
  api.useToken(byId("token-value").value.trim());
  byId("token").hidden = true;
  byId("token-value").value = "";
  start();
});

// links within the page change the address without loading it again
document.addEventListener("click", (event) => {
  const anchor = event.target.closest("main a[href^='./'], nav a, h1 a");
  if (!anchor || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", anchor.getAttribute("href"));
  show(read(), true);
  scrollTo({ top: 0 });
});
addEventListener("popstate", () => show(read()));

function start() {
  show(read());
}
start();
