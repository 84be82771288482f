// A list of candidates, of which those are chosen that pass a condition, with few wrong ones among them.

import { select } from "./api.js";
import { noted, why } from "./answer.js";
import { byId, count, drawn, make, named, percent, predicted, say, span } from "./dom.js";
import { SAFE, downloads, rowsAs } from "./download.js";
import { LEVELS, link } from "./state.js";
import { triplesFrom } from "./table_text.js";

const FIRST = 100; // rows that are shown until more are asked for
const small = (p) => (p < 0.0001 ? p.toExponential(1) : p.toFixed(4));

export const conditionOf = ({ test, low, high }) =>
  ({ "at-least": `confidence >= ${low}`, below: `confidence < ${high}`, between: `${low} <= confidence < ${high}` })[test];

// The form; `asked` is called when it is sent, with a function that adds the values of the form to a state, and `emptied`
// when another file is chosen, so that nothing on the page is about the one before.
export function candidateForm(asked, emptied, fail) {
  const form = byId("candidates");
  const text = byId("candidate-text");
  const progress = byId("candidate-progress");
  const button = form.querySelector("button");
  let limits = null;
  let reading = null;
  const controls = { test: byId("test"), low: byId("low"), high: byId("high"), share: byId("share"), level: byId("candidate-level") };
  controls.level.append(...LEVELS.map((level) => make("option", { value: level, text: percent(level) })));

  function arrange() {
    byId("low-field").hidden = controls.test.value === "below";
    byId("high-field").hidden = controls.test.value === "at-least";
  }

  function set(state, run) {
    limits = run;
    for (const [name, control] of Object.entries(controls)) control.value = state[name];
    if (!controls.level.value) controls.level.value = 0.9;
    byId("candidate-limit").textContent = `At most ${count(run.max_triples, "triple", "triples")} here; unkgcp predict --select takes any number.`;
    arrange();
  }

  function read(state) {
    const numbers = Object.fromEntries(["low", "high", "share", "level"].map((name) => [name, Number(controls[name].value)]));
    return { ...state, view: "list", test: controls.test.value, ...numbers };
  }

  controls.test.addEventListener("change", arrange);
  byId("candidate-file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    reading?.abort();
    reading = new AbortController();
    const { signal } = reading;
    text.value = "";
    emptied();
    button.disabled = true;
    progress.hidden = false;
    try {
      const content = await textOf(file, limits, signal, (share) => (progress.value = share));
      text.value = content;
      say(`${file.name} read`);
    } catch (error) {
      fail(error);
    } finally {
      if (!signal.aborted) {
        event.target.value = ""; // the same file may be chosen again
        progress.hidden = true;
        button.disabled = false;
      }
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    asked(read);
  });
  return { form, set, triples: () => triplesFrom(text.value) };
}

// The text of a file, read piece by piece; an Error if the service would not take it.
export async function textOf(file, { max_body, max_triples }, signal, progressed) {
  const remedy = "unkgcp predict --select takes files of any size";
  if (file.size > max_body) throw new Error(`the file ${file.name} has ${file.size.toLocaleString("en")} bytes, and ${max_body.toLocaleString("en")} are the most here; ${remedy}`);
  const reader = file.stream().getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const parts = [];
  let [bytes, lines] = [0, 0];
  for (;;) {
    const { done, value } = await reader.read();
    signal.throwIfAborted();
    try {
      parts.push(decoder.decode(value, { stream: !done }));
    } catch {
      throw new Error(`the file ${file.name} is not UTF-8 text; give TSV or CSV`);
    }
    if (done) return parts.join("");
    lines += parts.at(-1).split("\n").length - 1;
    if (lines > max_triples + 1) throw new Error(`the file ${file.name} has more than ${max_triples.toLocaleString("en")} lines, which are the most here; ${remedy}`);
    bytes += value.length;
    progressed(bytes / file.size);
  }
}

// The answer: what is selected, sorted by p-value.
export async function chosen(state, triples, signal, fail) {
  const result = await select({ triples, condition: conditionOf(state), fdr: state.share, confidence: state.level }, signal);
  const rows = rowsOf(triples, result);
  const names = Object.keys(rows[0]);
  const selected = rows.filter((row) => row.selected);
  const largest = selected.length ? selected.reduce((most, { p_value: p }) => Math.max(most, p), 0) : null;
  const sorted = rows.map((row, i) => ({ row, i })).sort((a, b) => a.row.p_value - b.row.p_value || a.i - b.i).map(({ row }) => row);
  const total = `${selected.length.toLocaleString("en")} of ${count(rows.length, "candidate", "candidates")} selected`;
  say(total);
  return make(
    "section",
    { class: "chosen-list", "aria-labelledby": "chosen-title" },
    make("h2", { id: "chosen-title", text: total }),
    make("p", { class: "lead", text: `Asked: ${result.condition}, at most ${percent(result.fdr)} wrong ones among the selected. ${cutSentence(largest, sorted, result)}` }),
    make("p", { class: "promise", text: `Promised: ${result.guarantee}. It holds for a condition and a share that were chosen before looking at what they select.` }),
    make("p", { class: "promise" }, `The ${percent(state.level)} intervals are those of all candidates; among the selected they may hold less often. For intervals that hold for the selected: `, make("code", { text: "unkgcp predict --select … --after-selection" }), "."),
    ...noted(result.notes, rows.some(({ lower, upper }) => lower <= 0 && upper >= 1)),
    make(
      "p",
      { class: "more" },
      downloads("Download the selected", "selected", ["csv", "tsv", SAFE], (format) => rowsAs(format, names, selected), fail),
      downloads("Download all", "candidates", ["csv", "tsv", SAFE], (format) => rowsAs(format, names, rows), fail),
    ),
    ...table(state, sorted, largest),
  );
}

// One object for each candidate, with its labels and all that the service says of it.
function rowsOf(triples, result) {
  const columns = Object.entries(result).filter(([name, column]) => Array.isArray(column) && name !== "notes");
  return triples.map(([head, relation, tail], i) => ({ head, relation, tail, ...Object.fromEntries(columns.map(([name, column]) => [name, column[i]])) }));
}

function cutSentence(largest, sorted, { fdr }) {
  if (largest !== null) return `Selected is every p-value up to ${small(largest)}.`;
  const n = sorted.length.toLocaleString("en");
  return `Nothing is selected: for some r, the r smallest p-values would have to be at most ${fdr} × r / ${n}, and the smallest is ${small(sorted[0].p_value)}. Leaving out hopeless candidates, or a larger share, may help.`;
}

const GROUPS = {
  all: () => true,
  selected: (row) => row.selected,
  "not selected": (row) => !row.selected && row.status === "ok",
  unknown: (row) => row.status !== "ok",
};

function table(state, sorted, largest) {
  const body = make("tbody");
  const more = make("button", { type: "button", class: "quiet", onclick: () => show(true) });
  const groups = Object.entries(GROUPS).map(([name, holds]) => [name, sorted.filter(holds)]).filter(([, rows]) => rows.length);
  const choice = make("select", { onchange: () => show(false) }, ...groups.map(([name, rows]) => make("option", { value: name, text: `${name} (${rows.length.toLocaleString("en")})` })));

  function show(all) {
    const [, rows] = groups.find(([name]) => name === choice.value);
    body.replaceChildren(...(all ? rows : rows.slice(0, FIRST)).map((row) => line(state, row, largest)));
    more.textContent = `Show all ${rows.length.toLocaleString("en")} rows`;
    more.hidden = all || rows.length <= FIRST;
    if (all) body.children[FIRST].querySelector("a").focus();
  }

  show(false);
  const titles = [["Candidate", null], [make("span", { class: "unseen", text: "Drawing" }), "drawing"], ["Interval", "number"], ["p-value", "number"], ["Selected", "verdict"]];
  return [
    make("label", { class: "shown" }, "Show ", choice),
    make(
      "table",
      { class: "choices" },
      make("caption", { class: "unseen", text: "Candidates by p-value" }),
      make("thead", {}, make("tr", {}, ...titles.map(([title, kind]) => make("th", { scope: "col", class: kind }, title)))),
      body,
    ),
    more,
  ];
}

function line(state, row, largest) {
  const { head, relation, tail, lower, upper, score, other, p_value: p, status, selected } = row;
  const reason = status !== "ok" ? why(status, score).split(/[,:]/)[0] : selected || largest === null ? "" : `p-value above ${small(largest)}`;
  return make(
    "tr",
    { class: selected ? "taken" : null },
    make("th", { scope: "row" }, make("a", { href: link({ head, relation, tail, level: state.level }) }, named(head), " ", named(relation, { class: "relation" }), " ", named(tail))),
    make("td", { class: "drawing" }, drawn({ lower, upper, score: predicted(row), other, kind: selected ? "strong" : "" })),
    make("td", { class: "number", text: span(lower, upper) }),
    make("td", { class: "number p", text: small(p) }),
    make("td", { class: "verdict" }, make("strong", { text: selected ? "yes" : "no" }), reason ? make("small", { text: ` ${reason}` }) : null),
  );
}
