// The theme is light or dark as the system has it, until somebody chooses the other one. This script is loaded before the
// page is drawn, so that the page does not flash in the wrong colours.

"use strict";

(() => {
  const STORE = "unkgcp-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null; // "light" or "dark"; null follows the system
  try {
    chosen = localStorage.getItem(STORE);
  } catch {
    // the browser stores nothing
  }

  const dark = () => (chosen ? chosen === "dark" : system.matches);

  function show() {
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
    document.getElementById("theme")?.setAttribute("aria-pressed", String(dark()));
  }

  function turn() {
    const wanted = dark() ? "light" : "dark";
    chosen = (wanted === "dark") === system.matches ? null : wanted; // what the system has needs no choice
    try {
      if (chosen) localStorage.setItem(STORE, chosen);
      else localStorage.removeItem(STORE);
    } catch {
      // the choice is then forgotten with the page
    }
    show();
  }

  show();
  system.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", turn);
    show();
  });
})();
