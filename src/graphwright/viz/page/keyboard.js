// Keys.

const KEYS = [
  ["/", "search", (app) => app.search.input.focus()],
  ["Enter", "fold or unfold what is selected", (app) => app.toggle(app.selected)],
  ["ArrowDown", "to the first node that reads this one", (app) => app.walk("users")],
  ["ArrowUp", "to the first node that this one reads", (app) => app.walk("inputs")],
  ["ArrowLeft", "to the node before, in the order of the program", (app) => app.walkInOrder(-1)],
  ["ArrowRight", "to the next node", (app) => app.walkInOrder(1)],
  ["Backspace", "to the module around", (app) => app.walkOut()],
  ["u", "unfold one level, of the selection or of all", (app) => app.unfold()],
  ["c", "fold the selection, or all", (app) => app.fold()],
  ["f", "fit into the window", (app) => app.fit()],
  ["+", "larger", (app) => app.panes.forEach((pane) => pane.zoom(1.25))],
  ["-", "smaller", (app) => app.panes.forEach((pane) => pane.zoom(0.8))],
  ["h", "heat by time, FLOPs, memory, or none", (app) => app.nextHeat()],
  ["g", "show guards and inputs that only they read", (app) => app.toggleGuards()],
  ["n", "next change", (app) => nextChange(app, 1)],
  ["p", "change before", (app) => nextChange(app, -1)],
  ["]", "next step of the rewriting", (app) => app.showStep(app.step + 1)],
  ["[", "step before", (app) => app.showStep(app.step - 1)],
  ["t", "light or dark", (app) => app.nextTheme()],
  ["Escape", "select nothing", (app) => app.select(null)],
  ["?", "this list", () => document.getElementById("keys").showModal()],
];

function listenToKeys(app) {
  const dialog = document.getElementById("keys");
  dialog.append(
    html("h2", {}, "Keys"),
    html(
      "table",
      {},
      ...KEYS.map(([key, what]) =>
        html("tr", {}, html("th", {}, html("kbd", {}, key.replace("Arrow", ""))), html("td", {}, what)),
      ),
    ),
    html("p", {}, "Drag to move, turn the wheel for size, double-click to fold and unfold."),
  );
  dialog.addEventListener("click", () => dialog.close());
  document.addEventListener("keydown", (event) => {
    const isWriting = event.target.closest("input[type=search]") || dialog.open;
    if (isWriting || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && event.target.closest("button")) return;
    if (event.key.startsWith("Arrow") && event.target.closest("input")) return;
    const found = KEYS.find(([key]) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found[2](app);
  });
}
