// The theme's buttons for navigation and search are labels without a name that no key reaches: give them both.
for (const [field, name] of [["__drawer", "Navigation"], ["__search", "Search"]]) {
  for (const label of document.querySelectorAll(`label.md-icon[for=${field}]`)) {
    label.setAttribute("role", "button");
    label.setAttribute("aria-label", name);
    label.tabIndex = 0;
    label.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      label.click();
    });
  }
}
