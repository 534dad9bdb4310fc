// The drawing as a picture: SVG by a context that writes what the painter draws, or PNG.

const PICTURE_MARGIN = 40;
const LARGEST_SIDE = 16000; // pixels that browsers give a canvas
const LARGEST_AREA = 120e6;

/** Takes the painter's strokes and texts like a canvas, and keeps them as elements of an SVG. */
class SvgContext {
  constructor() {
    this.parts = [];
    this.path = "";
    this.offset = [0, 0, 1, 1];
    this.saved = [];
    this.dash = [];
    Object.assign(this, { globalAlpha: 1, lineWidth: 1, textAlign: "left", font: "", fillStyle: "", strokeStyle: "" });
  }

  setTransform() {}
  setLineDash(dash) {
    this.dash = dash;
  }
  save() {
    this.saved.push([...this.offset]);
  }
  restore() {
    this.offset = this.saved.pop();
  }
  translate(x, y) {
    const [dx, dy, sx, sy] = this.offset;
    this.offset = [dx + x * sx, dy + y * sy, sx, sy];
  }
  scale(x, y) {
    this.offset[2] *= x;
    this.offset[3] *= y;
  }
  beginPath() {
    this.path = "";
  }
  moveTo(x, y) {
    this.path += `M${round(x)} ${round(y)}`;
  }
  lineTo(x, y) {
    this.path += `L${round(x)} ${round(y)}`;
  }
  bezierCurveTo(a, b, c, d, x, y) {
    this.path += `C${[a, b, c, d, x, y].map(round).join(" ")}`;
  }
  closePath() {
    this.path += "Z";
  }
  rect(x, y, w, h) {
    this.path += `M${round(x)} ${round(y)}h${round(w)}v${round(h)}h${round(-w)}Z`;
  }
  roundRect(x, y, w, h, radius) {
    const r = Math.min(radius, w / 2, h / 2);
    const arc = (dx, dy) => `a${round(r)} ${round(r)} 0 0 1 ${round(dx)} ${round(dy)}`;
    this.path += `M${round(x + r)} ${round(y)}h${round(w - 2 * r)}${arc(r, r)}v${round(h - 2 * r)}${arc(-r, r)}`;
    this.path += `h${round(2 * r - w)}${arc(-r, -r)}v${round(2 * r - h)}${arc(r, -r)}Z`;
  }
  arc(x, y, r) {
    this.path += `M${round(x - r)} ${round(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
  }
  fillRect(x, y, w, h) {
    this.beginPath();
    this.rect(x, y, w, h);
    this.fill();
  }
  fill() {
    this.add("path", { d: this.path, fill: this.fillStyle });
  }
  stroke() {
    const dash = this.dash.length ? { "stroke-dasharray": this.dash.join(" ") } : {};
    this.add("path", { d: this.path, fill: "none", stroke: this.strokeStyle, "stroke-width": round(this.lineWidth), ...dash });
  }
  fillText(text, x, y) {
    const [dx, dy, sx, sy] = this.offset;
    const [, weight, size] = this.font.match(/^(\d+) ([\d.]+)px/);
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign];
    const base = this.textBaseline === "middle" ? 0.35 * size * sy : 0;
    const places = { x: round(dx + x * sx), y: round(dy + y * sy + base), "font-size": round(size * sx), "font-weight": weight };
    this.add("text", { ...places, "text-anchor": anchor, fill: this.fillStyle }, text);
  }
  add(tag, attributes, text) {
    if (attributes.d === "") return;
    const alpha = this.globalAlpha < 1 ? { opacity: this.globalAlpha } : {};
    const all = Object.entries({ ...attributes, ...alpha }).map(([name, value]) => ` ${name}="${escaped(value)}"`);
    this.parts.push(text === undefined ? `<${tag}${all.join("")}/>` : `<${tag}${all.join("")}>${escaped(text)}</${tag}>`);
  }
}

function round(value) {
  return Math.round(value * 100) / 100;
}

function escaped(text) {
  const named = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return String(text).replace(/[&<>"]/g, (char) => named[char]);
}

/** The whole drawing, as large as it is, with nothing hovered. */
function paintWhole(painter, k = 1) {
  const { scene, look } = app;
  painter.width = (scene.width + 2 * PICTURE_MARGIN) * k;
  painter.height = (scene.height + 2 * PICTURE_MARGIN + 24) * k;
  const view = { k, x: PICTURE_MARGIN * k, y: (PICTURE_MARGIN + 24) * k };
  return [painter, () => painter.draw(scene, view, { ...look, hover: null, motion: 1 })];
}

app.svg = () => {
  const context = new SvgContext();
  const painter = Object.assign(Object.create(Painter.prototype), { context, canvas: {}, frames: [], ratio: 1 });
  const [{ width, height }, draw] = paintWhole(painter);
  Object.assign(painter.canvas, { width, height });
  draw();
  const [paper, ...rest] = context.parts;
  const origin = `translate(${PICTURE_MARGIN} ${PICTURE_MARGIN + 24})`;
  const head = `<svg xmlns="${SVG}" width="${round(width)}" height="${round(height)}" viewBox="0 0 ${round(width)} ${round(height)}"`;
  const title = `<title>${escaped(app.document.title || "graph")}</title>`;
  const font = `font-family="${escaped(FONT)}"`;
  return `${head} ${font}>${title}${paper}<g transform="${origin}">${rest.join("")}</g></svg>`;
};

app.png = () => {
  const canvas = document.createElement("canvas");
  const { width, height } = app.scene;
  const [w, h] = [width + 2 * PICTURE_MARGIN, height + 2 * PICTURE_MARGIN + 24];
  const k = Math.min(2, LARGEST_SIDE / w, LARGEST_SIDE / h, Math.sqrt(LARGEST_AREA / (w * h)));
  Object.assign(canvas, { width: Math.ceil(w * k), height: Math.ceil(h * k) });
  const context = canvas.getContext("2d", { alpha: false });
  const painter = Object.assign(Object.create(Painter.prototype), { context, canvas, frames: [], ratio: 1 });
  const [, draw] = paintWhole(painter, k);
  draw();
  return new Promise((done) => canvas.toBlob(done, "image/png"));
};

app.save = async (form) => {
  const blob = form === "svg" ? new Blob([app.svg()], { type: "image/svg+xml" }) : await app.png();
  const name = (app.document.title || "graph").replace(/[^\w.-]+/g, "-").slice(0, 60) || "graph";
  const link = element("a", { href: URL.createObjectURL(blob), download: `${name}.${form}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};
