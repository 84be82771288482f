// Triples out of pasted text or a file, and tables as text: TSV without quotation marks, CSV with them where needed, as
// the commands of the package read and write them.

const WORDS = [
  ["head", "subject", "subj", "source", "from", "start", "entity1", "entity_1", "head_id", "node1"],
  ["relation", "rel", "predicate", "pred", "property", "edge", "relation_id", "relationship"],
  ["tail", "object", "obj", "target", "to", "end", "entity2", "entity_2", "tail_id", "node2"],
];

// [[head, relation, tail], ...] of text with one triple a line; an Error names the line that is none.
export function triplesFrom(text) {
  const plain = text.replace(/^\ufeff/, "");
  if (!plain.trim()) throw new Error("there are no triples yet; paste some, one a line, or choose a file");
  const first = plain.split(/\r\n|\r|\n/).find((line) => line.trim());
  const separator = first.includes("\t") ? "\t" : ",";
  const words = separator === "\t" ? "tabs" : "commas";
  const rows = (separator === "\t" ? lines(plain) : quoted(plain)).filter(({ fields }) => fields.some((field) => field.trim()));
  const header = namedColumns(rows[0].fields);
  const places = header ?? [0, 1, 2];
  return rows.slice(header ? 1 : 0).map(({ line, fields }) => {
    const triple = places.map((place) => fields[place]);
    if (triple.every((label) => label)) return triple;
    throw new Error(`line ${line} has ${fields.length} ${fields.length === 1 ? "field" : "fields"} separated by ${words}; expected head, relation and tail`);
  });
}

// Where head, relation and tail stand, if this is a line of their names; otherwise null.
function namedColumns(fields) {
  const names = fields.map((field) => field.trim().toLowerCase());
  const places = WORDS.map((words) => names.findIndex((name) => words.includes(name)));
  return places.every((place) => place >= 0) ? places : null;
}

function lines(text) {
  return text.split(/\r\n|\r|\n/).map((line, i) => ({ line: i + 1, fields: line.split("\t") }));
}

function quoted(text) {
  const rows = [];
  let line = 1;
  let row = { line, fields: [] };
  // a field, in quotation marks or without, and what ends it
  const part = /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n|\r|\n|$)/y;
  while (part.lastIndex <= text.length) {
    const found = part.exec(text);
    if (!found) throw new Error(`line ${line} has a quotation mark that neither begins nor ends a field, or is never closed`);
    const [whole, inside, bare, end] = found;
    row.fields.push(inside === undefined ? bare : inside.replaceAll('""', '"'));
    line += whole.match(/\r\n|\r|\n/g)?.length ?? 0;
    if (end !== ",") {
      rows.push(row);
      row = { line, fields: [] };
    }
    if (!end) break;
  }
  return rows;
}

// A table as text: names of columns and rows of values, of which null is an empty field.
export function tableText(names, rows, kind) {
  const [field, separator] = kind === "tsv" ? [tsvField, "\t"] : [kind === "csv" ? csvField : safeField, ","];
  return [names, ...rows].map((row) => `${row.map((value) => field(value ?? "")).join(separator)}\n`).join("");
}

function csvField(value) {
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// A text that a spreadsheet would take for a formula gets an apostrophe.
const safeField = (value) => csvField(typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : value);

function tsvField(value) {
  const text = String(value);
  if (/[\t\r\n]/.test(text)) throw new Error("a label holds a tab or a line end, which TSV cannot hold; download CSV");
  return text;
}
