// The page: reads the address, asks the service, shows the answer.

import { about, completions, evidence, intervals, useToken } from "./api.js";
import { answer, behind } from "./answer.js";
import { candidateForm, chosen } from "./candidates.js";
import { combobox } from "./combobox.js";
import { completing } from "./completing.js";
import { byId, count, make, say, short, three } from "./dom.js";
import { LEVELS, link, read } from "./state.js";

const form = byId("query");
const result = byId("result");
const problem = byId("problem");
let asking = null;
let run = null; // what is being served

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
  else if (address !== location.pathname + location.search) history.pushState(null, "", address);
}

async function show(state, focus = false) {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  problem.hidden = true;
  for (const [name, box] of Object.entries(boxes)) box.set(state[name]);
  document.title = title(state);
  arrange(state);
  if (state.view === "list") return result.replaceChildren(); // a list stands in no address: it is chosen from when asked
  if (!state.relation || !(state.head || state.tail)) {
    result.replaceChildren();
    if (state.relation || state.head || state.tail) fail(new Error("give a relation and a head, a tail or both"));
    return;
  }
  await fill(signal, focus, () => (state.head && state.tail ? one(state, signal) : many(state, signal)));
}

// Put an answer into the page when it is there.
async function fill(signal, focus, answered) {
  result.setAttribute("aria-busy", "true");
  try {
    const parts = await answered();
    const held = result.contains(document.activeElement) ? document.activeElement.name : "";
    result.replaceChildren(...parts);
    if (held) result.querySelector(`[name="${held}"]`)?.focus(); // a choice that was changed is there again
    if (focus) result.focus({ preventScroll: true });
  } catch (error) {
    if (error.name !== "AbortError") result.replaceChildren();
    fail(error);
  } finally {
    if (!signal.aborted) result.removeAttribute("aria-busy");
  }
}

// The form of the view, and the mark at its link.
function arrange(state) {
  form.hidden = state.view !== "";
  list.form.hidden = state.view !== "list";
  list.set(state, run);
  for (const anchor of document.querySelectorAll("nav a")) {
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

async function one(state, signal) {
  const levels = [...new Set([...LEVELS, state.level])].sort((a, b) => a - b);
  const { head, relation, tail } = state;
  const [found, facts] = await Promise.all([
    intervals(state, levels, signal),
    evidence({ head, relation, tail }, signal).catch((error) => {
      if (error.status === 404) return null; // a run without its training facts
      throw error;
    }),
  ]);
  const same = facts?.groups.find((group) => group.name === "same");
  const [score, lower, upper] = [found.score, found.lower, found.upper].map((column) => column[0]);
  const place = levels.indexOf(state.level);
  const said = lower[place] === null ? "empty interval" : `interval ${three(lower[place])} to ${three(upper[place])}`;
  say(score === null ? "unknown query, the whole range" : `score ${three(score)}, ${said}`);
  const shown = answer(state, levels, found, same?.count ? same.facts[0].confidence : null, run);
  return facts ? [shown, behind(facts, state.level)] : [shown];
}

async function many(state, signal) {
  const query = { relation: state.relation, k: state.k, rank_by: state.rank, confidence: state.level };
  if (state.fresh === "yes") query.exclude_known = true;
  if (state.head) query.head = state.head;
  else query.tail = state.tail;
  const found = await completions(query, signal);
  say(count(found.answers.length, "completion", "completions"));
  return [
    completing(state, found, run, (changed, replace) => {
      go(changed, replace);
      if (!replace) show(changed);
    }),
  ];
}

function title({ view, head, relation, tail }) {
  if (view === "list") return "Candidates · UnKGCP";
  return relation ? `${[head || "?", relation, tail || "?"].map(short).join(" ")} · UnKGCP` : "UnKGCP explorer";
}

async function describe() {
  run = await about();
  const parts = [run.data, `model ${run.model}`, `method ${run.method}`, count(run.entities, "entity", "entities"),
    count(run.relations, "relation", "relations"), run.facts === null ? null : count(run.facts, "training fact", "training facts")];
  byId("about").replaceChildren(...parts.filter(Boolean).map((text) => make("span", { text })));
}

const boxes = {
  head: combobox(byId("head"), "entities", fail),
  relation: combobox(byId("relation"), "relations", fail),
  tail: combobox(byId("tail"), "entities", fail),
};

const list = candidateForm(choose, fail);

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
  useToken(byId("token-value").value.trim());
  byId("token").hidden = true;
  byId("token-value").value = "";
  start();
});

// links within the page change the address without loading it again
document.addEventListener("click", (event) => {
  const anchor = event.target.closest("main a[href^='/?'], nav a");
  if (!anchor || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", anchor.getAttribute("href"));
  show(read(), true);
  scrollTo({ top: 0 });
});
addEventListener("popstate", () => show(read()));

function start() {
  describe().then(() => show(read()), fail);
}
start();
