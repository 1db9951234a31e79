// All heads of a stack as small maps: a row a layer, a column a head, then their mean and the rollout.

const STATES = {
  uniform: "uniform: every key alike",
  "one-hot": "one-hot: each query one key",
  dead: "dead: all queries the same key, or none",
};

/** Arrow keys move the focus among elements that lie in rows; only one of them is in the tab order. */
function rove(container, rowsOf) {
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -Infinity], End: [0, Infinity] };
  const clamp = (value, length) => Math.max(0, Math.min(length - 1, value));
  container.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    const rows = rowsOf();
    const row = rows.findIndex((items) => items.includes(event.target));
    if (!step || row < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const items = rows[clamp(row + step[0], rows.length)];
    // into a row that is shorter: its end that is nearest
    const item = items[clamp(rows[row].indexOf(event.target) + step[1], items.length)];
    event.target.tabIndex = -1;
    item.tabIndex = 0;
    item.focus();
  });
}

class Grid {
  constructor(root, palette, marks, open) {
    Object.assign(this, { root, palette, marks, open, rows: [] });
    rove(root, () => this.rows);
    const chosen = (event) => event.target.closest("[role=gridcell]");
    root.addEventListener("click", (event) => chosen(event) && this.openCell(chosen(event)));
    root.addEventListener("keydown", (event) => {
      if (!chosen(event) || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      this.openCell(chosen(event));
    });
  }

  openCell(cell) {
    this.open(cell.layer, cell.head);
  }

  show(stack) {
    this.stack = stack;
    const most = Math.max(...stack.layers.map((layer) => layer.heads.length));
    const columns = most + 1 + stack.hasRollout;
    this.side = this.fittingSide(columns);
    this.columns = columns;
    this.root.style.setProperty("--side", `${this.side}px`);
    this.root.style.setProperty("--columns", columns);
    const titles = [...Array(most).keys()].map((head) => String(head + 1));
    titles.push("mean", ...(stack.hasRollout ? ["rollout"] : []));
    const header = element("div", { role: "row" }, element("span", { role: "columnheader", className: "corner" }, "layer"));
    header.append(...titles.map((title) => element("span", { role: "columnheader" }, title)));
    header.children[most + 1].className = "mean";
    this.rows = stack.layers.map((layer, l) => {
      const heads = layer.heads.map((head, h) => this.cell(l, h, head));
      // layers may have fewer heads than others: their mean stays in its column
      heads.push(this.cell(l, "mean"), ...(stack.hasRollout ? [this.cell(l, "rollout")] : []));
      heads[layer.heads.length].style.gridColumn = most + 2;
      return heads;
    });
    const lines = this.rows.map((cells, l) => {
      const title = stack.layers[l].name;
      return element("div", { role: "row" }, element("span", { role: "rowheader", title }, String(l + 1)), ...cells);
    });
    if (stack.layers.length > 1) {
      const all = this.cell("all", "mean");
      all.style.gridColumn = most + 2;
      this.rows.push([all]);
      lines.push(element("div", { role: "row" }, element("span", { role: "rowheader" }, "all"), all));
    }
    this.root.replaceChildren(header, ...lines);
    this.redraw();
  }

  fittingSide(columns) {
    const wide = document.documentElement.clientWidth;
    const room = Math.min(620, wide < 960 ? wide - 50 : wide * 0.44) - 30; // a narrow window has one column
    return Math.max(30, Math.min(76, Math.floor((room - 10) / columns) - 5));
  }

  /** The window has another size. */
  resize({ layer, head }) {
    if (this.fittingSide(this.columns) === this.side) return;
    const hadFocus = this.root.contains(document.activeElement);
    this.show(this.stack);
    this.mark(layer, head);
    if (hadFocus) this.focus();
  }

  cell(layer, head, facts = null) {
    const title = titleOf(layer, head);
    const told = facts === null ? title : `${title}: ${factsOf(facts)}`;
    const cell = element("div", { role: "gridcell", tabIndex: -1, title: told, "aria-label": told });
    Object.assign(cell, { layer, head });
    if (head === "mean") cell.className = "mean"; // set apart from the heads
    const caption = element("span", { className: "caption" });
    if (facts !== null) {
      caption.append(facts.entropy === null ? "NaN" : facts.entropy.toFixed(this.side < 36 ? 1 : 2));
      if (facts.state) caption.append(element("b", { className: "state" }, this.marks[facts.state]));
      if (facts.state) cell.dataset.state = facts.state;
    }
    cell.append(element("canvas"), caption);
    return cell;
  }

  /** Draw in slices of time: many long maps must not hold up the reader's hand. */
  redraw() {
    const drawing = (this.drawing = Symbol("the latest"));
    const cells = this.rows.flat();
    const side = Math.round(this.side * Math.min(window.devicePixelRatio, 2));
    const slice = () => {
      if (this.drawing !== drawing) return; // another stack, theme or scale since
      const start = performance.now();
      while (cells.length && performance.now() - start < 12) {
        const cell = cells.shift();
        const map = this.stack.map(cell.layer, cell.head);
        this.palette.draw(cell.firstChild, map, Math.min(side, map.columns), Math.min(side, map.rows));
        cell.firstChild.classList.toggle("coarse", Math.max(map.columns, map.rows) < side);
      }
      if (cells.length) requestAnimationFrame(slice);
      else this.root.dataset.drawn = "true";
    };
    delete this.root.dataset.drawn;
    slice();
  }

  mark(layer, head) {
    for (const cell of this.rows.flat()) {
      const isShown = cell.layer === layer && cell.head === head;
      cell.setAttribute("aria-selected", isShown);
      cell.tabIndex = isShown ? 0 : -1;
    }
  }

  focus() {
    this.rows.flat().find((cell) => cell.tabIndex === 0)?.focus();
  }
}

function titleOf(layer, head) {
  if (layer === "all") return "mean of all layers";
  if (head === "rollout") return `rollout up to layer ${layer + 1}`;
  return `layer ${layer + 1}, ${head === "mean" ? "mean of the heads" : `head ${head + 1}`}`;
}

/** Rounded down, as a head is called uniform from 99 % on; the little is for 0.57 * 100. */
function percent(share) {
  return Math.floor(100 * share + 1e-6);
}

function factsOf({ entropy, share, state, note }) {
  if (entropy === null) return note;
  const spread = `entropy ${entropy.toFixed(2)} nats, ${percent(share)} % of the most possible`;
  return [spread, state, note].filter(Boolean).join("; ");
}
