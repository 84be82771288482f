// What the page shows is what its address says: every answer has a link, and going back works.

export const LEVELS = [0.5, 0.8, 0.9, 0.95, 0.99];
// one line each: for all views, for one answer, for completions, for answer sets, for candidates to choose from
const DEFAULTS = {
  run: "", view: "", level: 0.9,
  with: "",
  rank: "score", fresh: "yes", k: 50, lower: 0, width: 1,
  least: 0,
  test: "at-least", low: 0.7, high: 0.9, share: 0.1,
};
const CHOICES = { view: ["", "set", "list"], rank: ["score", "lower"], fresh: ["yes", "no"], test: ["at-least", "below", "between"] };

export function read(address = location.search) {
  const given = new URLSearchParams(address);
  const state = { head: "", relation: "", tail: "", ...DEFAULTS };
  for (const name of Object.keys(state)) {
    if (!given.has(name)) continue;
    const value = given.get(name);
    if (typeof state[name] !== "number") state[name] = value;
    else if (value !== "" && Number.isFinite(Number(value))) state[name] = Number(value);
  }
  const within = (value, low, high) => Math.min(Math.max(value, low), high);
  for (const name of ["level", "lower", "width", "least", "low", "high"]) state[name] = within(state[name], 0, 1);
  state.share = within(state.share, 0.001, 0.999);
  state.k = within(Math.round(state.k), 1, 1000);
  for (const [name, choices] of Object.entries(CHOICES)) if (!choices.includes(state[name])) state[name] = choices[0];
  return state;
}

// The address of a state. A state without a run keeps the run of the present address.
export function link(state) {
  const query = new URLSearchParams();
  const run = new URLSearchParams(location.search).get("run") ?? "";
  for (const name of ["head", "relation", "tail", ...Object.keys(DEFAULTS)]) {
    const value = name === "run" ? (state.run ?? run) : state[name];
    if (value !== undefined && value !== "" && value !== DEFAULTS[name]) query.set(name, value);
  }
  const text = query.toString();
  return text ? `./?${text}` : "./"; // relative, so that a proxy may show the page under any path
}
