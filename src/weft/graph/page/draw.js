// Painting the scene on a canvas: only what is in sight, and only as much as can be read.

const FONT = '"Inter", "Segoe UI", system-ui, -apple-system, "Helvetica Neue", sans-serif';
const FONTS = {
  title: `600 13px ${FONT}`,
  pill: `500 12px ${FONT}`,
  small: `400 11.5px ${FONT}`,
  box: `600 12px ${FONT}`,
  lane: `650 13px ${FONT}`,
  chip: `400 10.5px ${FONT}`,
};

const READABLE = 0.42;
const SMALLEST = 0.3;
const FEW = 250;
const TINY = 0.12;
const SMALLEST_FONT = 7; // pixels on the screen below which words are left out

const ruler = document.createElement("canvas").getContext("2d");
const widths = new Map();

function measureText(text, font) {
  const key = font + text;
  let width = widths.get(key);
  if (width === undefined) {
    ruler.font = FONTS[font];
    width = ruler.measureText(text).width;
    widths.set(key, width);
  }
  return width;
}

function fitted(text, font, room) {
  if (measureText(text, font) <= room) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measureText(`${text.slice(0, middle)}…`, font) <= room) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}…`;
}

function fitFaces(scene) {
  for (const face of scene.faces) {
    const font = face.pill ? "pill" : "title";
    const room = face.w - (face.group ? 48 : 26) - (face.sub ? TEXT_GAP : 0);
    const share = Math.max(0.4 * room, room - measureText(face.title, font));
    face.subShown = fitted(face.sub, "small", share);
    face.titleShown = fitted(face.title, font, room - measureText(face.subShown, "small"));
  }
}

/** The theme's colours, read from the style sheet so that they stand in one place. */
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  const kinds = { none: value("none"), bad: value("bad") };
  for (const kind of KINDS) {
    kinds[kind] = { fill: value(`${kind}-fill`), line: value(`${kind}-line`), ink: value("ink") };
  }
  const colours = {};
  for (const name of ["paper", "ink", "soft", "line", "wire", "accent", "hit", "box", "added"]) {
    colours[name] = value(name);
  }
  Object.assign(colours, { removed: value("removed"), changed: value("changed"), boxline: value("boxline") });
  kinds.marks = {};
  for (const mark of ["added", "removed", "changed"]) {
    kinds.marks[mark] = { fill: value(`${mark}-fill`), line: colours[mark] };
  }
  return { name: value("name"), kinds, ...colours };
}

class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.frames = [];
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    Object.assign(this, { width, height, ratio });
  }

  /** Paint one frame. `look` holds theme, colours and what is chosen, hovered or found. */
  draw(scene, view, look) {
    const started = performance.now();
    const c = this.context;
    const k = this.ratio * view.k;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = look.theme.paper;
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    c.setTransform(k, 0, 0, k, view.x * this.ratio, view.y * this.ratio);
    const sight = [-view.x / view.k, -view.y / view.k];
    sight.push(sight[0] + this.width / view.k, sight[1] + this.height / view.k);
    const moving = look.motion < 1;
    this.boxes(scene, view, look, sight);
    this.laneTitles(scene, view, look);
    c.globalAlpha = moving ? look.motion ** 3 : 1;
    this.routes(scene, view, look, sight);
    c.globalAlpha = 1;
    // Lines go below everything that has words on it.
    if (!moving) this.partnerLines(scene, view, look);
    if (!moving && view.k >= READABLE) this.chips(scene, look, sight);
    this.boxTitles(scene, view, look, sight);
    this.faces(scene, view, look, sight);
    this.frames.push(performance.now() - started);
    if (this.frames.length > 120) this.frames.shift();
  }

  boxes(scene, view, look, sight) {
    const c = this.context;
    for (const box of scene.boxes) {
      const at = placed(box, look);
      if (outside(at, sight)) continue;
      c.beginPath();
      c.roundRect(at.x, at.y, at.w, at.h, 12);
      // One in a tint, the next in plain: however deep they lie, words stay on a light ground.
      c.fillStyle = box.depth % 2 ? look.theme.box : look.theme.paper;
      c.fill();
      const chosen = box.group.key === look.chosen;
      c.strokeStyle = chosen ? look.theme.accent : look.theme.boxline;
      c.lineWidth = (chosen ? 2 : 1) / Math.min(1, Math.max(0.4, view.k));
      c.stroke();
    }
  }

  boxTitles(scene, view, look, sight) {
    for (const box of scene.boxes) {
      const at = placed(box, look);
      if (!outside(at, sight)) this.boxTitle(box, at, view, look, sight);
    }
  }

  /** The name of an open group, in the place of its header that no wire crosses. */
  boxTitle(box, at, view, look, sight) {
    // Seen from afar it grows as far as the header has room for it; then it is left out.
    const grow = Math.min(HEADER / 18, Math.max(1, 0.85 / view.k));
    if (12 * grow * view.k < SMALLEST_FONT) return;
    const place = box.group.title;
    const whole = Math.min(place.room, at.w - 20);
    const least = (measureText(`▾ ${box.group.label}`, "box") + 2) * grow;
    // Where the left part of the group is out of sight, the name moves along in its place.
    const shift = Math.max(0, Math.min(sight[0] + 6 / view.k - at.x - place.x, whole - least));
    const room = (whole - shift) / grow;
    if (room < 24) return;
    const c = this.context;
    c.textBaseline = "middle";
    c.save();
    c.translate(at.x + place.x + shift, at.y + HEADER / 2 + 1);
    c.scale(grow, grow);
    c.fillStyle = look.theme.soft;
    c.font = FONTS.box;
    const name = fitted(`▾ ${box.group.label}`, "box", room);
    c.fillText(name, 0, 0);
    const used = measureText(name, "box") + 6;
    const words = box.group.run ? countWords(box.group) : box.group.cls;
    if (words && room - used > 40) {
      c.font = FONTS.small;
      c.fillText(fitted(words, "small", room - used), used, 0);
    }
    c.restore();
  }

  /** The shapes on the wires, each on a plate that its own wire ends at and goes on from. */
  chips(scene, look, sight) {
    const c = this.context;
    c.font = FONTS.chip;
    c.textBaseline = "middle";
    c.textAlign = "center";
    for (const chip of scene.chips) {
      if (outside(chip, sight)) continue;
      c.fillStyle = look.theme.paper;
      c.beginPath();
      c.roundRect(chip.x, chip.y, chip.w, chip.h, 5);
      c.fill();
      c.fillStyle = look.theme.soft;
      c.fillText(chip.text, chip.x + chip.w / 2, chip.y + chip.h / 2 + 0.5);
    }
    c.textAlign = "left";
  }

  laneTitles(scene, view, look) {
    if (!scene.both) return;
    const c = this.context;
    c.font = FONTS.lane;
    c.textBaseline = "alphabetic";
    c.textAlign = "center";
    c.fillStyle = look.theme.soft;
    const grow = Math.min(2.5, Math.max(1, 0.9 / view.k));
    const middle = (scene.width - scene.shift) / 2;
    for (const [words, x] of [["Forward ↓", middle], ["Backward and update ↑", middle + scene.shift]]) {
      c.save();
      c.translate(x, -26);
      c.scale(grow, grow);
      c.fillText(words, 0, 0);
      c.restore();
    }
    c.textAlign = "left";
  }

  routes(scene, view, look, sight) {
    const near = look.near;
    const batches = new Map();
    const strong = [];
    for (const route of scene.routes) {
      const [x0, y0, x1, y1] = route.box;
      if (view.k < TINY && route.light) continue;
      if (x1 < sight[0] || y1 < sight[1] || x0 > sight[2] || y0 > sight[3]) continue;
      if (near && route.pairs.some((pair) => near.has(pair.a) || near.has(pair.b))) strong.push(route);
      else {
        const heavy = route.count > 1 && !route.light ? Math.min(3, Math.round(Math.log2(route.count))) : 0;
        const style = `${heavy}${route.light ? "l" : ""}${route.ghost ? "g" : ""}${route.turned ? "t" : ""}`;
        if (!batches.has(style)) batches.set(style, { heavy, ...route, list: [] });
        batches.get(style).list.push(route);
      }
    }
    for (const batch of batches.values()) this.strokeAll(batch.list, batch, view, look.theme.wire, 0);
    for (const route of strong) {
      this.strokeAll([route], { ...route, heavy: 1, light: false }, view, look.theme.accent, 0.8);
    }
  }

  strokeAll(list, style, view, colour, more) {
    const c = this.context;
    const simple = view.k < READABLE;
    const alpha = c.globalAlpha;
    c.beginPath();
    for (const route of list) trace(c, route.points, simple);
    c.strokeStyle = colour;
    c.globalAlpha = alpha * (style.light ? 0.55 : 1);
    c.lineWidth = (1.1 + 0.5 * style.heavy + more) / Math.max(0.45, Math.min(1, view.k));
    c.setLineDash(style.ghost || style.turned ? [5, 4] : []);
    c.stroke();
    c.setLineDash([]);
    if (!simple) {
      c.fillStyle = colour;
      c.beginPath();
      for (const route of list) if (route.arrow) arrow(c, route.points);
      c.fill();
    }
    c.globalAlpha = alpha;
  }

  faces(scene, view, look, sight) {
    const c = this.context;
    const few = view.k > SMALLEST && this.inSight(scene, sight) < FEW;
    const words = view.k >= READABLE || few;
    for (const face of scene.faces) {
      const at = placed(face, look);
      if (outside(at, sight)) continue;
      const paint = paintOf(face, look);
      if (!words && !this.stressed(face, look)) {
        plainFace(c, at, paint, view.k);
        continue;
      }
      const radius = face.pill ? at.h / 2 : 8;
      if (face.group && view.k > 0.25) this.cards(at, paint);
      c.beginPath();
      if (view.k > 0.15) c.roundRect(at.x, at.y, at.w, at.h, radius);
      else c.rect(at.x, at.y, at.w, at.h);
      c.fillStyle = paint.fill;
      c.fill();
      this.outline(face, view, look, paint);
      if (words) this.words(face, at, paint, view);
      if (view.k > 0.2) this.badges(face, at, look);
      if (view.k > 0.3 && face.mark && !face.faint) this.sign(face, at, look);
    }
  }

  /** What was done to a face, where it is no mere consequence. */
  sign(face, at, look) {
    const c = this.context;
    c.beginPath();
    c.arc(at.x + 1, at.y + 1, 7.5, 0, 7);
    c.fillStyle = look.theme[face.mark];
    c.fill();
    c.fillStyle = look.theme.paper;
    c.font = FONTS.title;
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillText({ added: "+", removed: "−", changed: "~" }[face.mark], at.x + 1, at.y + 2);
    c.textAlign = "left";
  }

  inSight(scene, sight) {
    return scene.faces.reduce((sum, face) => sum + (outside(face, sight) ? 0 : 1), 0);
  }

  stressed(face, look) {
    return face.mark || look.hits || face.key === look.chosen || face.key === `${look.chosen}:back`;
  }

  cards(at, paint) {
    const c = this.context;
    c.fillStyle = paint.fill;
    c.strokeStyle = paint.line;
    c.lineWidth = 1;
    c.beginPath();
    c.roundRect(at.x + 4, at.y + 3.5, at.w - 8, at.h, 8);
    c.fill();
    c.stroke();
  }

  outline(face, view, look, paint) {
    const c = this.context;
    const thin = 1 / Math.max(0.5, Math.min(1, view.k));
    const chosen = face.key === look.chosen || face.key === `${look.chosen}:back`;
    const { mark } = face;
    c.lineWidth = thin;
    c.strokeStyle = paint.line;
    if (mark) {
      c.strokeStyle = look.theme[mark];
      c.lineWidth = (face.faint ? 1.1 : 2.6) * thin;
      if (mark === "removed") c.setLineDash([4, 3]);
      else if (face.faint) c.setLineDash([2, 3]);
    }
    if (face === look.hover) c.lineWidth = 2 * thin;
    if (look.hits && (look.hits.has(face.key) || holds(look.hits, face))) {
      c.strokeStyle = look.theme.hit;
      c.lineWidth = 2.5 * thin;
    }
    if (chosen) {
      c.strokeStyle = look.theme.accent;
      c.lineWidth = 3 * thin;
    }
    c.stroke();
    c.setLineDash([]);
  }

  words(face, at, paint, view) {
    const c = this.context;
    c.textBaseline = "middle";
    c.fillStyle = paint.ink;
    const middle = at.y + at.h / 2 + 0.5;
    c.font = face.pill ? FONTS.pill : FONTS.title;
    c.fillText(face.titleShown, at.x + 13, middle);
    const right = at.x + at.w - (face.group ? 31 : 13);
    if (view.k > SMALLEST) {
      c.font = FONTS.small;
      c.textAlign = "right";
      c.fillText(face.subShown, right, middle);
      c.textAlign = "left";
    }
    if (face.group) plus(c, at.x + at.w - 17, at.y + at.h / 2, paint.line);
  }

  /** A dot where there is a NaN, also inside folded groups; a ring for inf, which may be meant. */
  badges(face, at, look) {
    const c = this.context;
    const { nan, inf } = face.node ? face.node.stats || {} : { nan: face.group.sums.nan, inf: 0 };
    if (!nan && !inf) return;
    c.beginPath();
    c.arc(at.x + at.w - 3, at.y + 3, nan ? 5 : 4, 0, 7);
    c.fillStyle = nan ? look.theme.kinds.bad : look.theme.paper;
    c.fill();
    if (nan) return;
    c.strokeStyle = look.theme.changed;
    c.lineWidth = 1.8;
    c.stroke();
  }

  /** Dashed lines between what is chosen in one lane and its partners in the other. */
  partnerLines(scene, view, look) {
    if (!look.partners?.length) return;
    const c = this.context;
    c.strokeStyle = look.theme.accent;
    c.setLineDash([6, 5]);
    c.lineWidth = 1.4 / Math.min(1, view.k);
    c.beginPath();
    for (const [a, b] of look.partners) {
      const [left, right] = a.x < b.x ? [a, b] : [b, a];
      const x0 = left.x + left.w;
      const y0 = left.y + left.h / 2;
      const x1 = right.x;
      const y1 = right.y + right.h / 2;
      const bend = Math.max(30, (x1 - x0) / 3);
      c.moveTo(x0, y0);
      c.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    }
    c.stroke();
    c.setLineDash([]);
  }
}

/** How a face is painted now; what is gone, and what a search did not find, steps back. */
function paintOf(face, look) {
  const paint = look.colours.get(face);
  const faded = look.hits && !look.hits.has(face.key) && !holds(look.hits, face);
  return faded || face.node?.ghost ? dimmed(paint, look.theme) : paint;
}

function placed(thing, look) {
  if (look.motion >= 1) return thing;
  const was = look.before.get(thing.key);
  if (!was) return thing;
  const t = 1 - (1 - look.motion) ** 3;
  const mix = (a, b) => a + (b - a) * t;
  return {
    x: mix(was.x, thing.x),
    y: mix(was.y, thing.y),
    w: mix(was.w, thing.w),
    h: mix(was.h, thing.h),
  };
}

function outside(at, sight) {
  return at.x > sight[2] || at.y > sight[3] || at.x + at.w < sight[0] || at.y + at.h < sight[1];
}

function trace(c, points, simple) {
  c.moveTo(points[0][0], points[0][1]);
  for (let i = 1; i < points.length; i++) {
    const [x0, y0] = points[i - 1];
    const [x1, y1] = points[i];
    if (simple || x0 === x1) c.lineTo(x1, y1);
    else {
      const bend = (y1 - y0) / 2;
      c.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
    }
  }
}

function arrow(c, points) {
  const [x, y] = points.at(-1);
  const up = points.at(-2)[1] > y ? 1 : -1;
  c.moveTo(x, y);
  c.lineTo(x - 3.6, y + up * 7);
  c.lineTo(x + 3.6, y + up * 7);
  c.closePath();
}

/** From afar: two plain rectangles, which are far quicker than a rounded outline. */
function plainFace(c, at, paint, k) {
  c.fillStyle = paint.line;
  c.fillRect(at.x, at.y, at.w, at.h);
  if (k < TINY) return;
  const edge = 0.8 / k;
  c.fillStyle = paint.fill;
  c.fillRect(at.x + edge, at.y + edge, at.w - 2 * edge, at.h - 2 * edge);
}

function plus(c, x, y, colour) {
  c.beginPath();
  c.moveTo(x - 4, y);
  c.lineTo(x + 4, y);
  c.moveTo(x, y - 4);
  c.lineTo(x, y + 4);
  c.strokeStyle = colour;
  c.lineWidth = 1.8;
  c.stroke();
}

function holds(hits, face) {
  return Boolean(face.group) && hits.groups.has(face.key);
}

/** The small picture of the whole. */
class Minimap {
  constructor(canvas) {
    this.canvas = canvas;
    this.picture = document.createElement("canvas");
  }

  prepare(scene, look) {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    for (const canvas of [this.canvas, this.picture]) {
      canvas.width = Math.max(1, width * ratio);
      canvas.height = Math.max(1, height * ratio);
    }
    const k = Math.min((width - 12) / (scene.width || 1), (height - 12) / (scene.height || 1));
    Object.assign(this, { k, ratio, dx: (width - scene.width * k) / 2, dy: (height - scene.height * k) / 2 });
    const c = this.picture.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, this.dx * ratio, this.dy * ratio);
    for (const box of scene.boxes) {
      c.fillStyle = look.theme.box;
      c.fillRect(box.x * k, box.y * k, box.w * k, box.h * k);
    }
    for (const face of scene.faces) {
      c.fillStyle = look.colours.get(face).line;
      c.fillRect(face.x * k, face.y * k, Math.max(1, face.w * k), Math.max(1, face.h * k));
    }
  }

  draw(view, width, height, theme) {
    const c = this.canvas.getContext("2d");
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    c.drawImage(this.picture, 0, 0);
    c.setTransform(this.ratio, 0, 0, this.ratio, this.dx * this.ratio, this.dy * this.ratio);
    c.strokeStyle = theme.accent;
    c.lineWidth = 1.5;
    const s = this.k / view.k;
    c.strokeRect(-view.x * s, -view.y * s, width * s, height * s);
  }

  /** The point of the scene under a point of the small picture. */
  point(x, y) {
    return [(x - this.dx) / this.k, (y - this.dy) / this.k];
  }
}
