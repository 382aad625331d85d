// What changed: the list of it, and the steps of a rewriting.

function changesOf(app) {
  const [left, right] = app.panes;
  const parts = [];
  for (const [status, pane] of [
    ["removed", left],
    ["changed", right],
    ["added", right],
  ]) {
    const ids = [...pane.marks].filter(([, mark]) => mark === status).map(([id]) => id);
    if (!ids.length) continue;
    const items = ids.slice(0, 300).map((id) => changeItem(app, pane, id));
    parts.push(
      html("h3", {}, html("span", { class: `status ${status}` }, status), ` ${ids.length}`),
      html("ul", {}, ...items),
    );
  }
  return parts.length ? parts : [html("p", {}, "Nothing differs.")];
}

function changeItem(app, pane, id) {
  const node = pane.version.nodes.get(id);
  return html(
    "li",
    {},
    html("button", { class: "link", onclick: () => app.go(id, pane) }, node.name),
    " ",
    html("small", {}, node.call ?? ""),
  );
}

// The ids of what changed in the order of the program, with the pane that shows each.
function changedNodes(app) {
  const [left, right] = app.panes;
  const removed = [...left.marks].filter(([, mark]) => mark === "removed").map(([id]) => [id, left]);
  const others = [...right.marks].map(([id]) => [id, right]);
  const at = ([id, pane]) => pane.version.nodes.get(id)?.index ?? 0;
  return [...removed, ...others].sort((a, b) => at(a) - at(b));
}

function nextChange(app, direction) {
  const all = app.panes.length > 1 ? changedNodes(app) : [];
  if (!all.length) return;
  const now = all.findIndex(([id, pane]) => id === app.selected && pane === app.pane);
  const next = now < 0 ? (direction > 0 ? 0 : all.length - 1) : (now + direction + all.length) % all.length;
  app.go(...all[next]);
}

// The bar above the panes: which step is shown, and the way to the others.
function stepper(app) {
  const { steps } = app.versions,
    bar = document.getElementById("stepper");
  bar.hidden = app.content.is_comparison || !steps.length;
  if (bar.hidden) return;
  const step = steps[app.step - 1];
  const slider = html("input", { type: "range", min: 1, max: steps.length, value: app.step, "aria-label": "Step" });
  slider.addEventListener("input", () => app.showStep(Number(slider.value)));
  bar.replaceChildren(
    html("button", { title: "Step before ([)", onclick: () => app.showStep(app.step - 1) }, "‹"),
    slider,
    html("button", { title: "Next step (])", onclick: () => app.showStep(app.step + 1) }, "›"),
    html("b", {}, `${app.step} of ${steps.length}`),
    html("span", { class: "rule" }, step.label),
    html("span", { class: "detail" }, step.detail),
  );
}
