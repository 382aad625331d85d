// Numbers and names as short text, and how wide text is.

const FONT = '600 12px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif';
const SMALL = '10.5px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif';
const MONO = '10.5px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';

const measuring = document.createElement("canvas").getContext("2d");
const widths = new Map();

function widthOf(text, font) {
  const key = `${font}${text}`;
  if (!widths.has(key)) {
    measuring.font = font;
    widths.set(key, measuring.measureText(text).width);
  }
  return widths.get(key);
}

function shortened(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

function scaled(value, step, units) {
  let unit = 0;
  while (value >= step && unit < units.length - 1) ((value /= step), unit++);
  const digits = value >= 100 || (unit === 0 && Number.isInteger(value)) ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`.trim();
}

function countText(count, unit = "") {
  return scaled(
    count,
    1000,
    ["", "k", "M", "G", "T", "P"].map((prefix) => prefix + unit),
  );
}

function bytesText(count) {
  return scaled(count, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

function secondsText(seconds) {
  return scaled(seconds * 1e6, 1000, ["µs", "ms", "s"]);
}

function baseName(path) {
  return path.slice(Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1);
}

// What a box says: a title and a line under it.
function titleOf(box) {
  const node = box.node;
  if (!node) return shortened(box.title, 40);
  if (box.kind === "region") return saysItself(node) ? shortened(node.place[3].replace(/:$/, ""), 56) : node.call;
  if (node.op === "call_module") return shortened(ownName(node, box.parent), 40);
  if (node.op === "placeholder" || node.op === "get_attr") return shortened(node.target, 40);
  return shortened(node.call ?? node.name, 40);
}

// The value of a box: of a group, what the only one of its nodes gives that others read.
function valueOf(box) {
  if (box.node) return shortened(box.node.value ?? "", 36);
  const given = new Set([...box.outs.values()].map(({ source }) => source.node.value));
  return given.size === 1 && !box.isOpen ? shortened([...given][0] ?? "", 36) : "";
}

// Does the user's line say what a branch or loop is?
function saysItself(node) {
  return node.place?.[3].startsWith(`${node.call} `) ?? false;
}

// The path of a module as it reads inside of the box around it.
function ownName(node, parent) {
  for (let box = parent; box; box = box.parent) {
    if (box.path && node.target.startsWith(`${box.path}.`)) return node.target.slice(box.path.length + 1);
  }
  return node.target;
}

function subtitleOf(box) {
  const node = box.node;
  if (box.kind === "region") return saysItself(node) ? "" : shortened(node.place?.[3] ?? node.name, 48);
  if (!node) return box.kind === "module" ? shortened(box.subtitle, 32) : box.subtitle;
  return node.op === "call_module" ? node.call : "";
}
