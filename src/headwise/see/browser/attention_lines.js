// The queries on the left, the keys on the right, a line for each weight: the heavier, the wider and darker.

const MOST_LINES = 20; // of one word: the others are lighter
const MOST_WORDS = 60; // on a side, up to which the lines of all words are drawn at once

class LinesView {
  constructor(root, palette, told) {
    Object.assign(this, { root, palette, told, pinned: null });
    const find = (selector) => root.querySelector(selector);
    [this.caption, this.left, this.svg, this.right] = ["p", ".queries", "svg", ".keys"].map(find);
    for (const side of [this.left, this.right]) {
      const wordAt = (event) => event.target.closest(".word");
      side.addEventListener("pointerover", (event) => wordAt(event) && this.point(wordAt(event)));
      side.addEventListener("pointerleave", () => this.point(this.pinned));
      side.addEventListener("click", (event) => wordAt(event) && this.pin(wordAt(event)));
      side.addEventListener("focusin", (event) => wordAt(event) && this.point(wordAt(event), true));
      side.addEventListener("focusout", () => this.point(this.pinned));
    }
    rove(root, () => {
      const sides = [this.left, this.right].map((side) => [...side.children]);
      const length = Math.max(...sides.map((side) => side.length)); // the shorter repeats its last word
      return Array.from({ length }, (_, i) => sides.map((side) => side[i] ?? side.at(-1)));
    });
    root.addEventListener("keydown", (event) => {
      const word = event.target.closest(".word");
      if (word && (event.key === "Enter" || event.key === " ")) {
        event.preventDefault();
        this.pin(word);
      }
    });
  }

  show(map, stack) {
    this.map = map;
    if (this.stack !== stack) {
      this.stack = stack;
      this.pinned = null;
      const words = (names, isQuery) =>
        names.map((name, i) => {
          const role = isQuery ? `looks: token ${i + 1}` : `looked at: token ${i + 1}`;
          const word = element("div", { className: "word", role: "button", tabIndex: -1, "aria-label": `${name}, ${role}` }, named(name));
          return Object.assign(word, { index: i, isQuery });
        });
      this.left.replaceChildren(...words(stack.queries, true));
      this.right.replaceChildren(...words(stack.keys, false));
      this.left.firstChild.tabIndex = 0;
    }
    const isLong = Math.max(map.rows, map.columns) > MOST_WORDS;
    this.root.classList.toggle("long", isLong);
    this.caption.textContent = isLong
      ? `Point at a word to see its ${MOST_LINES} heaviest lines; a click keeps them.`
      : `The ${MOST_LINES} heaviest lines of each query; point at a word to see its own alone, a click keeps them.`;
    this.isLong = isLong;
    this.point(this.pinned);
  }

  /** Show the lines of one word, or of all where it is null. */
  point(word, isAloud = false) {
    for (const other of this.root.querySelectorAll(".word.at")) other.classList.remove("at");
    word?.classList.add("at");
    this.draw(word === null ? this.all() : this.of(word));
    if (word === null) this.told(null, false);
    else if (word.isQuery) this.told({ q: word.index, k: this.map.keysOf(word.index)[0] ?? 0 }, isAloud);
    else this.told({ q: this.map.queriesOf(word.index)[0] ?? 0, k: word.index }, isAloud);
  }

  pin(word) {
    this.pinned = this.pinned === word ? null : word;
    for (const side of [this.left, this.right])
      for (const other of side.children) other.setAttribute("aria-pressed", other === this.pinned);
    this.point(this.pinned);
  }

  of({ index, isQuery }) {
    if (isQuery) return this.map.keysOf(index).slice(0, MOST_LINES).map((k) => [index, k]);
    return this.map.queriesOf(index).slice(0, MOST_LINES).map((q) => [q, index]);
  }

  all() {
    if (this.isLong) return [];
    return [...Array(this.map.rows).keys()].flatMap((q) => this.of({ index: q, isQuery: true }));
  }

  draw(pairs) {
    const box = this.svg.getBoundingClientRect();
    const pitch = (side) => side.firstChild.getBoundingClientRect().height;
    const [left, right, width] = [pitch(this.left), pitch(this.right), box.width || 200];
    this.svg.setAttribute("height", Math.max(left * this.map.rows, right * this.map.columns));
    const mosts = new Map();
    const most = (q) => mosts.get(q) ?? mosts.set(q, this.map.most(q)).get(q);
    const lines = pairs.map(([q, k]) => {
      const shade = this.palette.shade(this.map.weight(q, k), most(q));
      const [from, to] = [(q + 0.5) * left, (k + 0.5) * right];
      const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
      line.setAttribute("d", `M0,${from} C${width / 2},${from} ${width / 2},${to} ${width},${to}`);
      line.setAttribute("stroke-width", (0.4 + 7 * shade).toFixed(2));
      line.setAttribute("stroke-opacity", (0.1 + 0.8 * shade).toFixed(3));
      line.dataset.pair = `${q}/${k}`;
      return line;
    });
    this.svg.replaceChildren(...lines.reverse()); // the heaviest on top
  }
}
