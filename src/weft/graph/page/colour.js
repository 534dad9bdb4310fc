// Colours: by category, kind or dtype in classes, by time, bytes or gradient on a scale.

const KINDS = ["input", "parameter", "constant", "forward", "backward", "optimizer"];
const KIND_WORDS = {
  input: "input",
  parameter: "parameter",
  constant: "constant",
  forward: "forward",
  backward: "backward",
  optimizer: "update",
};
const SCALES = {
  light: [[240, 244, 252], [184, 212, 232], [104, 172, 193], [47, 118, 151], [30, 58, 106]],
  dark: [[38, 42, 56], [35, 78, 104], [38, 127, 135], [108, 178, 122], [238, 222, 128]],
};
const DTYPES = {
  light: ["#dfe6fb", "#fdeccb", "#dcf2e4", "#fbe1e8", "#dcf0f4", "#ece4fa", "#efe9df", "#e6e6e6"],
  dark: ["#2a3566", "#4d3c15", "#1d4631", "#552736", "#164551", "#3b2c60", "#443c2d", "#3a3b40"],
};

const MEASURES = {
  time: { words: "Time", of: (face) => sumOf(face, "time"), text: timeText },
  bytes: { words: "Bytes", of: (face) => sumOf(face, "bytes"), text: bytesText },
  flops: { words: "FLOPs", of: (face) => sumOf(face, "flops"), text: flopsText },
  gradient: { words: "Gradient norm", of: gradientOf, text: numberText },
};

/** The value of a face: of its node, or summed over the lane's nodes in its folded group. */
function sumOf(face, name) {
  if (face.node) return number(face.node[name]);
  return groupValue(face, name, (a, b) => a + b);
}

function gradientOf(face) {
  if (!face.node) return groupValue(face, "grad_norm", Math.max);
  const own = number(face.node.grad_norm);
  return own ?? number(face.node.partner?.grad_norm);
}

/** What a folded group stands for in the lane of its face. */
function nodesOfLane(face) {
  return nodesBelow(face.group).filter((node) => isBack(node) === (face.lane === 1));
}

function groupValue(face, name, join) {
  let found = null;
  for (const node of nodesOfLane(face)) {
    const value = number(node[name]);
    if (value !== null) found = found === null ? value : join(found, value);
  }
  return found;
}

/** How to paint the faces of a scene, and the legend that says what it means. */
function colouring(scene, mode, theme, kinds, categories) {
  if (mode === "category") return byCategory(scene, theme, kinds, categories);
  if (mode === "changes") return byChange(scene, kinds);
  if (mode === "kind") return byKind(scene, kinds);
  if (mode === "dtype") return byDtype(scene, theme, kinds);
  return byMeasure(scene, MEASURES[mode], theme, kinds);
}

function byKind(scene, kinds) {
  const used = new Set(scene.faces.map((face) => face.kind));
  return {
    paint: (face) => kinds[face.kind] || kinds.constant,
    legend: {
      classes: KINDS.filter((kind) => used.has(kind)).map((kind) => ({
        ...kinds[kind],
        words: KIND_WORDS[kind],
      })),
    },
  };
}

/** The category of a face; of a folded group the one that its ops are mainly of, if there is one. */
function categoryOf(face, categories) {
  if (face.node) return face.node.category ?? "";
  const all = Object.keys(face.group.sums.categories);
  const main = all.filter((name) => categories[name]?.main);
  const some = main.length ? main : all;
  return some.length === 1 ? some[0] : "";
}

function byCategory(scene, theme, kinds, categories) {
  const several = { fill: kinds.none, line: kinds.constant.line, ink: kinds.constant.ink };
  const paints = new Map();
  for (const [name, look] of Object.entries(categories)) paints.set(name, categoryPaint(look, theme, kinds.constant.ink));
  const isLeaf = (face) => LEAF_KINDS.has(face.kind) || face.kind === "optimizer";
  const paint = (face) => (isLeaf(face) ? kinds[face.kind] : paints.get(categoryOf(face, categories)) || several);
  const used = new Set(scene.faces.filter((face) => !isLeaf(face)).map((face) => categoryOf(face, categories)));
  const leaves = new Set(scene.faces.filter(isLeaf).map((face) => face.kind));
  const someMixed = scene.faces.some((face) => !isLeaf(face) && !paints.has(categoryOf(face, categories)));
  const classes = KINDS.filter((kind) => leaves.has(kind)).map((kind) => ({ ...kinds[kind], words: KIND_WORDS[kind] }));
  for (const [name, look] of paints) if (used.has(name)) classes.push({ ...look, words: name });
  if (someMixed) classes.push({ ...several, words: "several" });
  return { paint, legend: { classes } };
}

/** A soft fill and a stronger line of one hue. */
function categoryPaint({ hue, strength }, theme, ink) {
  const dark = theme === "dark";
  const fill = rgbOf(hue, (dark ? 0.42 : 0.85) * strength, dark ? 0.21 : 0.935);
  const line = rgbOf(hue, (dark ? 0.5 : 0.45) * Math.max(0.12, strength), dark ? 0.6 : 0.54);
  return { fill: cssOf(fill), line: cssOf(line), ink };
}

/** Neutral, but for what has changed: causes filled, what follows from them in outline only. */
function byChange(scene, kinds) {
  const plain = { fill: kinds.none, line: kinds.constant.line, ink: kinds.constant.ink };
  const of = (mark) => ({ fill: kinds.marks[mark].fill, line: kinds.marks[mark].line, ink: plain.ink });
  const paint = (face) => (face.mark && !face.faint ? of(face.mark) : plain);
  const words = { added: "added", removed: "removed", changed: "changed" };
  const used = new Set(scene.faces.filter((face) => face.mark && !face.faint).map((face) => face.mark));
  const classes = Object.keys(words).filter((mark) => used.has(mark)).map((mark) => ({ ...of(mark), words: words[mark] }));
  if (scene.faces.some((face) => face.faint)) classes.push({ ...plain, line: kinds.marks.changed.line, words: "follows from it" });
  classes.push({ ...plain, words: "as before" });
  return { paint, legend: { classes } };
}

function byDtype(scene, theme, kinds) {
  const dtypeOf = (face) => {
    if (face.node) return face.node.dtype;
    const counts = {};
    for (const node of nodesOfLane(face)) counts[node.dtype] = (counts[node.dtype] || 0) + 1;
    return Object.entries(counts).sort((a, b) => b[1] - a[1])[0][0];
  };
  const names = [...new Set(scene.faces.map(dtypeOf))].sort();
  const fill = (name) => DTYPES[theme][names.indexOf(name) % DTYPES[theme].length];
  const line = kinds.constant.line;
  return {
    paint: (face) => ({ fill: fill(dtypeOf(face)), line, ink: kinds.constant.ink }),
    legend: { classes: names.map((name) => ({ fill: fill(name), line, words: name })) },
  };
}

function byMeasure(scene, measure, theme, kinds) {
  const values = new Map();
  let low = Infinity;
  let high = 0;
  for (const face of scene.faces) {
    const value = measure.of(face);
    values.set(face, value);
    if (value > 0 && Number.isFinite(value)) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  const span = Math.log(high / low) || 1;
  const none = { fill: kinds.none, line: kinds.constant.line, ink: kinds.constant.ink };
  const bad = { fill: kinds.bad, line: kinds.bad, ink: inkOn(hexParts(kinds.bad)) };
  const paint = (face) => {
    const value = values.get(face);
    if (value === null) return none;
    if (!Number.isFinite(value)) return bad;
    if (!(value > 0)) return scale(theme, 0);
    return scale(theme, span === 1 && low === high ? 0.5 : Math.log(value / low) / span);
  };
  const stops = [0, 0.25, 0.5, 0.75, 1].map((t) => scale(theme, t).fill);
  const ends = high ? [measure.text(low), measure.text(high)] : null;
  return { paint, legend: { words: measure.words, stops, ends } };
}

function scale(theme, t) {
  const stops = SCALES[theme];
  const at = Math.min(0.9999, Math.max(0, t)) * (stops.length - 1);
  const k = Math.floor(at);
  const rgb = stops[k].map((c, i) => Math.round(c + (stops[k + 1][i] - c) * (at - k)));
  const edge = rgb.map((c) => Math.round(theme === "light" ? c * 0.72 : c + (255 - c) * 0.28));
  return {
    fill: `rgb(${rgb})`,
    line: `rgb(${edge})`,
    ink: inkOn(rgb),
  };
}

function hexParts(colour) {
  return [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
}

/** Red, green and blue of a colour as the page writes it: #rrggbb or rgb(r,g,b). */
function partsOf(colour) {
  return colour.startsWith("#") ? hexParts(colour) : colour.match(/\d+/g).slice(0, 3).map(Number);
}

function cssOf(rgb) {
  return `#${rgb.map((v) => Math.round(v).toString(16).padStart(2, "0")).join("")}`;
}

function mixed(a, b, share) {
  const [from, to] = [partsOf(a), partsOf(b)];
  return cssOf(from.map((v, i) => v + (to[i] - v) * share));
}

function rgbOf(hue, saturation, lightness) {
  const reach = saturation * Math.min(lightness, 1 - lightness);
  return [0, 8, 4].map((n) => {
    const k = (n + hue / 30) % 12;
    return 255 * (lightness - reach * Math.max(-1, Math.min(k - 3, 9 - k, 1)));
  });
}

function lightOf(rgb) {
  const [r, g, b] = rgb.map((v) => (v <= 10 ? v / 3294 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** How well one colour can be read on another, as WCAG measures it. */
function contrast(a, b) {
  const [high, low] = [lightOf(partsOf(a)), lightOf(partsOf(b))].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}

/** How a face is painted that steps back: paler, with words that can still be read. */
function dimmed(paint, theme) {
  // A strong colour has to step back further.
  const fills = [0.72, 0.8, 0.88, 0.95].map((share) => mixed(paint.fill, theme.paper, share));
  const fill = fills.find((one) => contrast(one, theme.soft) >= 4.6) ?? theme.paper;
  return { fill, line: mixed(paint.line, theme.paper, 0.6), ink: theme.soft };
}

/** Black or white, whichever is easier to read; one of them always has a contrast over 4.5. */
function inkOn(rgb) {
  const light = lightOf(rgb);
  return (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#000000" : "#ffffff";
}
