// Boxes and lines as SVG. What a program says is only ever put in as text.

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") element.addEventListener("click", value);
    else if (value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Draw what is shown of a tree. Returns the drawing, and each box's element and place on the plane.
function drawTree(tree) {
  const drawn = { elements: new Map(), places: new Map(), lines: [], root: svg("g", { class: "drawing" }) };
  drawGroup(tree.root, 0, 0, 0, drawn);
  const { width, height } = layoutOf(tree.root);
  return Object.assign(drawn, { width, height });
}

function drawGroup(group, x, y, depth, drawn) {
  const layout = layoutOf(group);
  const lines = svg("g", { class: "lines" }),
    boxes = svg("g");
  drawn.root.append(lines, boxes);
  for (const edge of layout.edges) {
    const line = drawLine(edge, x, y);
    lines.append(line);
    drawn.lines.push({ line, edge });
  }
  for (const [source, port] of layout.ins) boxes.append(drawPort(source, x + port.x, y + port.y, port.width, "port"));
  for (const chip of layout.chips) boxes.append(drawPort(chip.source, x + chip.x, y + chip.y, chip.width, "port chip"));
  for (const [source, port] of layout.outs) {
    boxes.append(svg("circle", { class: "out", cx: x + port.x, cy: y + port.y, r: 3, "data-node": source.id }));
  }
  for (const [child, place] of layout.places) drawBox(child, x + place.x, y + place.y, depth, boxes, drawn);
}

function drawBox(box, x, y, depth, boxes, drawn) {
  const { width, height } = sizeOf(box);
  const element = box.isOpen ? drawOpen(box, x, y, width, height, depth) : drawClosed(box, x, y, width, height);
  element.dataset.box = box.id;
  boxes.append(element);
  drawn.elements.set(box, element);
  drawn.places.set(box, { x, y, width, height });
  if (box.isOpen) drawGroup(box, x, y, depth + 1, drawn);
}

function drawOpen(box, x, y, width, height, depth) {
  const element = svg("g", { class: `group ${box.kind} depth${depth % 4}`, transform: `translate(${x},${y})` });
  element.append(svg("rect", { class: "frame", width, height, rx: 9 }));
  const head = svg("g", { class: "head", "data-toggle": "" });
  head.append(svg("rect", { class: "hit", x: 4, y: 3, width: 22 + widthOf(titleOf(box), FONT), height: 20, rx: 5 }));
  head.append(
    svg("text", { class: "sign", x: 11, y: 17 }, "▾"),
    svg("text", { class: "title", x: 24, y: 17 }, titleOf(box)),
  );
  element.append(head);
  const after = 24 + widthOf(titleOf(box), FONT) + 8;
  element.append(svg("text", { class: "subtitle", x: after, y: 17 }, subtitleOf(box)));
  return element;
}

function drawClosed(box, x, y, width, height) {
  const node = box.node;
  const category = box.isGroup ? box.kind : categoryOf(node);
  const element = svg("g", { class: `box ${category}`, transform: `translate(${x},${y})` });
  const isPill = ["input", "output", "attribute"].includes(category);
  if (box.isGroup) element.append(svg("rect", { class: "shadow", x: 3, y: 3, width, height, rx: 8 }));
  element.append(svg("rect", { class: "frame", width, height, rx: isPill ? height / 2 : 7 }));
  if (!isPill && !box.isGroup) element.append(svg("path", { class: "stripe", d: stripe(height) }));
  if (box.isGroup) drawClosedGroup(box, element, width, height);
  else drawNode(box, element, width, height, isPill);
  return element;
}

function drawNode(box, element, width, height, isPill) {
  const title = titleOf(box),
    value = valueOf(box);
  const left = isPill ? 15 : 14;
  element.append(svg("text", { class: "title", x: left, y: isPill ? 17 : 18 }, title));
  if (!isPill)
    element.append(svg("text", { class: "subtitle", x: left + widthOf(title, FONT) + 8, y: 18 }, subtitleOf(box)));
  if (value) element.append(svg("text", { class: "value", x: left, y: height - (isPill ? 10 : 9) }, value));
}

function drawClosedGroup(box, element, width, height) {
  const title = titleOf(box);
  const head = svg("g", { "data-toggle": "" });
  head.append(svg("rect", { class: "hit", x: 3, y: 3, width: 22, height: height - 6, rx: 5 }));
  head.append(svg("text", { class: "sign", x: 10, y: height / 2 + 4 }, "▸"));
  element.append(head);
  element.append(svg("text", { class: "title", x: 26, y: 18 }, title));
  element.append(svg("text", { class: "subtitle", x: 26 + widthOf(title, FONT) + 8, y: 18 }, subtitleOf(box)));
  element.append(svg("text", { class: "value", x: 26, y: 33 }, valueOf(box)));
  element.append(
    svg("text", { class: "count", x: width - 9, y: 18, "text-anchor": "end" }, countText(box.totals.nodes)),
  );
}

function stripe(height) {
  return `M7 0 H5.5 V${height} H7 A7 7 0 0 1 0 ${height - 7} V7 A7 7 0 0 1 7 0 Z`;
}

function drawPort(source, x, y, width, kind) {
  const name = shortened(source.node.name, 18);
  const element = svg("g", { class: kind, transform: `translate(${x - width / 2},${y - 8})`, "data-node": source.id });
  element.append(
    svg("rect", { width, height: 16, rx: 8 }),
    svg("text", { x: width / 2, y: 11.5, "text-anchor": "middle" }, name),
  );
  return element;
}

function drawLine({ points, sources, to }, x, y) {
  let path = `M${x + points[0].x} ${y + points[0].y}`;
  for (let i = 1; i < points.length; i++) {
    const a = points[i - 1],
      b = points[i],
      middle = (a.y + b.y) / 2;
    path += ` C${x + a.x} ${y + middle} ${x + b.x} ${y + middle} ${x + b.x} ${y + b.y}`;
  }
  const line = svg("path", { class: "line", d: path, "marker-end": to ? "url(#arrow)" : undefined });
  line.dataset.sources = sources.map((source) => source.id).join(" ");
  return line;
}
