"use strict";
// What the page was given: names as text, weights as codes of rounded numbers (weight_codes.py).

/** A new element. Children that are strings become text nodes: a token with markup in it stays text. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** A token's name; its direction is its own, whatever stands beside it. */
function named(name, tag = "bdi") {
  return element(tag, { className: "name", dir: "auto", title: name }, name);
}

/** The bytes of a text made by weight_codes.pack. */
async function unpack(text) {
  const packed = atob(text);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The attentions of one kind over the same tokens; its weights are unpacked when it is first opened. */
class Stack {
  constructor(told, numbers) {
    Object.assign(this, told); // title, slug, axes, keys, queries, layers, hasRollout; high, low, masks, maskOf
    this.numbers = numbers;
    this.places = new Map(); // "layer/head" -> which of the maps
    this.layers.forEach((layer, l) => {
      const heads = [...layer.heads.keys(), "mean", ...(this.hasRollout ? ["rollout"] : [])];
      for (const head of heads) this.places.set(`${l}/${head}`, this.places.size);
    });
    this.places.set("all/mean", this.places.size);
  }

  async open() {
    this.opening ??= this.unpackAll();
    await this.opening;
  }

  async unpackAll() {
    const cells = this.queries.length * this.keys.length;
    const [high, low, ...masks] = await Promise.all(
      [this.high, this.low, ...this.masks].map((text) => (text ? unpack(text) : null)),
    );
    this.codes = Uint16Array.from(high);
    if (low) {
      for (let i = 0; i < high.length; i++) {
        const nibble = i % 2 ? low[i >> 1] & 15 : low[i >> 1] >> 4;
        this.codes[i] = (high[i] << 4) | nibble;
      }
    }
    this.keeps = masks.map((bits) => {
      const keep = new Uint8Array(cells);
      for (let i = 0; i < cells; i++) keep[i] = (bits[i >> 3] >> (7 - (i & 7))) & 1;
      return keep;
    });
    this.high = this.low = this.masks = null; // the texts are not needed again
  }

  has(layer, head) {
    return this.places.has(`${layer}/${head}`);
  }

  map(layer, head) {
    const place = this.places.get(`${layer}/${head}`);
    const cells = this.queries.length * this.keys.length;
    const codes = this.codes.subarray(place * cells, (place + 1) * cells);
    return new WeightMap(this, codes, this.keeps[this.maskOf[place]] ?? null);
  }
}

/** The weights of one head, [queries, keys]. */
class WeightMap {
  constructor(stack, codes, keep) {
    Object.assign(this, { codes, keep, numbers: stack.numbers });
    this.rows = stack.queries.length;
    this.columns = stack.keys.length;
  }

  isMasked(q, k) {
    return this.keep !== null && !this.keep[q * this.columns + k];
  }

  weight(q, k) {
    return this.numbers.values[this.codes[q * this.columns + k]];
  }

  /** As it was rounded when the page was written. */
  text(q, k) {
    return this.numbers.labels[this.codes[q * this.columns + k]];
  }

  /** The largest weight of a query among those it may look at. */
  most(q) {
    let most = 0;
    for (let k = 0; k < this.columns; k++) if (!this.isMasked(q, k)) most = Math.max(most, this.weight(q, k) || 0);
    return most;
  }

  /** The keys a query looks at, the heaviest first. */
  keysOf(q) {
    const keys = [...Array(this.columns).keys()].filter((k) => !this.isMasked(q, k) && this.weight(q, k) > 0);
    return keys.sort((a, b) => this.weight(q, b) - this.weight(q, a));
  }

  /** The queries that look at a key, the heaviest first. */
  queriesOf(k) {
    const queries = [...Array(this.rows).keys()].filter((q) => !this.isMasked(q, k) && this.weight(q, k) > 0);
    return queries.sort((a, b) => this.weight(b, k) - this.weight(a, k));
  }

  /** 1 for the heaviest key of a query, and how many keys it may look at. */
  rank(q, k) {
    let [rank, among] = [1, 0];
    for (let other = 0; other < this.columns; other++) {
      if (this.isMasked(q, other)) continue;
      among += 1;
      if (this.weight(q, other) > this.weight(q, k)) rank += 1;
    }
    return [rank, among];
  }
}

/** labels -> the numbers they stand for; the second is above 0, the last none. */
function numbersOf(labels) {
  const values = Float64Array.from(labels, Number);
  values[1] = values[2] / 10;
  return { labels, values };
}
