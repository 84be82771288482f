// Light or dark: as the system has it, until somebody chooses the other. Loaded before the page is drawn, so that it does
// not flash in the wrong colours.

"use strict";

(() => {
  const STORE = "unkgcp-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null; // "light" or "dark"; null follows the system
  try {
    chosen = localStorage.getItem(STORE);
  } catch {
    // a browser that keeps nothing
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
      // it is then forgotten with the page
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
