// Search: the names of nodes, what they call, their modules, and lines of the user's program.

const MOST_FOUND = 200;

function textOf(node) {
  const place = node.place ? `${baseName(node.place[0])}:${node.place[1]} ${node.place[2]} ${node.place[3]}` : "";
  const modules = (node.stack ?? []).map(([path, kind]) => `${path} ${kind}`).join(" ");
  return `${node.name}\n${node.target}\n${node.call ?? ""}\n${modules}\n${place}`.toLowerCase();
}

// Nodes that have every word of a query. Those whose name or operator begins with it come first.
function search(version, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const rank = (node) => {
    const starts = [node.name, node.call ?? "", node.target].some((text) => text.toLowerCase().startsWith(words[0]));
    return starts ? 0 : 1;
  };
  const found = [...version.nodes.values()].filter((node) => {
    node.text ??= textOf(node);
    return words.every((word) => node.text.includes(word));
  });
  return found
    .map((node) => [rank(node), node])
    .sort((a, b) => a[0] - b[0])
    .map(([, node]) => node);
}

class Search {
  constructor(app) {
    this.app = app;
    this.input = document.getElementById("query");
    this.list = document.getElementById("found");
    this.chosen = -1;
    this.found = [];
    this.input.addEventListener("input", () => this.look());
    this.input.addEventListener("focus", () => this.found.length && (this.list.hidden = false));
    this.input.addEventListener("blur", () => setTimeout(() => (this.list.hidden = true), 150));
    this.input.addEventListener("keydown", (event) => this.key(event));
  }

  look() {
    this.found = search(this.app.pane.version, this.input.value);
    this.chosen = -1;
    this.app.matches = new Set(this.found.map((node) => node.id));
    const items = this.found.slice(0, MOST_FOUND).map((node, i) => this.item(node, i));
    if (this.found.length > MOST_FOUND)
      items.push(html("li", { class: "more" }, `${this.found.length - MOST_FOUND} more`));
    if (this.input.value.trim() && !items.length) items.push(html("li", { class: "more" }, "nothing has that"));
    this.list.replaceChildren(...items);
    this.list.hidden = !items.length;
    for (const pane of this.app.panes) pane.select();
  }

  item(node, i) {
    const module = node.stack?.length ? node.stack[node.stack.length - 1][0] : "";
    const element = html(
      "li",
      { "data-found": node.id },
      html("b", {}, node.name),
      " ",
      html("span", {}, node.call ?? ""),
      " ",
      html("i", {}, node.place?.[3] || module),
    );
    element.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      this.choose(i);
    });
    return element;
  }

  choose(i) {
    if (!this.found.length) return;
    this.chosen = (i + this.found.length) % this.found.length;
    [...this.list.children].forEach((item, k) => item.classList.toggle("chosen", k === this.chosen));
    this.list.children[this.chosen]?.scrollIntoView({ block: "nearest" });
    this.app.go(this.found[this.chosen].id);
  }

  key(event) {
    if (event.key === "Enter" || event.key === "ArrowDown") this.choose(this.chosen + (event.shiftKey ? -1 : 1));
    else if (event.key === "ArrowUp") this.choose(this.chosen - 1);
    else if (event.key === "Escape") this.clear();
    else return;
    event.preventDefault();
  }

  clear() {
    this.input.value = "";
    this.look();
    this.input.blur();
    this.app.pane.canvas.focus({ preventScroll: true });
  }
}
