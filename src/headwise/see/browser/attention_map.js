// One head enlarged: queries downwards, keys across, the names beside their cells.

const SIZES = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 26, 32, 40, 48, 58, 70];
const PITCH = 13; // pixels from a name to the next: closer ones are left out
const NUMBERED = 40; // pixels of a cell that has room for its weight

class MapView {
  constructor(root, palette, told) {
    Object.assign(this, { root, palette, told, size: 8, wanted: null, pinned: null });
    const find = (selector) => root.querySelector(selector);
    [this.plane, this.above, this.left, this.cells] = [".plane", ".above", ".left", ".cells"].map(find);
    [this.canvas, this.numbers, this.cursor] = ["canvas", ".numbers", ".cursor"].map(find);
    [this.rowBand, this.columnBand] = [".band.row", ".band.column"].map(find);
    this.cells.addEventListener("pointermove", (event) => {
      const { q, k } = this.cellUnder(event);
      if (this.at?.q !== q || this.at?.k !== k) this.point({ q, k });
    });
    this.cells.addEventListener("pointerleave", () => this.point(this.pinned));
    this.cells.addEventListener("click", (event) => this.pin(this.cellUnder(event)));
    root.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** `of` is what is drawn, in words. */
  show(map, stack, of) {
    const isNew = this.stack !== stack;
    Object.assign(this, { map, stack });
    if (isNew) this.wanted = this.pinned = null;
    this.root.setAttribute("aria-label", `Weights of ${of}`);
    this.palette.draw(this.canvas, map);
    if (isNew || this.laidOut !== this.window()) this.layOut();
    else this.fillNumbers();
    this.point(this.pinned);
  }

  /** The size that there is to fill, as a text to compare. */
  window() {
    return `${this.root.offsetWidth} ${window.innerHeight}`;
  }

  /** Choose the size of a cell, then place the names; `wanted` null fits all into the window. */
  layOut() {
    const { columns, rows } = this.map;
    const left = this.room(this.stack.queries, 132);
    const above = this.room(this.stack.keys, 104);
    const across = (this.root.clientWidth - left - 2) / columns;
    const top = this.root.getBoundingClientRect().top + window.scrollY;
    const tall = Math.max(window.innerHeight - top - 12, 500); // to the lower end of the window
    this.root.style.maxHeight = `${tall}px`;
    const down = (tall - above - 4) / rows;
    const fitting = SIZES.filter((size) => size <= Math.min(across, down));
    // a long text scrolls rather than vanishes
    this.size = this.wanted ?? Math.max(fitting.at(-1) ?? 0, 2);
    const set = (name, value) => this.plane.style.setProperty(name, `${value}px`);
    set("--cell", this.size);
    set("--left", left);
    set("--above", above);
    set("--width", columns * this.size);
    set("--height", rows * this.size);
    const step = Math.ceil(PITCH / this.size);
    set("--step", step * this.size);
    set("--shift", ((step - 1) * this.size) / 2);
    this.plane.style.setProperty("--font", `${Math.max(11, Math.min(14, this.size - 2))}px`);
    for (const [place, names] of [[this.left, this.stack.queries], [this.above, this.stack.keys]]) {
      const shown = names.filter((_, i) => i % step === 0).map((name) => named(name, "span"));
      place.here = element("span", { className: "here", dir: "auto", hidden: true });
      place.replaceChildren(...shown, place.here);
    }
    this.fillNumbers();
    this.point(this.pinned);
    this.laidOut = this.window();
  }

  /** Pixels the longest of the names takes, within limits. */
  room(names, most) {
    this.ruler ??= element("canvas").getContext("2d");
    this.ruler.font = `13px ${getComputedStyle(this.root).fontFamily}`;
    const longest = Math.max(...names.map((name) => this.ruler.measureText(name.slice(0, 60)).width));
    return Math.round(Math.min(Math.max(longest + 14, 30), most, this.root.clientWidth * 0.3));
  }

  /** Weights as numbers in cells that have room for them. */
  fillNumbers() {
    const { rows, columns } = this.map;
    const cells = this.size >= NUMBERED ? [...Array(rows * columns).keys()] : [];
    const mosts = cells.length ? Array.from({ length: rows }, (_, q) => this.map.most(q)) : [];
    this.numbers.replaceChildren(
      ...cells.map((cell) => {
        const [q, k] = [Math.floor(cell / columns), cell % columns];
        if (this.map.isMasked(q, k)) return element("span");
        const weight = this.map.weight(q, k);
        const isOnDark = this.palette.isDark(this.palette.level(weight, mosts[q]));
        const text = weight === 0 ? "0" : Number.isNaN(weight) ? "NaN" : weight.toFixed(2);
        return element("span", { className: isOnDark ? "on-dark" : "on-light" }, text);
      }),
    );
  }

  zoom(step) {
    const here = SIZES.indexOf(this.size);
    this.wanted = step === 0 ? null : SIZES[Math.max(0, Math.min(SIZES.length - 1, here + step))];
    this.layOut();
    if (this.pinned) this.reveal(this.pinned);
  }

  cellUnder(event) {
    const box = this.canvas.getBoundingClientRect();
    const within = (share, length) => Math.max(0, Math.min(length - 1, Math.floor(share * length)));
    return {
      q: within((event.clientY - box.top) / box.height, this.map.rows),
      k: within((event.clientX - box.left) / box.width, this.map.columns),
    };
  }

  /** Show where a cell is; null shows none. */
  point(cell) {
    this.at = cell;
    const marks = [this.cursor, this.rowBand, this.columnBand, this.left.here, this.above.here];
    for (const mark of marks) mark.hidden = cell === null;
    if (cell !== null) {
      const [x, y] = [cell.k * this.size, cell.q * this.size];
      this.rowBand.style.top = this.cursor.style.top = this.left.here.style.top = `${y}px`;
      this.columnBand.style.left = this.cursor.style.left = this.above.here.style.left = `${x}px`;
      this.left.here.textContent = this.stack.queries[cell.q];
      this.above.here.textContent = this.stack.keys[cell.k];
    }
    this.told(cell, false);
  }

  /** Keep a cell: the pointer may leave, and other heads show the same one. */
  pin(cell) {
    this.pinned = cell;
    this.point(cell);
    this.reveal(cell);
    this.told(cell, true);
  }

  /** Scroll the map alone, past the names that stay in place. */
  reveal({ q, k }) {
    const { root, size } = this;
    const [left, above] = [this.left.offsetWidth, this.above.offsetHeight];
    const within = (at, length, room) => Math.min(at * size, Math.max(length, (at + 1) * size - room));
    root.scrollLeft = within(k, root.scrollLeft, root.clientWidth - left);
    root.scrollTop = within(q, root.scrollTop, root.clientHeight - above);
  }

  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const far = event.shiftKey ? 10 : 1;
    const steps = {
      ArrowUp: [-far, 0], ArrowDown: [far, 0], ArrowLeft: [0, -far], ArrowRight: [0, far],
      PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -Infinity], End: [0, Infinity],
    };
    const zooms = { "+": 1, "=": 1, "-": -1, 0: 0 };
    if (Object.hasOwn(zooms, event.key)) this.zoom(zooms[event.key]);
    else if (Object.hasOwn(steps, event.key)) {
      const clamp = (value, length) => Math.max(0, Math.min(length - 1, value));
      const [down, across] = this.pinned === null ? [0, 0] : steps[event.key];
      const { q, k } = this.pinned ?? { q: 0, k: 0 };
      this.pin({ q: clamp(q + down, this.map.rows), k: clamp(k + across, this.map.columns) });
    } else return;
    event.preventDefault();
  }
}
