// What the page shows is what its address says: every answer has a link, and going back works.

export const LEVELS = [0.5, 0.8, 0.9, 0.95, 0.99];
const DEFAULTS = { level: 0.9, rank: "score", fresh: "no", k: 50, lower: 0, width: 1 };
const NUMBERS = ["level", "k", "lower", "width"];

export function read(address = location.search) {
  const given = new URLSearchParams(address);
  const state = { head: "", relation: "", tail: "", ...DEFAULTS };
  for (const name of Object.keys(state)) {
    if (!given.has(name)) continue;
    const value = given.get(name);
    if (!NUMBERS.includes(name)) state[name] = value;
    else if (value !== "" && Number.isFinite(Number(value))) state[name] = Number(value);
  }
  const within = (value, low, high) => Math.min(Math.max(value, low), high);
  state.level = within(state.level, 0, 1);
  state.lower = within(state.lower, 0, 1);
  state.width = within(state.width, 0, 1);
  state.k = within(Math.round(state.k), 1, 1000);
  state.rank = state.rank === "lower" ? "lower" : "score";
  state.fresh = state.fresh === "yes" ? "yes" : "no";
  return state;
}

export function link(state) {
  const query = new URLSearchParams();
  for (const name of ["head", "relation", "tail", ...Object.keys(DEFAULTS)]) {
    const value = state[name];
    if (value !== undefined && value !== "" && value !== DEFAULTS[name]) query.set(name, value);
  }
  const text = query.toString();
  return text ? `/?${text}` : "/";
}
