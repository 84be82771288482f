// The picture of one answer: the intervals at all levels and, of a run that answers from a distribution, the distribution
// above them. It is SVG in the colours of the page; a copy of it can be saved as SVG or PNG.

import { inWords, percent, short, three } from "./dom.js";

const WIDE = 720;
const NARROW = 320; // on a phone
const LEFT = 56; // room for the levels and the scale of masses
const RIGHT = 24;
const HIGH = 150; // of the distribution
const ROW = 22; // of a level
const BINS = 40;
const FONT = "system-ui, sans-serif";

function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const words = (x, y, text, more = {}) => draw("text", { x, y, "font-family": FONT, "font-size": 12, fill: "var(--soft)", ...more }, text);

// The probability of each of the equal parts of [0, 1], and that of each single value. Both share one scale.
export function parted(cells) {
  const bins = Array(BINS).fill(0);
  const values = [];
  for (const { low, high, mass } of cells) {
    if (high - low < 1e-9) {
      const last = values.at(-1);
      if (last && low - last.at < 1e-9) last.mass += mass;
      else values.push({ at: low, mass });
      continue;
    }
    const [first, last] = [Math.floor(low * BINS), Math.min(Math.ceil(high * BINS), BINS)];
    for (let bin = first; bin < last; bin += 1) {
      const inside = Math.min(high, (bin + 1) / BINS) - Math.max(low, bin / BINS);
      bins[bin] += (mass * Math.max(inside, 0)) / (high - low);
    }
  }
  return { bins, values };
}

export const fitting = () => (matchMedia("(max-width: 46rem)").matches ? NARROW : WIDE);

// `answer` has score, value, belief, known, level, the chosen one of its intervals, and those to draw (rows), each with
// level, lower and upper; `cells` may be null.
export function figure(query, answer, cells, width = WIDE) {
  const across = (value) => LEFT + value * (width - LEFT - RIGHT);
  const labels = [query.head, query.relation, query.tail].map((label) => short(label, 80));
  const title = labels.join("  ");
  // beside its own heading the picture needs no title
  const titles = answer.rows.length ? (title.length > 80 ? labels : [title]) : [];
  const top = 16 + 18 * titles.length;
  const under = top + (cells ? HIGH + 18 : 0);
  const height = under + answer.rows.length * ROW + 40;
  const { chosen } = answer;
  const said = chosen.lower === null ? "empty" : `${three(chosen.lower)} to ${three(chosen.upper)}`;
  const parts = titles.map((line, i) => words(LEFT, 18 + 18 * i, line, { fill: "var(--ink)", "font-size": 14, "font-weight": 600 }));
  if (cells) parts.push(...distribution(answer, chosen, cells, top, across));
  if (answer.rows.length) parts.push(...intervals(answer, under, across));
  parts.push(...scale(under + answer.rows.length * ROW + 6, across));
  return draw(
    "svg",
    { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "figure",
      "aria-label": `${[cells && "Distribution", answer.rows.length && "intervals"].filter(Boolean).join(" and ")} of ${title}; the ${percent(answer.level)} interval is ${said}` },
    draw("rect", { width, height, fill: "var(--card)" }),
    ...parts,
  );
}

function distribution(answer, chosen, cells, top, across) {
  const { bins, values } = parted(cells);
  const most = Math.max(...bins, ...values.map(({ mass }) => mass));
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5].find((size) => most / size <= 4) ?? 0.5;
  const upto = Math.max(Math.ceil(most / step) * step, step);
  const y = (mass) => top + HIGH - (mass / upto) * HIGH;
  const inside = (at) => chosen.lower !== null && at >= chosen.lower && at <= chosen.upper;
  const colour = (at) => (inside(at) ? "var(--strong)" : "var(--range)");
  const lines = [];
  for (let mass = 0; mass <= upto + 1e-9; mass += step) {
    lines.push(draw("line", { x1: across(0), x2: across(1), y1: y(mass), y2: y(mass), stroke: "var(--grid)" }));
    lines.push(words(LEFT - 8, y(mass) + 4, percent(Math.round(1000 * mass) / 1000), { "text-anchor": "end", "font-size": 11 }));
  }
  const bars = bins.map((mass, bin) =>
    draw("rect", { x: across(bin / BINS) + 0.5, width: across(1 / BINS) - across(0) - 1, y: y(mass), height: Math.max(top + HIGH - y(mass), 0), fill: colour((bin + 0.5) / BINS) }));
  const stem = (at) => (inside(at) ? "var(--score)" : "var(--edge)");
  const stems = values.map(({ at, mass }) =>
    draw("g", { stroke: stem(at), fill: stem(at) },
      draw("line", { x1: across(at), x2: across(at), y1: y(0), y2: y(mass), "stroke-width": 3 }),
      draw("circle", { cx: across(at), cy: y(mass), r: 4 })));
  if (typeof answer.value !== "number") return [...lines, ...bars, ...stems];
  const x = across(answer.value);
  const value = [
    draw("line", { x1: x, x2: x, y1: top, y2: top + HIGH + 18, stroke: "var(--soft)", "stroke-dasharray": "3 3" }),
    words(x + (answer.value > 0.5 ? -6 : 6), top + 10, inWords({ ...answer, other: null }), { "text-anchor": answer.value > 0.5 ? "end" : "start", fill: "var(--ink)" }),
  ];
  return [...lines, ...bars, ...stems, ...value];
}

function intervals(answer, top, across) {
  const height = answer.rows.length * ROW;
  const parts = answer.rows.flatMap(({ level, lower, upper }, i) => {
    const y = top + i * ROW;
    const label = words(LEFT - 8, y + 16, percent(level), { "text-anchor": "end", fill: level === answer.level ? "var(--ink)" : "var(--soft)" });
    if (lower === null) return [label];
    const wide = Math.max(across(upper) - across(lower), 2);
    return [label, draw("rect", { x: across(lower), width: wide, y: y + 5, height: ROW - 10, rx: 3, fill: level === answer.level ? "var(--strong)" : "var(--range)" })];
  });
  const mark = { y1: top, y2: top + height, "stroke-width": 2.5 };
  if (answer.score !== null) parts.push(draw("line", { ...mark, x1: across(answer.score), x2: across(answer.score), stroke: "var(--score)" }));
  if (answer.known !== null) {
    const x = across(answer.known);
    parts.push(draw("rect", { x: x - 5, y: top + height / 2 - 5, width: 10, height: 10, fill: "none", stroke: "var(--known)", "stroke-width": 2.5, transform: `rotate(45 ${x} ${top + height / 2})` }));
  }
  return parts;
}

function scale(y, across) {
  return [
    draw("line", { x1: across(0), x2: across(1), y1: y, y2: y, stroke: "var(--edge)" }),
    ...[0, 0.25, 0.5, 0.75, 1].flatMap((value) => [
      draw("line", { x1: across(value), x2: across(value), y1: y, y2: y + 5, stroke: "var(--edge)" }),
      words(across(value), y + 20, String(value), { "text-anchor": "middle" }),
    ]),
  ];
}

// The text of the picture as a file of its own, in which names of colours are replaced by the colours of the page.
function alone(svg) {
  const probe = document.body.appendChild(document.createElement("span"));
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const text = new XMLSerializer().serializeToString(svg).replace(/var\(--([\w-]+)\)/g, (_, name) => colour(name));
  probe.remove();
  return text;
}

const SHARP = 2; // pixels of a PNG for each of the page

export async function figureAs(format, svg) {
  const text = alone(svg);
  if (format === "svg") return text;
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width * SHARP, image.height * SHARP];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}
