// Files that the page makes itself and hands to the browser.

import { make } from "./dom.js";
import { tableText } from "./table_text.js";

// CSV in which no label is a formula to a spreadsheet. It is an option, because labels are no longer exactly as they were.
export const SAFE = "spreadsheet";
const NAMES = { [SAFE]: "CSV for spreadsheets" };
const HINTS = { [SAFE]: "A label that begins with = + - or @ gets an apostrophe, so that no program takes it for a formula.", csv: "Labels exactly as they are." };
const TYPES = { csv: "text/csv", tsv: "text/tab-separated-values", json: "application/json", svg: "image/svg+xml" };

export function save(name, content) {
  const type = TYPES[name.split(".").pop()];
  const blob = content instanceof Blob ? content : new Blob([content], { type: `${type};charset=utf-8` });
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000); // when the browser has begun to write it
}

// Buttons that save something in several formats: "Download all: CSV TSV". `content` gets a format and gives the text
// or blob of the file, or throws an Error that says why not.
export function downloads(title, name, formats, content, fail) {
  const press = async (format) => {
    try {
      save(`${name}.${format === SAFE ? "csv" : format}`, await content(format));
    } catch (error) {
      fail(error);
    }
  };
  return make(
    "span",
    { class: "downloads", role: "group", "aria-label": title },
    make("span", { text: `${title}:` }),
    ...formats.map((format) => {
      const text = NAMES[format] ?? format.toUpperCase();
      return make("button", { type: "button", class: "quiet", "aria-label": `${title} as ${text}`, title: HINTS[format], text, onclick: () => press(format) });
    }),
  );
}

// Rows in any of the formats of tables: objects with the same fields, `names`.
export function rowsAs(format, names, rows) {
  if (format === "json") return `${JSON.stringify(rows, names, 1)}\n`;
  return tableText(names, rows.map((row) => names.map((name) => row[name])), format);
}
