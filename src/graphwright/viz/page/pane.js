// One version of the program on the screen: a plane that is moved and scaled, and the boxes on it.

const SCALES = [0.04, 3];
const READABLE = 0.6;

class Pane {
  constructor(app, parent, label) {
    this.app = app;
    this.marks = new Map(); // what became of each node: added, removed, changed
    this.view = { x: 0, y: 0, scale: 1 };
    this.plane = svg("g");
    const arrow = svg("marker", {
      id: "arrow",
      viewBox: "0 0 8 8",
      refX: 7,
      refY: 4,
      markerWidth: 8,
      markerHeight: 8,
      markerUnits: "userSpaceOnUse",
      orient: "auto",
    });
    arrow.append(svg("path", { d: "M0 .8 L7 4 L0 7.2 Z" }));
    this.canvas = svg("svg", { class: "canvas", tabindex: 0, role: "application", "aria-label": label || "graph" });
    this.canvas.append(svg("defs", {}, arrow), this.plane);
    this.label = html("div", { class: "label" }, label);
    this.element = html("div", { class: "pane" }, this.canvas, label ? this.label : null);
    parent.append(this.element);
    this.listen();
  }

  // Show a version; groups that are open in `like` are so here.
  show(version, marks, like) {
    this.version = version;
    this.marks = marks;
    this.tree = new Tree(version, this.app.showsGuards);
    if (like) this.openLike(like);
    else this.tree.openFirst();
    this.draw();
  }

  openLike(other) {
    for (const box of other.boxes.values()) {
      const own = this.tree.boxes.get(box.id);
      if (box.isOpen && own?.isGroup) own.isOpen = true;
    }
  }

  draw() {
    this.drawn = drawTree(this.tree);
    this.plane.replaceChildren(this.drawn.root);
    this.mark();
    this.heat();
    this.select();
  }

  mark() {
    const counts = new Map();
    for (const [id, status] of this.marks) {
      const own = this.tree.byNode.get(id);
      if (!own) continue;
      const box = this.tree.shown(own);
      if (box !== own) counts.set(box, (counts.get(box) ?? 0) + 1);
      else this.drawn.elements.get(box)?.classList.add(status);
    }
    for (const [box, count] of counts) {
      const element = this.drawn.elements.get(box),
        { width } = this.drawn.places.get(box);
      element.classList.add("holds");
      const text = `${count} ${count === 1 ? "change" : "changes"}`,
        size = widthOf(text, SMALL) + 12;
      element.append(svg("rect", { class: "badge", x: width - size + 6, y: -8, width: size, height: 16, rx: 8 }));
      element.append(svg("text", { class: "badge", x: width + 6 - size / 2, y: 3.5, "text-anchor": "middle" }, text));
    }
  }

  heat() {
    const measure = this.app.heat;
    const { hot, most, total } = heatOf(this.tree, measure || "flops");
    for (const [box, element] of this.drawn.elements) {
      const value = measure ? hot.get(box) : undefined;
      element.classList.toggle("hot", value !== undefined && !box.isOpen);
      element.style.setProperty("--heat", `${Math.round(100 * (value ?? 0))}%`);
    }
    return { most, total };
  }

  select() {
    const box = this.tree.boxes.get(this.app.selected);
    const shown = box ? this.tree.shown(box) : null;
    for (const [each, element] of this.drawn.elements) {
      element.classList.toggle("selected", each === box);
      element.classList.toggle("inside", each === shown && each !== box);
      element.classList.toggle("match", this.app.matches.has(each.id));
    }
    for (const { line, edge } of this.drawn.lines) {
      const comes = edge.sources.some((source) => source === box),
        goes = edge.to !== null && edge.to === box;
      line.classList.toggle("from", comes);
      line.classList.toggle("to", goes && !comes);
      if (comes || goes) line.parentNode.append(line);
    }
  }

  // Fold or unfold a group; its head stays where it is on the screen.
  toggle(box, isOpen = !box.isOpen) {
    if (!box?.isGroup || box.isOpen === isOpen || box === this.tree.root) return;
    const before = this.drawn.places.get(box);
    box.isOpen = isOpen;
    forget(box);
    this.draw();
    const after = this.drawn.places.get(box);
    if (!before || !after) return;
    const middle = isOpen ? (before.width - after.width) / 2 : 0;
    this.moveBy((before.x - after.x + middle) * this.view.scale, (before.y - after.y) * this.view.scale);
  }

  // Open groups all at once.
  open(boxes, isOpen = true) {
    for (const box of boxes) {
      if (box.isGroup && box !== this.tree.root) ((box.isOpen = isOpen), forget(box));
    }
    this.draw();
  }

  reveal(id) {
    const box = this.tree.boxes.get(id);
    if (!box) return null;
    const closed = [...box.ancestors()].filter((each) => !each.isOpen && each !== this.tree.root);
    if (closed.length) this.open(closed);
    return box;
  }

  // ---- moving and scaling

  apply() {
    const { x, y, scale } = this.view;
    this.plane.setAttribute("transform", `translate(${x},${y}) scale(${scale})`);
  }

  moveBy(x, y) {
    this.view.x += x;
    this.view.y += y;
    this.apply();
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const scale = Math.min(SCALES[1], Math.max(SCALES[0], this.view.scale * factor));
    const ratio = scale / this.view.scale;
    this.view = { scale, x: x - (x - this.view.x) * ratio, y: y - (y - this.view.y) * ratio };
    this.apply();
  }

  // Everything in the window; at first at a size that can be read, from the top.
  fit(isFirst = false, most = 1.25) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const whole = Math.min((width - 32) / this.drawn.width, (height - 32) / this.drawn.height, most);
    const scale = Math.max(
      isFirst ? Math.max(whole, Math.min(0.8, most, (width - 32) / this.drawn.width)) : whole,
      SCALES[0],
    );
    const y = whole >= scale ? (height - this.drawn.height * scale) / 2 : 16;
    this.view = { scale, x: (width - this.drawn.width * scale) / 2, y };
    this.apply();
  }

  center(box) {
    const place = this.drawn.places.get(this.tree.shown(box));
    if (!place) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (this.view.scale < READABLE) this.view.scale = 0.9;
    const { scale } = this.view;
    const inner = Math.min(place.height, height / scale - 80);
    this.view.x = width / 2 - (place.x + place.width / 2) * scale;
    this.view.y = height / 2 - (place.y + inner / 2) * scale;
    this.apply();
  }

  isVisible(box) {
    const place = this.drawn.places.get(this.tree.shown(box));
    if (!place) return false;
    const { x, y, scale } = this.view;
    const left = place.x * scale + x,
      top = place.y * scale + y;
    const right = left + place.width * scale,
      bottom = top + Math.min(place.height, 60) * scale;
    return left >= 0 && top >= 0 && right <= this.canvas.clientWidth && bottom <= this.canvas.clientHeight;
  }

  listen() {
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const area = this.canvas.getBoundingClientRect();
        const isPan = !event.ctrlKey && (event.shiftKey || event.deltaX !== 0);
        for (const pane of this.app.linked(this)) {
          if (isPan) pane.moveBy(-(event.deltaX || event.deltaY), event.deltaX ? -event.deltaY : 0);
          else pane.zoom(Math.exp(-event.deltaY * 0.0016), event.clientX - area.left, event.clientY - area.top);
        }
      },
      { passive: false },
    );
    let held = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.clientX, y: event.clientY, moved: 0 };
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!held || !event.buttons) return;
      const x = event.clientX - held.x,
        y = event.clientY - held.y;
      const moved = held.moved + Math.abs(x) + Math.abs(y);
      if (moved > 4 && !this.canvas.hasPointerCapture(event.pointerId)) this.canvas.setPointerCapture(event.pointerId);
      held = { x: event.clientX, y: event.clientY, moved };
      for (const pane of this.app.linked(this)) pane.moveBy(x, y);
    });
    this.canvas.addEventListener("click", (event) => {
      const wasMoved = held && held.moved > 4;
      held = null;
      if (!wasMoved) this.clicked(event);
    });
    this.canvas.addEventListener("dblclick", (event) => {
      const id = event.target.closest("[data-box]")?.dataset.box;
      if (id !== undefined && !event.target.closest("[data-toggle]")) this.app.toggle(id);
    });
  }

  clicked(event) {
    const node = event.target.closest("[data-node]")?.dataset.node;
    if (node !== undefined) return this.app.go(node, this);
    const id = event.target.closest("[data-box]")?.dataset.box;
    if (id !== undefined && event.target.closest("[data-toggle]")) this.app.toggle(id);
    return this.app.select(id ?? null, this);
  }
}
