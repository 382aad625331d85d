// The generated code: a click on a line selects its node.

const WORDS = new Set(
  (
    "False None True and as assert break class continue def del elif else except finally for from if " +
    "import in is lambda not or pass raise return self try while with yield"
  ).split(" "),
);

// Pieces of a line of Python, colored.
function colored(text) {
  const pieces = text.match(/#.*|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|\d[\w.]*|\s+|./g) ?? [];
  return pieces.map((piece) => {
    const kind =
      piece[0] === "#"
        ? "comment"
        : /^['"]/.test(piece)
          ? "text"
          : WORDS.has(piece)
            ? "word"
            : /^\d/.test(piece)
              ? "number"
              : "";
    return kind ? html("span", { class: `py-${kind}` }, piece) : piece;
  });
}

class Code {
  constructor(app, element) {
    Object.assign(this, { app, element, version: null });
  }

  show() {
    const { version } = this.app.pane;
    if (this.version !== version) this.write(version);
    for (const line of this.element.querySelectorAll(".current")) line.classList.remove("current");
    const number = version.lines.get(this.app.selected);
    const line = number === undefined ? null : this.element.querySelector(`[data-line="${number}"]`);
    line?.classList.add("current");
    line?.scrollIntoView({ block: "center" });
  }

  write(version) {
    this.version = version;
    const nodes = new Map([...version.lines].reverse().map(([id, line]) => [line, id]));
    if (!version.code) {
      this.element.replaceChildren(
        html("p", {}, "The code is kept for the program as it was given, not for each step."),
      );
      return;
    }
    const lines = version.code.replace(/\s+$/, "").split("\n");
    const begin = lines.findIndex((line) => line.trim());
    this.element.replaceChildren(
      html(
        "pre",
        {},
        ...lines.map((text, i) => {
          if (i < begin) return "";
          const id = nodes.get(i + 1);
          const line = html("span", { class: id ? "line known" : "line", "data-line": i + 1 }, ...colored(text), "\n");
          if (id) line.addEventListener("click", () => this.app.go(id));
          return line;
        }),
      ),
    );
  }
}
