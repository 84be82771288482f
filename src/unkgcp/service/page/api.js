// Questions to the service. An answer that is no longer wanted is dropped; an error is one sentence.

const STORE = "unkgcp-token";

export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

export function useToken(token) {
  sessionStorage.setItem(STORE, token);
}

let base = ""; // in front of the paths of the run that is asked

const pathOf = (run) => (run ? `runs/${encodeURIComponent(run)}/` : ""); // relative to the page

export function useRun(name) {
  base = pathOf(name);
}

async function ask(path, options = {}) {
  const token = sessionStorage.getItem(STORE);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the service cannot be reached; is it still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, answer.detail ?? `the service answered ${response.status}`);
  return answer;
}

const get = (path, query, signal) => ask(`${base}${path}?${new URLSearchParams(query)}`, { signal });
const post = (path, body, signal, at = base) =>
  ask(at + path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

export const runs = () => ask("v1/runs");
export const about = () => ask(`${base}v1/about`);
export const labels = (kind, prefix, signal) => get(`v1/${kind}`, { prefix, limit: 12, anywhere: true }, signal);
export const evidence = (triple, signal) => get("v1/evidence", { ...triple, limit: 5 }, signal);
// Columns become a list with an object for each row.
export function rowsOf(columns) {
  const lists = Object.entries(columns).filter(([name, column]) => Array.isArray(column) && name !== "notes" && name !== "confidence");
  return columns.status.map((_, i) => Object.fromEntries(lists.map(([name, column]) => [name, column[i]])));
}
export async function completions(query, signal) {
  const found = await get("v1/complete", query, signal);
  return { answers: rowsOf(found), notes: found.notes, presumption: found.presumption };
}
export const distribution = (triple, signal) => get("v1/distribution", triple, signal);
export const without = (query, signal) => get("v1/without", query, signal);
export const intervals = ({ head, relation, tail }, confidence, signal, run = null) =>
  post("v1/intervals", { triples: [[head, relation, tail]], confidence }, signal, run === null ? base : pathOf(run));
// of several triples the first that something is claimed of, else the very first
export async function claimed(triples, signal) {
  const rows = triples.map(({ head, relation, tail }) => [head, relation, tail]);
  const { score } = await post("v1/intervals", { triples: rows, confidence: 0.9 }, signal);
  return triples[Math.max(score.findIndex((one) => one !== null), 0)];
}
export const select = (body, signal) => post("v1/select", body, signal);
export async function answers(body, signal) {
  const found = await post("v1/answers", body, signal);
  const { head, relation, tail } = body;
  const rows = found.answers.map(({ entity, share }, i) => ({ rank: i + 1, head: head ?? entity, relation, tail: tail ?? entity, share }));
  return { ...found, answers: rows, more: found.size > rows.length, everything: found.size === found.candidates };
}
