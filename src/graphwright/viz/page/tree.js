// Nodes -> boxes in boxes: modules, the bodies of branches and loops, and runs of nodes where there are too many.

const MOST_CHILDREN = 140; // more boxes than that are put into runs
const RUN = 60;

class Box {
  constructor(id, kind, parent, title, subtitle) {
    Object.assign(this, { id, kind, parent, title, subtitle, node: null, children: [], path: "" });
    this.links = new Map(); // from child to child, by the node whose value goes there
    this.ins = new Map(); // from nodes outside to children
    this.outs = new Map(); // from nodes inside to the outside
    this.isOpen = false;
    this.totals = { nodes: 0, seconds: undefined, flops: undefined, written: undefined };
  }

  get isGroup() {
    return this.children.length > 0;
  }

  *ancestors() {
    for (let box = this.parent; box; box = box.parent) yield box;
  }
}

class Tree {
  constructor(version, showsGuards) {
    this.version = version;
    this.boxes = new Map(); // by id
    this.byNode = new Map(); // by the id of a node
    this.root = this.add(new Box("", "root", null, "", ""));
    this.graphs = new Map();
    const aside = showsGuards ? new Set() : nodesAside(version);
    for (const node of version.nodes.values()) {
      if (!this.graphs.has(node.graph ?? "")) this.graphs.set(node.graph ?? "", []);
      if (!aside.has(node.id)) this.graphs.get(node.graph ?? "").push(node);
    }
    for (const [graph, nodes] of this.graphs) if (!isBody(graph, version)) this.fillEntry(graph, nodes);
    this.divide(this.root);
    this.connect();
    this.sumUp(this.root);
  }

  add(box) {
    this.boxes.set(box.id, box);
    if (box.parent) box.parent.children.push(box);
    return box;
  }

  fillEntry(graph, nodes) {
    const parent = graph === "" ? this.root : this.add(new Box(`[${graph}]`, "body", this.root, graph, "method"));
    this.fill(parent, nodes, 0);
  }

  // Put the nodes of one graph into a box, in the modules that they are part of beyond the first ones.
  fill(parent, nodes, depth, within = "") {
    for (const node of nodes) {
      let box = parent;
      const stack = (node.stack ?? []).slice(depth).filter(([path]) => !`${within}.`.startsWith(`${path}.`));
      stack.forEach(([path, kind], i) => (box = this.module(box, path, kind, node, i === stack.length - 1)));
      const own = this.add(new Box(node.id, "node", box, "", ""));
      own.node = node;
      this.byNode.set(node.id, own);
      for (const body of node.bodies ?? []) this.fillBody(own, body, node);
    }
  }

  fillBody(region, body, node) {
    const isCalled = node.op === "call_module"; // a captured module, in which paths begin anew
    region.kind = isCalled ? "module" : "region";
    const isAlone = node.bodies.length === 1;
    const inside = isAlone ? region : this.add(new Box(`[${body.id}]`, "body", region, body.label, ""));
    if (!isAlone) inside.isOpen = true; // it shows as soon as its region does
    const nodes = this.graphs.get(body.id) ?? [];
    if (isCalled) this.fill(inside, nodes, 0, node.target);
    else this.fill(inside, nodes, (node.stack ?? []).length);
  }

  // The box of a module for a node: the last one of that path, unless the module is called again. Of the innermost
  // module, the node knows which call it is part of.
  module(parent, path, kind, node, isInnermost) {
    parent.modules ??= new Map();
    const last = parent.modules.get(path),
      call = isInnermost ? (node.module_call ?? 0) : undefined;
    const isSame = last && (call === undefined || last.call === undefined || last.call === call);
    if (isSame && !this.comesBack(node, last)) {
      last.call ??= call;
      return last;
    }
    const number = last ? last.number + 1 : 1;
    const title = path.startsWith(`${parent.path}.`) && parent.path ? path.slice(parent.path.length + 1) : path;
    const times = number > 1 ? ` (${number})` : "";
    const box = this.add(new Box(`${parent.id}>${path}#${number}`, "module", parent, title + times, kind));
    Object.assign(box, { path, number, call, first: node.index });
    parent.modules.set(path, box);
    return box;
  }

  // Does a node read something outside of a box that itself depends on the box?
  comesBack(node, box) {
    const seen = new Set();
    const waiting = (node.inputs ?? []).filter((id) => !this.isInside(id, box));
    while (waiting.length) {
      const id = waiting.pop();
      const used = this.version.nodes.get(id);
      if (!used || seen.has(id) || used.index < box.first) continue;
      seen.add(id);
      for (const next of used.inputs ?? []) {
        if (this.isInside(next, box)) return true;
        waiting.push(next);
      }
    }
    return false;
  }

  isInside(id, box) {
    for (let each = this.byNode.get(id); each; each = each.parent) if (each === box) return true;
    return false;
  }

  // Where a box has too many children, put each few that follow each other into a run.
  divide(box) {
    for (const child of box.children) this.divide(child);
    for (let level = 1; box.children.length > MOST_CHILDREN; level++) {
      const all = box.children;
      box.children = [];
      for (let i = 0; i < all.length; i += RUN) {
        const part = all.slice(i, i + RUN);
        const run = this.add(new Box(`${box.id}>run ${level}.${i / RUN}`, "run", box, runTitle(part), "in a row"));
        run.children = part;
        for (const child of part) child.parent = run;
      }
    }
  }

  // Note for each use of a value which boxes it connects, and through the borders of which it goes.
  connect() {
    for (const [id, to] of this.byNode) {
      for (const used of to.node.inputs ?? []) {
        const from = this.byNode.get(used);
        if (from && from !== to) this.connectOne(from, to, id);
      }
    }
  }

  connectOne(from, to) {
    const above = new Set(from.ancestors());
    let inner = to;
    while (!above.has(inner.parent)) {
      note(inner.parent.ins, from, inner);
      inner = inner.parent;
    }
    const common = inner.parent;
    let outer = from;
    while (outer.parent !== common) {
      note(outer.parent.outs, from, outer);
      outer = outer.parent;
    }
    if (outer !== inner) common.links.set(`${from.id}\n${inner.id}`, { source: from, from: outer, to: inner });
  }

  sumUp(box) {
    const totals = box.totals;
    if (box.node) {
      totals.nodes = 1;
      for (const name of Object.keys(MEASURES)) totals[name] = box.node[name];
    }
    for (const child of box.children) {
      const inside = this.sumUp(child);
      totals.nodes += inside.nodes;
      for (const name of Object.keys(MEASURES)) {
        if (inside[name] !== undefined) totals[name] = (totals[name] ?? 0) + inside[name];
      }
    }
    return totals;
  }

  // The box to show for a node: itself, or the outermost closed one around it.
  shown(box) {
    let found = box;
    for (const each of box.ancestors()) if (each !== this.root && !each.isOpen) found = each;
    return found;
  }

  *shownBoxes(box = this.root) {
    for (const child of box.children) {
      yield child;
      if (child.isOpen) yield* this.shownBoxes(child);
    }
  }

  *nodesIn(box) {
    if (box.node) yield box.node;
    for (const child of box.children) yield* this.nodesIn(child);
  }

  // Open modules, one level after the other, while there are few boxes: where reading begins.
  openFirst() {
    let count = this.root.children.length;
    for (let level = [this.root]; level.length;) {
      const next = level.flatMap((box) => box.children.filter((child) => child.isGroup));
      const inside = next.reduce((sum, box) => sum + box.children.length, 0);
      if (!inside || count > 10 || count + inside > 60) return;
      for (const box of next) box.isOpen = true;
      count += inside;
      level = next;
    }
  }
}

function note(table, source, child) {
  const key = `${source.id}\n${child.id}`;
  if (!table.has(key)) table.set(key, { source, child });
}

function runTitle(boxes) {
  const nameOf = (box) => box.node?.name ?? box.title;
  return `${nameOf(boxes[0])} … ${nameOf(boxes[boxes.length - 1])}`;
}

// What is beside the program: guards, and what nothing but guards reads; inputs that nothing reads, too.
function nodesAside(version) {
  const aside = new Set();
  for (const node of [...version.nodes.values()].reverse()) {
    const users = version.users.get(node.id) ?? [];
    const isOut = users.length ? users.every((id) => aside.has(id)) : ["placeholder", "get_attr"].includes(node.op);
    if (node.is_guard || (isOut && !node.bodies)) aside.add(node.id);
  }
  return aside;
}

function isBody(graph, version) {
  return graph.includes("/") && version.nodes.has(graph.slice(0, graph.lastIndexOf("/")));
}
