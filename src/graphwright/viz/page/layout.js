// Where the shown boxes stand: each open group is laid out by itself, from the inside out, and kept until it changes.

const SPACE = { nodesep: 22, ranksep: 34, edgesep: 12, marginx: 16, marginy: 10 };
const HEADER = 26;
const MOST_READERS = 6; // a value that more boxes of a group read comes to each by name instead of by a line

// Returns { width, height, places: Map(child -> {x, y}), ports, edges } with everything relative to the group.
function layoutOf(group) {
  if (!group.layout) group.layout = compute(group);
  return group.layout;
}

function forget(box) {
  for (let each = box; each; each = each.parent) each.layout = null;
}

function sizeOf(box) {
  if (box.isOpen && box.isGroup) return layoutOf(box);
  return closedSize(box);
}

function closedSize(box) {
  const title = widthOf(titleOf(box), FONT),
    subtitle = widthOf(subtitleOf(box), SMALL);
  const value = widthOf(valueOf(box), MONO);
  if (box.node && !box.isGroup && ["placeholder", "output", "get_attr"].includes(box.node.op)) {
    return { width: Math.max(title, value) + 30, height: value ? 40 : 26 };
  }
  const beside = box.isGroup ? 50 : 14; // for the sign that it opens and how much is inside, or the stripe
  const top = title + (subtitle ? subtitle + 8 : 0);
  return { width: Math.max(74, Math.max(top + beside, value + 28) + 14), height: value ? 42 : 28 };
}

function compute(group) {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  const isLarge = group.children.length > 80;
  graph.setGraph({ ...SPACE, ranker: isLarge ? "tight-tree" : "network-simplex", acyclicer: "greedy" });
  for (const child of group.children) {
    const { width, height } = sizeOf(child);
    graph.setNode(`b${child.id}`, { width, height, child });
  }
  const lines = [...linesOf(group)];
  const ports = addPorts(graph, group);
  const crowded = crowdedSources(lines);
  for (const line of lines) addLine(graph, line, crowded);
  dagre.layout(graph, { disableOptimalOrderHeuristic: isLarge });
  return placed(graph, group, ports);
}

// What has to be drawn as a line in a group. Lines between closed boxes are one for each two boxes.
function* linesOf(group) {
  for (const { source, from, to } of group.links.values()) {
    yield { source, from: `b${from.id}`, to: `b${to.id}`, leaves: from.isOpen, enters: to.isOpen };
  }
  if (group.kind === "root") return;
  for (const { source, child } of group.ins.values()) {
    yield { source, from: `i${source.id}`, to: `b${child.id}`, leaves: false, enters: child.isOpen, isPort: true };
  }
  for (const { source, child } of group.outs.values()) {
    yield { source, from: `b${child.id}`, to: `o${source.id}`, leaves: child.isOpen, enters: false, isOut: true };
  }
}

// The values that come in stand in the first row, those that go out in the last one.
function addPorts(graph, group) {
  const ports = { ins: new Map(), outs: new Map() };
  if (group.kind === "root") return ports;
  for (const { source } of group.ins.values()) ports.ins.set(`i${source.id}`, source);
  for (const { source } of group.outs.values()) ports.outs.set(`o${source.id}`, source);
  if (ports.ins.size) graph.setNode("top", { width: 0, height: 0 });
  if (ports.outs.size) graph.setNode("bottom", { width: 0, height: 0 });
  for (const [name, source] of ports.ins) {
    graph.setNode(name, { width: widthOf(shortened(source.node.name, 18), SMALL) + 14, height: 16, source });
    graph.setEdge("top", name, { weight: 60, isHidden: true });
  }
  for (const [name, source] of ports.outs) {
    graph.setNode(name, { width: 6, height: 6, source });
    graph.setEdge(name, "bottom", { weight: 60, isHidden: true });
  }
  return ports;
}

function crowdedSources(lines) {
  const counts = new Map();
  for (const { from, source, isOut } of lines) {
    if (!isOut) counts.set(`${from}\n${source.id}`, (counts.get(`${from}\n${source.id}`) ?? 0) + 1);
  }
  return new Set([...counts].filter(([, count]) => count > MOST_READERS).map(([key]) => key));
}

function addLine(graph, line, crowded) {
  let { from, to, source } = line;
  if (!line.isOut && crowded.has(`${from}\n${source.id}`)) {
    from = `c${source.id}\n${to}`;
    graph.setNode(from, {
      width: widthOf(shortened(source.node.name, 18), SMALL) + 14,
      height: 16,
      source,
      isChip: true,
    });
    line = { ...line, leaves: false };
  }
  const ends = `${line.leaves ? source.id : ""}\n${line.enters ? source.id : ""}`;
  const known = graph.edge(from, to, ends);
  if (known) known.sources.push(source);
  else graph.setEdge(from, to, { ...line, sources: [source], weight: line.isPort || line.isOut ? 1 : 2 }, ends);
}

function placed(graph, group, ports) {
  const frame = frameOf(graph),
    isRoot = group.kind === "root";
  const inner = isRoot ? 0 : HEADER;
  const titleWidth = isRoot ? 0 : widthOf(`${titleOf(group)}  ${subtitleOf(group)}`, FONT) + 60;
  const layout = { places: new Map(), ins: new Map(), outs: new Map(), chips: [], edges: [] };
  layout.width = Math.max(frame.width, titleWidth);
  layout.height = frame.height + inner;
  const left = (layout.width - frame.width) / 2 - frame.left,
    top = inner - frame.top;
  const at = ({ x, y }) => ({ x: x + left, y: y + top });
  for (const name of graph.nodes()) {
    const { child, source, isChip, ...rest } = graph.node(name);
    const point = at(rest);
    if (child) layout.places.set(child, { x: point.x - rest.width / 2, y: point.y - rest.height / 2 });
    else if (isChip) layout.chips.push({ source, ...point, width: rest.width });
    else if (ports.ins.has(name)) layout.ins.set(source, { ...point, width: rest.width });
    else if (ports.outs.has(name)) layout.outs.set(source, { x: point.x, y: layout.height });
  }
  for (const key of graph.edges()) {
    const edge = graph.edge(key);
    if (!edge.isHidden) layout.edges.push(route(edge, graph.node(key.v), graph.node(key.w), layout, at));
  }
  return layout;
}

// What boxes and lines take up, with a margin.
function frameOf(graph) {
  let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
  const include = (x, y, width, height) => {
    ((left = Math.min(left, x - width / 2)), (right = Math.max(right, x + width / 2)));
    ((top = Math.min(top, y - height / 2)), (bottom = Math.max(bottom, y + height / 2)));
  };
  for (const name of graph.nodes()) {
    const { x, y, width, height } = graph.node(name);
    if (name !== "top" && name !== "bottom") include(x, y, width, height);
  }
  for (const key of graph.edges()) {
    const edge = graph.edge(key);
    if (!edge.isHidden) for (const { x, y } of edge.points) include(x, y, 8, 0);
  }
  if (left > right) return { left: 0, top: 0, width: 0, height: 0 };
  const { marginx, marginy } = SPACE;
  return {
    left: left - marginx,
    top: top - marginy,
    width: right - left + 2 * marginx,
    height: bottom - top + 2 * marginy,
  };
}

// The points of a line, from where a value leaves a box to where it enters one.
function route(edge, from, to, layout, at) {
  const points = edge.points.map(at),
    { leaves, enters } = edge,
    [source] = edge.sources;
  const start = from.child
    ? leaving(from.child, source, layout, points[0], leaves)
    : { x: at(from).x, y: at(from).y + 8 };
  const ends = to.child
    ? entering(to.child, source, layout, points[points.length - 1], enters)
    : [{ x: at(to).x, y: layout.height }];
  return { points: distinct(bent(start, points.slice(1, -1), ends)), sources: edge.sources, to: to.child ?? null };
}

// Lines go straight down past boxes, and sideways in the space between two rows alone.
function bent(start, inner, ends) {
  const half = SPACE.ranksep / 2,
    first = inner[0],
    last = inner[inner.length - 1],
    [end] = ends;
  const under = { x: start.x, y: Math.max(start.y, first.y - half) };
  const over = { x: end.x, y: Math.min(end.y, last.y + half) };
  if (inner.length < 3) return [start, under, over, ...ends];
  const down = { x: inner[1].x, y: first.y + half },
    on = { x: inner[inner.length - 2].x, y: last.y - half };
  return [start, under, down, ...inner.slice(1, -1), on, over, ...ends];
}

function distinct(points) {
  return points.filter((point, i) => i === 0 || Math.hypot(point.x - points[i - 1].x, point.y - points[i - 1].y) > 0.5);
}

function leaving(child, source, layout, point, isOpen) {
  const place = layout.places.get(child),
    size = sizeOf(child);
  const port = isOpen ? size.outs.get(source) : null;
  return { x: port ? place.x + port.x : within(point.x, place, size), y: place.y + size.height };
}

function entering(child, source, layout, point, isOpen) {
  const place = layout.places.get(child),
    size = sizeOf(child);
  const port = isOpen ? size.ins.get(source) : null;
  if (!port) return [{ x: within(point.x, place, size), y: place.y }];
  return [
    { x: place.x + port.x, y: place.y },
    { x: place.x + port.x, y: place.y + port.y - 8 },
  ];
}

function within(x, place, size) {
  const margin = Math.min(12, size.width / 2);
  return Math.min(Math.max(x, place.x + margin), place.x + size.width - margin);
}
