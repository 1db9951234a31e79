// Weights to colours: from the paper's colour for 0 to the darkest (in a dark theme the brightest) for 1.
// A masked cell stays transparent: the hatching beneath the canvas shows, which no weight looks like.

const LEVELS = 256;

class Palette {
  constructor(numbers) {
    this.numbers = numbers;
    this.scale = "linear";
    this.readTheme();
  }

  /** The colours of the style sheet, which follow the reader's theme. */
  readTheme() {
    const style = getComputedStyle(document.querySelector(".hw-attention"));
    const colour = (name) => {
      const hex = style.getPropertyValue(name).trim();
      return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    };
    const [none, some, all] = ["--none", "--some", "--all"].map(colour);
    this.ramp = Array.from({ length: LEVELS }, (_, level) => {
      const t = (2 * level) / (LEVELS - 1);
      const [from, to, share] = t < 1 ? [none, some, t] : [some, all, t - 1];
      return from.map((value, i) => Math.round(value + (to[i] - value) * share));
    });
    this.ramp.push(colour("--odd")); // the level of what is no weight
  }

  /** How far along the ramp a weight is, 0 to 1. */
  shade(weight, most) {
    if (Number.isNaN(weight)) return NaN;
    if (this.scale === "row") return most > 0 ? Math.min(weight / most, 1) : 0;
    return this.scale === "root" ? Math.sqrt(weight) : weight;
  }

  level(weight, most) {
    const shade = this.shade(weight, most);
    return Number.isNaN(shade) ? LEVELS : Math.round(shade * (LEVELS - 1));
  }

  /** Whether white is read better than black on a level. */
  isDark(level) {
    const [r, g, b] = this.ramp[level].map((value) => (value / 255) ** 2.2);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.18;
  }

  /** One pixel a cell; on a smaller canvas each pixel is the heaviest cell beneath it, so that none is lost. */
  draw(canvas, map, width = map.columns, height = map.rows) {
    canvas.width = width;
    canvas.height = height;
    const levels = this.levels(map, width, height);
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const ramp = this.ramp.map(([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r); // low byte first
    for (let i = 0; i < levels.length; i++) if (levels[i] >= 0) pixels[i] = ramp[levels[i]];
    context.putImageData(image, 0, 0);
  }

  /** The level of each pixel, -1 where all beneath it is masked. */
  levels(map, width, height) {
    const levels = new Int16Array(width * height).fill(-1);
    const { codes, keep, columns, rows } = map;
    const column = Int32Array.from({ length: columns }, (_, k) => Math.floor((k * width) / columns));
    const ofCode = this.scale === "row" ? null : Int16Array.from(this.numbers.values, (value) => this.level(value, 1));
    for (let q = 0; q < rows; q++) {
      const start = Math.floor((q * height) / rows) * width;
      const most = ofCode ? 1 : map.most(q);
      for (let k = 0; k < columns; k++) {
        const cell = q * columns + k;
        if (keep !== null && !keep[cell]) continue;
        const level = ofCode ? ofCode[codes[cell]] : this.level(this.numbers.values[codes[cell]], most);
        const pixel = start + column[k];
        if (level > levels[pixel]) levels[pixel] = level;
      }
    }
    return levels;
  }

  /** The ramp itself, from weight 0 to the largest. */
  drawLegend(canvas) {
    const context = canvas.getContext("2d");
    const image = context.createImageData(LEVELS, 1);
    for (let x = 0; x < LEVELS; x++) {
      image.data.set([...this.ramp[this.level(x / (LEVELS - 1), 1)], 255], 4 * x);
    }
    context.putImageData(image, 0, 0);
  }
}
