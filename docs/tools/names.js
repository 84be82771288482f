// The theme leaves some things without a name that the keyboard reaches, or ought to: labels that open the navigation
// and the search, and code and tables that scroll. Give them names, and labels the keys of a button.
const names = { __drawer: "Navigation", __search: "Search" };
for (const label of document.querySelectorAll("label.md-icon[for=__drawer], label.md-icon[for=__search], label[tabindex]")) {
  label.setAttribute("role", "button");
  label.setAttribute("aria-label", label.innerText.trim() || names[label.htmlFor] || "Section");
  label.tabIndex = 0;
  label.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    label.click();
  });
}
const scrolling = { "pre > code": "Code", ".md-typeset__scrollwrap": "Table", ".md-sidebar__scrollwrap": "Contents",
  ".md-search__scrollwrap": "Results" };
for (const [what, name] of Object.entries(scrolling)) {
  for (const element of document.querySelectorAll(what)) {
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", name);
  }
}
