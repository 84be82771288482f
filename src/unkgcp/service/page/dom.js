// Elements and numbers. Labels of a graph are text and nothing else: they are never read as markup.

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// A label as an element of its own, so that its writing direction leaves its surroundings alone. A long one is cut, and
// shown whole as a tooltip.
export function named(label, properties = {}) {
  const text = short(label);
  return make("bdi", { ...properties, text, title: text === label ? null : label });
}

const LONGEST = 120;

export function short(label, longest = LONGEST) {
  const letters = [...label];
  return letters.length <= longest ? label : `${letters.slice(0, longest - 30).join("")} … ${letters.slice(-25).join("")}`;
}

export const byId = (id) => document.getElementById(id);
export const three = (value) => value.toFixed(3);
export const span = (lower, upper) => (lower === null ? "empty" : `${three(lower)} – ${three(upper)}`);
export const percent = (level) => `${+(100 * level).toPrecision(6)} %`;
const written = (value) => String(Math.round(1e6 * value) / 1e6);
const share = (belief) => (belief >= 0.995 ? ">99 %" : belief < 0.005 ? "<1 %" : `${Math.round(100 * belief)} %`);
// The one number to say: the median of what is believed, or the score, inside the interval.
export const predicted = ({ score, value, lower, upper }) => value ?? (score === null || lower === null ? score : Math.min(Math.max(score, lower), upper));
// A value, how likely it is if it alone is likely, and the second one if there is one: "0.4375 (55 %) or 1 (38 %)".
export const inWords = ({ value, belief, other, other_belief }) =>
  `${belief === null ? `about ${three(value)}` : `${written(value)} (${share(belief)})`}${other === null ? "" : ` or ${written(other)} (${share(other_belief)})`}`;
export const count = (value, one, many) => `${value.toLocaleString("en")} ${value === 1 ? one : many}`;

export function say(sentence) {
  byId("status").textContent = sentence;
}

// A drawing of an interval on [0, 1]: the range, the score as a line, a second likely value as a dot, a known confidence as
// a diamond. It is hidden from screen readers, because the numbers stand beside it as text.
export function drawn({ lower, upper, score, known, other, kind = "" }) {
  const bar = make("span", { class: "bar", "aria-hidden": "true" });
  if (lower !== undefined && lower !== null) {
    const range = make("span", { class: `range ${kind}` });
    range.style.left = `${100 * lower}%`;
    range.style.width = `${100 * Math.max(upper - lower, 0)}%`;
    bar.append(range);
  }
  for (const [name, at] of [["score", score], ["value", other], ["known", known]]) {
    if (at === undefined || at === null) continue;
    const mark = make("span", { class: name });
    mark.style.left = `${100 * at}%`;
    bar.append(mark);
  }
  return bar;
}

export function axis() {
  const line = make("span", { class: "axis", "aria-hidden": "true" });
  for (const value of [0, 0.25, 0.5, 0.75, 1]) {
    const tick = make("span", { text: String(value) });
    tick.style.left = `${100 * value}%`;
    line.append(tick);
  }
  return line;
}
