// The same query in two runs of the service.

import { intervals } from "./api.js";
import { drawn, inWords, make, percent, predicted, span, three } from "./dom.js";

export async function comparing(state, runs, changed, signal) {
  const here = runs.find((run) => run.name === state.run) ?? runs[0];
  const others = runs.filter((run) => run !== here);
  if (!others.length) return null;
  const other = others.find((run) => run.name === state.with);
  const select = make("select", { name: "with", onchange: () => changed({ ...state, with: select.value }) },
    make("option", { value: "", text: "no other run", selected: !other }),
    ...others.map((run) => make("option", { value: run.name, text: run.name, selected: run === other })));
  const section = make(
    "section",
    { class: "comparing", "aria-labelledby": "comparing-title" },
    make("h2", { id: "comparing-title", text: "Compared" }),
    make("label", { class: "shown" }, "With ", select),
  );
  if (other) {
    const both = await Promise.all([here, other].map((run) => intervals(state, state.level, signal, run.name)));
    section.append(table(state.level, [here, other], both));
  }
  return section;
}

function table(level, runs, answers) {
  const rows = runs.map((run, i) => {
    const at = (column) => answers[i][column]?.[0];
    const [lower, upper, value, other] = ["lower", "upper", "value", "other"].map(at);
    const score = predicted({ score: at("score"), value, lower, upper });
    const belief = typeof value === "number" ? inWords({ value, belief: at("belief"), other, other_belief: at("other_belief") }) : "";
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, run.name, " ", make("small", { text: `${run.method}, ${run.model}` })),
      make("td", { class: "drawing" }, drawn({ lower, upper, score, other, kind: "strong" })),
      make("td", { class: "number", text: span(lower, upper) }),
      make("td", { class: "number width", text: lower === null ? "–" : three(upper - lower) }),
      make("td", { class: "number score", text: score === null ? "unknown" : three(score) }),
      make("td", { class: "number", text: belief }),
    );
  });
  const titles = [["Run"], ["", "drawing"], [`${percent(level)} interval`, "number"], ["Width", "number"], ["Predicted", "number"], ["Believed", "number"]];
  return make("table", { class: "comparison" },
    make("caption", { class: "unseen", text: "The same query in two runs" }),
    make("thead", {}, make("tr", {}, ...titles.map(([text, kind]) =>
      make("th", { scope: "col", class: kind }, kind === "drawing" ? make("span", { class: "unseen", text: "Drawing" }) : text)))),
    make("tbody", {}, ...rows));
}
