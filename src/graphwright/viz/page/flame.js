// The flame: boxes under the boxes that they are in, as wide as their share of what is measured.

const NARROWEST = 0.004; // of the whole width: what is narrower is left out

function flameOf(app) {
  const measures = app.measures();
  const measure = app.heat || measures[0];
  if (!measure) return [html("p", {}, "Give args to graphwright.view to have time, FLOPs and memory measured.")];
  const { tree } = app.pane;
  const selected = app.box?.isGroup ? app.box : (app.box?.parent ?? tree.root);
  const around = [selected, ...selected.ancestors()].reverse();
  const path = around.map((box) =>
    html("button", { class: "link", onclick: () => app.go(box.id || null) }, titleOf(box) || app.content.title),
  );
  return [
    html("h2", {}, html("small", {}, `${MEASURES[measure].label}: `), ...path.flatMap((each) => [each, " "])),
    html("div", { class: "flame" }, flameBox(app, selected, measure, 1, tree.root.totals[measure] || 1)),
  ];
}

function flameBox(app, box, measure, share, whole) {
  const total = box.totals[measure] ?? 0;
  const name = titleOf(box) || app.content.title;
  const title = `${name}: ${MEASURES[measure].text(total)}, ${((100 * total) / whole).toFixed(1)} %`;
  const kind = box.isGroup ? "" : " node";
  const bar = html("button", { class: `bar${kind}`, title, onclick: () => app.go(box.id || null) }, name);
  const inner = box.children
    .map((child) => [child, total ? (child.totals[measure] ?? 0) / total : 0])
    .filter(([, part]) => part * share >= NARROWEST)
    .map(([child, part]) => {
      const cell = html("div", {}, flameBox(app, child, measure, part * share, whole));
      cell.style.width = `${100 * part}%`;
      return cell;
    });
  return html("div", {}, bar, html("div", { class: "inside" }, ...inner));
}
