// The data of the page as versions of the program: each has its nodes by id, in their order, and who reads them.

const MEASURES = {
  seconds: { label: "time", text: secondsText },
  flops: { label: "FLOPs", text: (count) => countText(count, "FLOP") },
  written: { label: "memory", text: bytesText },
};

function readContent() {
  return JSON.parse(document.getElementById("data").textContent);
}

function makeVersion(nodes, code) {
  const version = {
    nodes,
    users: new Map(),
    code: code?.code ?? "",
    lines: new Map(Object.entries(code?.lines ?? {})),
  };
  let index = 0;
  for (const node of nodes.values()) {
    node.index = index++;
    for (const used of node.inputs ?? []) {
      if (!version.users.has(used)) version.users.set(used, []);
      version.users.get(used).push(node.id);
    }
  }
  return version;
}

// All versions: the first is given whole, each other one as what changes. They are made when somebody looks at them.
class Versions {
  constructor(content) {
    this.steps = content.steps ?? [];
    this.last = content.last;
    this.guards = content.first.guards ?? [];
    const nodes = new Map(content.first.nodes.map((node) => [node.id, node]));
    this.made = [makeVersion(nodes, content.first)];
  }

  at(number) {
    while (this.made.length <= number) {
      const step = this.steps[this.made.length - 1];
      const code = this.made.length === this.steps.length ? this.last : undefined;
      this.made.push(makeVersion(changed(this.made[this.made.length - 1].nodes, step), code));
    }
    return this.made[number];
  }
}

// The nodes after a step. Those of the version before stay as they are: both may be on the screen.
function changed(before, step) {
  const set = new Map(step.set.map((node) => [node.id, node]));
  const removed = new Set(step.removed);
  const following = new Map();
  for (const [id, earlier] of Object.entries(step.after)) {
    if (!following.has(earlier)) following.set(earlier, []);
    following.get(earlier).push(id);
  }
  const nodes = new Map();
  const put = (id) => {
    if (!removed.has(id)) nodes.set(id, { ...(set.get(id) ?? before.get(id)) });
    for (const next of following.get(id) ?? []) put(next);
  };
  for (const id of following.get("") ?? []) put(id);
  for (const id of before.keys()) if (!nodes.has(id)) put(id);
  if (!step.order.length) return nodes;
  return new Map(step.order.map((id) => [id, nodes.get(id)]));
}

// What became of each node between two versions, for the one and for the other: added, removed or changed.
function statuses(before, after) {
  const old = new Map(),
    now = new Map();
  for (const [id, node] of before.nodes) {
    const later = after.nodes.get(id);
    if (!later) old.set(id, "removed");
    else if (meaningOf(later) !== meaningOf(node)) (old.set(id, "changed"), now.set(id, "changed"));
  }
  for (const id of after.nodes.keys()) if (!before.nodes.has(id)) now.set(id, "added");
  return [old, now];
}

function meaningOf(node) {
  return JSON.stringify([node.op, node.target, node.args, node.value, node.details]);
}
