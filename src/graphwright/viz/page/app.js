// The page as a whole: what is selected, which version is shown, and what the buttons do.

const MOST_SHOWN = 3000; // boxes at once

class App {
  constructor(content) {
    Object.assign(this, { content, selected: null, heat: "", step: 1, showsGuards: false, matches: new Set() });
    this.versions = new Versions(content);
    this.panes = [];
    this.tab = "details";
    document.getElementById("title").textContent = content.title;
    const parent = document.getElementById("panes");
    const labels = this.versions.steps.length ? ["before", "after"] : [""];
    for (const label of labels) this.panes.push(new Pane(this, parent, label));
    this.pane = this.panes[this.panes.length - 1];
    this.search = new Search(this);
    this.code = new Code(this, document.getElementById("code"));
    this.makeBar();
    this.makeTabs();
    listenToKeys(this);
    this.showVersions();
    this.fit(true);
    if (this.panes.length > 1) this.showTab("changes");
  }

  linked() {
    return this.panes;
  }

  // ---- versions

  showVersions() {
    const trees = this.panes.map((pane) => pane.tree);
    if (this.panes.length === 1) {
      this.pane.show(this.versions.at(0), new Map(), trees[0]);
    } else {
      const [before, after] = [this.versions.at(this.step - 1), this.versions.at(this.step)];
      const marks = statuses(before, after);
      this.panes[0].show(before, marks[0], trees[0]);
      this.panes[1].show(after, marks[1], trees[1]);
    }
    stepper(this);
    this.update();
  }

  showStep(number) {
    if (this.content.is_comparison || number < 1 || number > this.versions.steps.length || number === this.step) return;
    this.step = number;
    this.showVersions();
    nextChange(this, 1);
    this.showTab("changes");
  }

  // ---- selection

  select(id, pane = this.pane) {
    this.pane = pane;
    this.selected = id;
    for (const each of this.panes) each.select();
    this.update();
  }

  // Select a node wherever it is, and bring it into sight.
  go(id, pane = this.pane) {
    if (!pane.version.nodes.has(id) && !pane.tree.boxes.has(id))
      pane = this.panes.find((each) => each.version.nodes.has(id)) ?? pane;
    if (!pane.tree.boxes.has(id) && !this.showsGuards && pane.version.nodes.has(id)) this.toggleGuards();
    this.select(id, pane);
    for (const each of this.panes) {
      const box = each.reveal(id);
      if (box && (!each.isVisible(box) || each.view.scale < READABLE)) each.center(box);
    }
  }

  get box() {
    return this.pane.tree.boxes.get(this.selected);
  }

  walk(direction) {
    const { version, tree } = this.pane,
      node = this.box?.node;
    if (!node) return this.walkInOrder(1);
    const next = (direction === "users" ? version.users.get(node.id) : node.inputs) ?? [];
    const shown = next.find((id) => tree.byNode.has(id));
    return shown && this.go(shown);
  }

  walkInOrder(step) {
    const shown = [...this.pane.tree.shownBoxes()];
    const place = shown.indexOf(this.box);
    const next = shown[place < 0 ? (step > 0 ? 0 : shown.length - 1) : place + step];
    if (next) this.go(next.id);
  }

  walkOut() {
    const outer = this.box?.parent;
    if (outer) this.go(outer.id || null);
  }

  // ---- folding

  toggle(id) {
    const box = this.pane.tree.boxes.get(id);
    if (!box?.isGroup) return;
    const isOpen = !box.isOpen;
    for (const pane of this.panes) pane.toggle(pane.tree.boxes.get(id), isOpen);
    this.update();
  }

  unfold() {
    for (const pane of this.panes) {
      const top = pane.tree.boxes.get(this.selected) ?? pane.tree.root;
      const shown = top === pane.tree.root || top.isOpen ? [...pane.tree.shownBoxes(top)] : [top];
      const closed = shown.filter((box) => box.isGroup && !box.isOpen);
      const more = closed.reduce((sum, box) => sum + box.children.length, 0);
      const all = [...pane.tree.shownBoxes()].length;
      if (all + more <= MOST_SHOWN) pane.open(closed);
      else say(`That would be ${all + more} boxes; select a module to unfold it alone.`);
    }
  }

  fold() {
    for (const pane of this.panes) {
      const box = pane.tree.boxes.get(this.selected);
      const group = box?.isGroup && box.isOpen ? box : null;
      if (group) pane.toggle(group, false);
      else
        pane.open(
          [...pane.tree.boxes.values()].filter((each) => each.kind !== "body"),
          false,
        );
    }
    if (!this.box?.isGroup) this.fit(true);
  }

  // All panes at the same size: that of the one that needs most room.
  fit(isFirst = false) {
    for (const pane of this.panes) pane.fit(isFirst);
    const scale = Math.min(...this.panes.map((pane) => pane.view.scale));
    for (const pane of this.panes) if (pane.view.scale > scale) pane.fit(isFirst, scale);
  }

  // ---- what is shown of all

  toggleGuards() {
    this.showsGuards = !this.showsGuards;
    document.getElementById("guards").setAttribute("aria-pressed", this.showsGuards);
    this.showVersions();
  }

  setHeat(measure) {
    this.heat = measure;
    for (const pane of this.panes) pane.heat();
    this.update();
  }

  nextHeat() {
    const all = ["", ...this.measures()];
    this.setHeat(all[(all.indexOf(this.heat) + 1) % all.length]);
  }

  measures() {
    const { totals } = this.pane.tree.root;
    return Object.keys(MEASURES).filter((name) => totals[name] !== undefined);
  }

  nextTheme() {
    const root = document.documentElement;
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  }

  // ---- around the graph

  makeBar() {
    const actions = { guards: "toggleGuards", unfold: "unfold", fold: "fold", fit: "fit", theme: "nextTheme" };
    for (const [id, name] of Object.entries(actions))
      document.getElementById(id).addEventListener("click", () => this[name]());
    document.getElementById("help").addEventListener("click", () => document.getElementById("keys").showModal());
    for (const [name, { label }] of [["", { label: "off" }], ...Object.entries(MEASURES)]) {
      document
        .getElementById("heat")
        .append(html("button", { "data-heat": name, onclick: () => this.setHeat(name) }, label));
    }
  }

  makeTabs() {
    const names = ["details", "code", "flame", ...(this.panes.length > 1 ? ["changes"] : [])];
    document
      .getElementById("tabs")
      .replaceChildren(
        ...names.map((name) =>
          html("button", { role: "tab", "data-tab": name, onclick: () => this.showTab(name) }, name),
        ),
      );
  }

  showTab(name) {
    this.tab = name;
    this.update();
  }

  update() {
    for (const button of document.querySelectorAll("[data-tab]")) {
      button.setAttribute("aria-selected", button.dataset.tab === this.tab);
      document.getElementById(button.dataset.tab).hidden = button.dataset.tab !== this.tab;
    }
    const measures = this.measures();
    for (const button of document.querySelectorAll("[data-heat]")) {
      const name = button.dataset.heat;
      button.setAttribute("aria-pressed", name === this.heat);
      button.disabled = name !== "" && !measures.includes(name);
      button.title = button.disabled ? "Give args to graphwright.view to have it measured" : "";
    }
    this.updateLegend();
    if (this.tab === "details") document.getElementById("details").replaceChildren(...detailsOf(this));
    if (this.tab === "code") this.code.show();
    if (this.tab === "flame") document.getElementById("flame").replaceChildren(...flameOf(this));
    if (this.tab === "changes") document.getElementById("changes").replaceChildren(...changesOf(this));
    for (const pane of this.panes) pane.element.classList.toggle("active", pane === this.pane && this.panes.length > 1);
  }

  updateLegend() {
    const legend = document.getElementById("legend");
    legend.hidden = !this.heat;
    if (!this.heat) return;
    const { most, total } = heatOf(this.pane.tree, this.heat),
      { text } = MEASURES[this.heat];
    legend.replaceChildren(
      html("span", {}, "0"),
      html("span", { class: "ramp" }),
      html("span", {}, text(most)),
      html("small", {}, `of ${text(total)}`),
    );
  }
}

function say(message) {
  const toast = html("div", { class: "toast", role: "status" }, message);
  document.body.append(toast);
  setTimeout(() => toast.remove(), 4000);
}

const app = new App(readContent());
document.documentElement.dataset.ready = Math.round(performance.now());
