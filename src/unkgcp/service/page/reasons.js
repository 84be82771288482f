// Why an evidence run answers as it does: its distribution, and the facts that change the answer when they are left out.

import { without } from "./api.js";
import { triple } from "./answer.js";
import { count, make, percent, say, span, three } from "./dom.js";
import { link } from "./state.js";

export function believing(picture) {
  return make(
    "section",
    { class: "believing", "aria-labelledby": "believing-title" },
    make("h2", { id: "believing-title", text: "What the model believes" }),
    make("div", { class: "picture" }, picture),
    make("p", { class: "promise", text: "Bars: probability of each fortieth of the range. Stems: probability of a single value. Stronger colours: inside the chosen interval. These are what the model believes; only the intervals are promised." }),
  );
}

export function weighing(state, fail) {
  const place = make("div", { "aria-live": "polite" });
  const button = make("button", { type: "button", class: "quiet", text: "Which facts weighed most?", onclick: () => look() });

  async function look() {
    button.disabled = true;
    place.replaceChildren(make("p", { class: "hint", text: "Leaving facts out, one at a time …" }));
    try {
      const { head, relation, tail, level } = state;
      place.replaceChildren(...told(state, await without({ head, relation, tail, confidence: level })));
      button.remove();
      say("facts that weighed most are shown");
    } catch (error) {
      place.replaceChildren();
      button.disabled = false;
      fail(error);
    }
  }

  return make(
    "section",
    { class: "weighing", "aria-labelledby": "weighing-title" },
    make("h2", { id: "weighing-title", text: "Why" }),
    make("p", { class: "promise", text: "A fact weighs as much as the mean of what the model believes changes when it is left out of what the model is told about this triple. The model is not learned again, and of two facts that say the same neither may seem to weigh anything." }),
    button,
    place,
  );
}

function told(state, { facts, score, note }) {
  const signed = (change) => `${change < 0 ? "−" : "+"}${three(Math.abs(change))}`;
  const moved = facts.filter((fact) => Math.abs(fact.change) >= 0.0005);
  const rows = moved.map((fact) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, make("a", { href: link({ head: fact.head, relation: fact.relation, tail: fact.tail, level: state.level }) }, triple(fact))),
      make("td", { class: "number confidence", text: three(fact.confidence) }),
      make("td", { class: "number change", text: signed(fact.change) }),
      make("td", { class: "number", text: `${three(fact.score)} (${span(fact.lower, fact.upper)})` }),
    ),
  );
  const titles = ["Training fact", "Confidence", "Change by it", `Mean without it (${percent(state.level)} interval)`];
  return [
    moved.length
      ? make("table", { class: "weights" },
          make("caption", { class: "unseen", text: "Facts by how much they change the mean of what the model believes" }),
          make("thead", {}, make("tr", {}, ...titles.map((text, i) => make("th", { scope: "col", class: i ? "number" : null, text })))),
          make("tbody", {}, ...rows))
      : make("p", { text: `None of the facts that were tried changes the mean of what the model believes, ${three(score)}, alone.` }),
    make("p", { class: "hint", text: `${note}${facts.length > moved.length && moved.length ? `; ${count(facts.length - moved.length, "other", "others")} changed nothing` : ""}.` }),
  ];
}
