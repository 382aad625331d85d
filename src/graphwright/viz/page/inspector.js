// What is known of the selected node or module, or of the whole program.

function detailsOf(app) {
  const pane = app.pane;
  const box = pane.tree.boxes.get(app.selected);
  if (!box) return overview(app);
  return box.node ? nodeDetails(app, box) : groupDetails(app, box);
}

function row(name, ...content) {
  return html("div", { class: "row" }, html("dt", {}, name), html("dd", {}, ...content));
}

function nodeLink(app, id, name = undefined) {
  const node = app.pane.version.nodes.get(id);
  if (!node) return html("code", {}, id);
  const value = node.value ? html("span", { class: "value" }, ` ${shortened(node.value, 40)}`) : null;
  return html("button", { class: "link", "data-go": id, onclick: () => app.go(id) }, name ?? node.name, value);
}

function linkList(app, ids) {
  const most = 30;
  const items = ids.slice(0, most).map((id) => html("li", {}, nodeLink(app, id)));
  if (ids.length > most) items.push(html("li", {}, `and ${ids.length - most} more`));
  return html("ul", {}, ...items);
}

function costRows(app, totals, root) {
  return Object.entries(MEASURES)
    .filter(([name]) => totals[name] !== undefined)
    .map(([name, measure]) => {
      if (totals === root) return row(measure.label, measure.text(totals[name]));
      const whole = root[name],
        share = whole ? (100 * totals[name]) / whole : 0;
      const bar = html("span", { class: "share" });
      bar.style.setProperty("--share", `${share.toFixed(1)}%`);
      return row(measure.label, measure.text(totals[name]), html("small", {}, ` ${share.toFixed(1)} %`), bar);
    });
}

function nodeDetails(app, box) {
  const { node } = box,
    { version, tree, marks } = app.pane;
  const rows = [row("name", html("code", {}, node.name)), row("operation", html("code", {}, node.op))];
  rows.push(row("target", html("code", {}, node.target)));
  if (node.value) rows.push(row("value", html("code", { class: "value" }, node.value)));
  if (node.args?.length) rows.push(row("arguments", argumentTable(app, node)));
  if (node.stands_for) rows.push(row("stands for", nodeLink(app, node.stands_for)));
  if (node.inputs?.length) rows.push(row("reads", linkList(app, node.inputs)));
  const users = [...new Set(version.users.get(node.id) ?? [])];
  if (users.length) rows.push(row("read by", linkList(app, users)));
  if (node.details) rows.push(row("module", pairs(node.details)));
  rows.push(...costRows(app, node, tree.root.totals));
  if (node.parameters) rows.push(row("parameters", countText(node.parameters)));
  if (node.read !== undefined) rows.push(row("bytes read", bytesText(node.read)));
  if (node.runs > 1 || node.runs === 0) rows.push(row("runs", `${node.runs}`));
  if (node.guards) rows.push(row("guards", html("ul", {}, ...node.guards.map((text) => html("li", {}, text)))));
  if (node.place) rows.push(placeRow(node.place));
  rows.push(...generatedRow(app, node));
  if (node.stack?.length) rows.push(moduleRow(app, box));
  const status = marks.get(node.id);
  return [heading(titleOf(box), node.call ?? "", status), html("dl", {}, ...rows)];
}

function heading(title, kind, status) {
  return html(
    "h2",
    {},
    title,
    " ",
    kind === title ? null : html("small", {}, kind),
    status ? html("span", { class: `status ${status}` }, status) : null,
  );
}

function pairs(items) {
  return html(
    "table",
    {},
    ...items.map(([name, text]) => html("tr", {}, html("th", {}, name), html("td", {}, html("code", {}, text)))),
  );
}

// Arguments, in which each `%name` of a node leads there.
function argumentTable(app, node) {
  const prefix = node.graph ? `${node.graph}/` : "";
  const linked = (text) =>
    text.split(/(%[A-Za-z_]\w*)/).map((part) => {
      const id = part.startsWith("%") ? prefix + part.slice(1) : null;
      return id && app.pane.version.nodes.has(id)
        ? html("button", { class: "link", onclick: () => app.go(id) }, part.slice(1))
        : part;
    });
  return html(
    "table",
    {},
    ...node.args.map(([name, text]) =>
      html("tr", {}, html("th", {}, name), html("td", {}, html("code", {}, ...linked(text)))),
    ),
  );
}

function placeRow([file, line, name, source]) {
  return row(
    "your line",
    html("div", { class: "place", title: file }, `${baseName(file)}:${line} in ${name}`),
    source ? html("pre", { class: "source" }, source) : null,
  );
}

function generatedRow(app, node) {
  const line = app.pane.version.lines.get(node.id);
  if (line === undefined) return [];
  const text = app.pane.version.code.split("\n")[line - 1].trim();
  return [
    row(
      "generated",
      html("button", { class: "link", onclick: () => app.showTab("code") }, `line ${line}`),
      html("pre", { class: "source" }, ...colored(text)),
    ),
  ];
}

function moduleRow(app, box) {
  const parts = [...box.ancestors()].filter((each) => each.path).reverse();
  return row(
    "inside",
    html(
      "ul",
      {},
      ...parts.map((each) =>
        html(
          "li",
          {},
          html("button", { class: "link", onclick: () => app.go(each.id) }, each.path),
          " ",
          html("small", {}, each.subtitle),
        ),
      ),
    ),
  );
}

function groupDetails(app, box) {
  const { tree, marks } = app.pane;
  const nodes = [...tree.nodesIn(box)];
  const rows = [row("nodes", `${nodes.length}`)];
  if (box.path) rows.unshift(row("path", html("code", {}, box.path)));
  rows.push(...costRows(app, box.totals, tree.root.totals));
  const changed = nodes.filter((node) => marks.has(node.id));
  if (changed.length)
    rows.push(
      row(
        "changes",
        linkList(
          app,
          changed.map((node) => node.id),
        ),
      ),
    );
  const results = nodes.filter((node) => [...box.outs.values()].some(({ source }) => source.node === node));
  const given = [...new Set([...box.ins.values()].map(({ source }) => source.id))];
  if (given.length) rows.push(row("reads", linkList(app, given)));
  if (results.length)
    rows.push(
      row(
        "gives",
        linkList(
          app,
          results.map((node) => node.id),
        ),
      ),
    );
  return [heading(titleOf(box), subtitleOf(box)), html("dl", {}, ...rows), ...dearest(app, nodes)];
}

// The nodes that cost most by what the heat shows, else by FLOPs.
function dearest(app, nodes) {
  const measure = app.heat || "flops";
  const found = nodes
    .filter((node) => node[measure] && node.op.startsWith("call"))
    .sort((a, b) => b[measure] - a[measure])
    .slice(0, 8);
  if (!found.length) return [];
  const items = found.map((node) =>
    html(
      "tr",
      {},
      html("td", {}, nodeLink(app, node.id, node.op === "call_module" ? shortened(node.target, 40) : node.name)),
      html("td", { class: "number" }, MEASURES[measure].text(node[measure])),
    ),
  );
  return [html("h3", {}, `most ${MEASURES[measure].label}`), html("table", { class: "dearest" }, ...items)];
}

function overview(app) {
  const { tree, version } = app.pane;
  const counts = new Map();
  for (const node of version.nodes.values())
    if (node.op.startsWith("call")) counts.set(node.call, (counts.get(node.call) ?? 0) + 1);
  const common = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 10);
  const rows = [row("nodes", `${version.nodes.size}`), ...costRows(app, tree.root.totals, tree.root.totals)];
  rows.push(
    row(
      "most often",
      html(
        "table",
        { class: "dearest" },
        ...common.map(([call, count]) =>
          html("tr", {}, html("td", {}, html("code", {}, call)), html("td", { class: "number" }, `${count}`)),
        ),
      ),
    ),
  );
  const guards = app.versions.guards;
  const said = guards.length
    ? [
        html("h3", {}, `guards (${guards.length})`),
        html("ul", { class: "guards" }, ...guards.slice(0, 60).map((text) => html("li", {}, shortened(text, 400)))),
      ]
    : [];
  return [
    heading(app.content.title, ""),
    html("dl", {}, ...rows),
    ...dearest(app, [...version.nodes.values()]),
    ...said,
  ];
}
