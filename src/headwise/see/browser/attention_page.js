// The page as a whole: what is shown, the controls, what is said of a cell, the address.

const TOP = 5; // keys named beneath a cell
const SMALL = 40; // keys up to which equal weights are seen without a stretched scale
const get = (name) => document.getElementById(`hw-${name}`);

class Page {
  constructor(told) {
    this.numbers = numbersOf(told.labels);
    this.precision = told.precision;
    this.marks = told.marks; // of collapsed heads
    this.stacks = told.stacks.map((stack) => new Stack(stack, this.numbers));
    this.palette = new Palette(this.numbers);
    this.grid = new Grid(get("grid"), this.palette, this.marks, (layer, head) => this.go({ layer, head }));
    const tell = (cell, isAloud) => this.tell(cell, isAloud);
    this.views = { map: new MapView(get("map"), this.palette, tell), lines: new LinesView(get("lines"), this.palette, tell) };
    this.at = { stack: this.stacks[0], layer: 0, head: 0, view: "map" };
    this.makeTabs();
    this.connect();
  }

  makeTabs() {
    const tabs = this.stacks.map((stack) => {
      const tab = element("button", { type: "button", role: "tab", "aria-controls": "hw-panel" }, stack.title);
      tab.onclick = () => this.go({ stack });
      return tab;
    });
    get("tabs").replaceChildren(...tabs);
    get("tabs").hidden = tabs.length < 2;
    rove(get("tabs"), () => [tabs]);
    get("tabs").addEventListener("focusin", (event) => event.target.click());
  }

  connect() {
    get("scale").onchange = () => {
      this.isScaleChosen = true;
      this.recolour(get("scale").value);
    };
    get("as-map").onclick = () => this.go({ view: "map" });
    get("as-lines").onclick = () => this.go({ view: "lines" });
    get("smaller").onclick = () => this.views.map.zoom(-1);
    get("fit").onclick = () => this.views.map.zoom(0);
    get("larger").onclick = () => this.views.map.zoom(1);
    get("table").ontoggle = () => this.fillTable();
    window.addEventListener("hashchange", () => this.go(this.read(location.hash)));
    window.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && get("panel").contains(event.target)) this.grid.focus();
    });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.palette.readTheme();
      this.recolour(this.palette.scale);
    });
    let width = 0;
    new ResizeObserver(([entry]) => {
      if (entry.contentRect.width === width) return;
      width = entry.contentRect.width;
      this.resize();
    }).observe(document.querySelector(".hw-attention .head"));
    window.addEventListener("resize", () => this.resize());
  }

  /** Lay out again: the window, or the part of it that the head has, is of another size. */
  resize() {
    if (!this.map) return;
    this.grid.resize(this.at);
    if (this.at.view === "map") this.views.map.layOut();
    else this.views.lines.show(this.map, this.at.stack);
  }

  /** Show another stack, head or view; what the stack does not have gives way to its first head. */
  async go(change) {
    const at = { ...this.at, ...change };
    this.at = at;
    delete document.body.dataset.ready;
    await at.stack.open();
    if (this.at !== at) return; // something else was asked for meanwhile
    if (!at.stack.has(at.layer, at.head)) Object.assign(at, { layer: 0, head: 0 });
    if (this.shown !== at.stack) this.showStack(at.stack);
    this.map = at.stack.map(at.layer, at.head);
    this.grid.mark(at.layer, at.head);
    this.showHead();
    this.fillTable();
    try {
      history.replaceState(null, "", this.address());
    } catch {
      // a frame without an address of its own
    }
    document.body.dataset.ready = "true"; // for whoever waits for it: this is what was asked for last
  }

  showStack(stack) {
    this.shown = stack;
    const tabs = [...get("tabs").children];
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", this.stacks[i] === stack);
      tab.tabIndex = this.stacks[i] === stack ? 0 : -1;
    });
    if (!this.isScaleChosen) this.setScale(stack.keys.length > SMALL ? "root" : "linear");
    this.grid.show(stack);
    get("precision").textContent = `Weights are ${this.precision}. Hatched cells are masked: the query may not look there.`;
    const longest = [stack.queries, stack.keys].map((names) => Math.max(...names.map((name) => name.length)));
    get("readout").classList.toggle("tall", longest[0] + longest[1] > 30); // so that the map never moves
    this.listStates(stack);
  }

  /** How many heads have collapsed, and which. */
  listStates(stack) {
    const all = stack.layers.flatMap((layer, l) => layer.heads.map((facts, h) => ({ l, h, facts })));
    const collapsed = all.filter(({ facts }) => facts.state);
    const counts = Object.entries(STATES).map(([state, meaning]) => {
      const count = collapsed.filter(({ facts }) => facts.state === state).length;
      return element("span", {}, element("b", { className: "state" }, this.marks[state]), ` ${meaning} (${count})`);
    });
    get("states").replaceChildren("entropy in nats beneath", ...counts);
    get("collapsed").hidden = !collapsed.length;
    const [summary, list] = get("collapsed").children;
    summary.textContent = `${collapsed.length} of ${all.length} heads ${collapsed.length === 1 ? "has" : "have"} collapsed`;
    list.replaceChildren(
      ...collapsed.map(({ l, h, facts }) => {
        const link = element("button", { type: "button", className: "link" }, titleOf(l, h));
        link.onclick = () => this.go({ layer: l, head: h });
        return element("li", {}, link, `: ${facts.state}, ${facts.note}`);
      }),
    );
  }

  showHead() {
    const { stack, layer, head, view } = this.at;
    const title = titleOf(layer, head);
    get("title").textContent = `${stack.title}, ${title}`;
    const facts = get("facts");
    facts.replaceChildren();
    const { name = "", place = "", code = "", heads = [] } = stack.layers[layer] ?? {};
    if (heads[head]) {
      if (heads[head].state) facts.append(element("b", { className: "state" }, this.marks[heads[head].state]), " ");
      facts.append(factsOf(heads[head]));
    } else facts.append(head === "rollout" ? "what reaches each token through the layers so far: 0.5 mean + 0.5 residual, multiplied" : "the average of their weights");
    get("source").replaceChildren(...[name, place, code].filter(Boolean).map((text) => element("code", {}, text)));
    for (const name of ["map", "lines"]) {
      get(name).hidden = view !== name;
      get(`as-${name}`).setAttribute("aria-pressed", view === name);
    }
    get("zoom").hidden = view !== "map";
    const [down, across] = view === "map" ? ["down", "across"] : ["left", "right"];
    const sizes = [stack.queries.length, stack.keys.length];
    get("axes").textContent = `${down}: ${stack.axes[1]} (${sizes[0]}); ${across}: ${stack.axes[0]} (${sizes[1]})`;
    this.views[view].show(this.map, stack, `${stack.title}, ${title}`);
  }

  recolour(scale) {
    this.setScale(scale);
    this.grid.redraw();
    this.showHead();
  }

  setScale(scale) {
    this.palette.scale = scale;
    get("scale").value = scale;
    get("most").textContent = scale === "row" ? "largest" : "1";
    this.palette.drawLegend(get("ramp"));
  }

  /** Say what a cell holds; aloud where the keyboard led there. */
  tell(cell, isAloud) {
    const [line, list] = get("readout").children;
    if (cell === null) {
      line.replaceChildren("Point at a cell or a word to read its weight; a click keeps it.");
      list.replaceChildren();
      return;
    }
    const { q, k } = cell;
    const { keys, queries } = this.at.stack;
    line.replaceChildren(named(queries[q]), ` (${q + 1}) ${this.verb()} `, named(keys[k]), ` (${k + 1}): `, ...this.weightOf(q, k));
    if (isAloud) get("spoken").textContent = line.textContent;
    const top = this.map.keysOf(q).slice(0, TOP);
    list.replaceChildren(...(top.length ? [element("li", {}, "its largest:")] : []), ...top.map((key) => element("li", {}, named(keys[key]), ` ${this.map.text(q, key)}`)));
  }

  /** What a number of this map says of a query and a key. */
  verb() {
    const { layer, head } = this.at;
    if (head === "rollout") return "comes from";
    return head === "mean" ? `looks, in the mean of ${layer === "all" ? "all layers" : "the heads"}, at` : "looks at";
  }

  weightOf(q, k) {
    const [text, weight] = [this.map.text(q, k), this.map.weight(q, k)];
    if (this.map.isMasked(q, k)) {
      const yet = weight === 0 ? "" : `, yet its weight is ${text}`;
      if (this.at.head === "rollout") return [element("b", {}, "masked"), ": nothing can come from there"];
      return [element("b", {}, "masked"), `: may not look there${yet}`];
    }
    if (Number.isNaN(weight)) return [element("b", {}, text)];
    const [rank, among] = this.map.rank(q, k);
    return [element("b", {}, text), ` rank ${rank} of ${among}`];
  }

  /** For readers who see no map; made when it is opened. */
  fillTable() {
    const place = get("table").lastElementChild;
    place.replaceChildren();
    if (!get("table").open || !this.map) return;
    const { keys, queries } = this.at.stack;
    const body = element("tbody");
    queries.forEach((name, q) => {
      const cells = this.map.keysOf(q).slice(0, 3).map((k) => element("td", {}, named(keys[k]), ` (${k + 1}) ${this.map.text(q, k)}`));
      body.append(element("tr", {}, element("th", { scope: "row" }, named(name), ` (${q + 1})`), ...cells));
    });
    const titles = ["Query", "First", "Second", "Third"].map((title) => element("th", { scope: "col" }, title));
    place.append(element("table", {}, element("thead", {}, element("tr", {}, ...titles)), body));
  }

  /** #decoder/3/5/lines: stack, layer, head, view; counted from 1 as on the page. */
  address() {
    const { stack, layer, head, view } = this.at;
    const count = (value) => (typeof value === "number" ? value + 1 : value);
    return `#${[stack.slug, count(layer), count(head), view].join("/")}`;
  }

  read(hash) {
    const [slug, layer, head, view] = hash.slice(1).split("/");
    const stack = this.stacks.find((stack) => stack.slug === slug);
    if (!stack) return {};
    const index = (text) => (/^\d+$/.test(text) ? Number(text) - 1 : text);
    return { stack, layer: index(layer), head: index(head), view: Object.hasOwn(this.views, view) ? view : "map" };
  }
}

async function start() {
  if (typeof DecompressionStream === "undefined") throw new Error("it is too old: update it, or take another");
  get("desk").hidden = false;
  const page = new Page(JSON.parse(get("data").textContent));
  await page.go(page.read(location.hash));
}

start().catch((error) => {
  get("failure").textContent = `This browser cannot draw the maps: ${error.message}`;
  get("failure").hidden = false;
  throw error;
});
