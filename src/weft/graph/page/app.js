// The page itself: what is shown, and what the reader does.

const STILL = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
const MARGIN = { side: 36, top: 58, bottom: 30 };
const LEGIBLE = 0.9; // the zoom below which a page does not open: words of 11 pixels and more
const ROW = 52; // pixels that a row of the picture takes at that zoom

const app = {
  document: JSON.parse(byId("document").textContent),
  settings: JSON.parse(byId("settings").textContent),
  index: 0,
  open: null,
  lanes: { fore: true, back: true },
  colour: "category",
  chosen: null,
  hits: null,
  found: [],
  at: -1,
  view: { x: 0, y: 0, k: 1 },
  painter: new Painter(byId("graph")),
  minimap: new Minimap(byId("map")),
  look: { motion: 1, before: new Map(), hover: null, near: null, hits: null, chosen: null },
};
app.live = Boolean(app.settings.live);
app.paintOf = paintOf;
window.weftGraph = app;

// --- steps ---

app.before = () => (app.index > 0 ? app.document.steps[app.index - 1] : null);

const namesOf = new WeakMap();

/** The node of a name in a step as it stands in the document. */
app.rawNode = (step, name) => {
  if (!namesOf.has(step)) namesOf.set(step, new Map(step.nodes.map((node) => [node.name, node])));
  return namesOf.get(step).get(name);
};

/** Show one step; the picture stays as it is where the structure is the same. */
app.showStep = (index) => {
  const { steps } = app.document;
  app.index = Math.max(0, Math.min(index, steps.length - 1));
  const raw = steps[app.index] || { step: 0, nodes: [], modules: {}, outputs: [] };
  app.step = readStep(raw, app.before());
  app.tree = makeTree(app.step);
  app.first ??= firstFolds(app.tree, Math.max(14, Math.min(40, Math.floor(byId("stage").clientHeight / ROW))));
  app.open ??= new Set(app.first);
  // A run is made of what is alike in this step: it is open if one of its members was.
  for (const group of app.tree.groups.values()) {
    if (group.made && group.children.some((child) => app.open.has(child.path))) app.open.add(group.path);
  }
  const seen = signature(app.step);
  const known = seen === app.seen;
  app.seen = seen;
  app.chosen = again(app.chosen);
  stepWords();
  showCurve();
  app.painter.resize();
  app.relayout({ still: known });
  app.search(byId("search").value, { stay: true });
  fillTree(app);
};

/** The same thing in the step that is shown now: by its name, or by what stands in its place. */
function again(thing) {
  if (!thing) return null;
  if (thing.type === "group") return app.tree.groups.get(thing.path) || null;
  const same = app.step.byName.get(thing.name);
  const heir = () => app.step.nodes.find((node) => node.was?.name === thing.name);
  return (same && !same.ghost ? same : heir() || same) || null;
}

function stepWords() {
  const { steps } = app.document;
  byId("steps").hidden = steps.length < 2;
  const slider = byId("step");
  slider.max = steps.length - 1;
  slider.value = app.index;
  const kept = app.live ? " kept" : "";
  const where = [element("b", {}, `Step ${app.step.number}`), ` (${app.index + 1} of ${steps.length}${kept})`];
  const { marks, causes } = app.tree.root.sums;
  const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);
  for (const [mark, sign] of [["added", "+"], ["removed", "−"], ["changed", "~"]]) {
    if (causes[mark]) where.push(" ", element("span", { class: mark, title: mark }, `${sign}${causes[mark]}`));
  }
  const following = sum(marks) - sum(causes);
  if (following) where.push(` and ${following} that follow`);
  byId("where").replaceChildren(...where);
  slider.setAttribute("aria-valuetext", byId("where").textContent);
}

/** Mark on the scrubber where the structure changed; found out piece by piece, when idle. */
function markTicks() {
  const { steps } = app.document;
  const made = [];
  const look = (k) => {
    if (app.document.steps !== steps) return;
    if (k >= steps.length) {
      byId("ticks").replaceChildren(...made);
      return;
    }
    const fresh = !hashes.has(steps[k]);
    if (hashOf(steps[k]) !== hashOf(steps[k - 1])) {
      made.push(element("i"));
      made.at(-1).style.left = `${(100 * k) / (steps.length - 1)}%`;
    }
    if (fresh) setTimeout(look, 0, k + 1);
    else look(k + 1);
  };
  look(1);
}

const hashes = new WeakMap();

function hashOf(step) {
  if (!hashes.has(step)) {
    const byId = new Map(step.nodes.map((node) => [node.id, node]));
    hashes.set(step, signature({ nodes: step.nodes, byId }));
  }
  return hashes.get(step);
}

// --- layout and colours ---

/** Lay the picture out again. `anchor` is a key that keeps its place on the screen. */
app.relayout = ({ anchor = null, fit = false, still = false } = {}) => {
  const old = app.scene;
  const was = old && anchor ? spot(old, anchor) : null;
  const shape = JSON.stringify([app.seen, [...app.open].sort(), app.lanes]);
  if (shape !== app.shape) app.plans = new Map();
  app.shape = shape;
  app.scene = buildScene(app.tree, app.open, app.lanes, measureText, app.plans);
  fitFaces(app.scene);
  const now = was ? spot(app.scene, anchor) : null;
  if (now) {
    app.view.x += (was.x + was.w / 2 - now.x - now.w / 2) * app.view.k;
    app.view.y += (was.y - now.y) * app.view.k;
  }
  if (old && !still && !STILL) startMotion(old, now ? [was.x + was.w / 2 - now.x - now.w / 2, was.y - now.y] : [0, 0]);
  app.recolour();
  app.mark();
  byId("empty").hidden = app.scene.faces.length > 0;
  byId("empty").textContent = app.live ? "The first whole step will appear here." : "This graph has no nodes.";
  if (!old || fit) firstLook();
  showTip(null);
  app.paint();
};

function spot(scene, key) {
  return scene.byKey.get(key) || scene.boxes.find((box) => box.key === key);
}

function startMotion(old, [dx, dy]) {
  app.look.before = new Map();
  for (const thing of [...old.boxes, ...old.faces]) {
    const { x, y, w, h } = thing;
    app.look.before.set(thing.key, { x: x - dx, y: y - dy, w, h });
  }
  app.look.motion = 0;
  const started = performance.now();
  const move = () => {
    app.look.motion = Math.min(1, (performance.now() - started) / 240);
    app.paint();
    if (app.look.motion < 1) requestAnimationFrame(move);
  };
  requestAnimationFrame(move);
}

app.recolour = () => {
  app.look.theme ??= readTheme();
  const { theme } = app.look;
  const { paint, legend } = colouring(app.scene, app.colour, theme.name, theme.kinds, app.settings.categories || {});
  app.look.colours = new Map(app.scene.faces.map((face) => [face, paint(face)]));
  showLegend(legend);
  app.minimap.prepare(app.scene, app.look);
};

function showLegend(legend) {
  const parts = [];
  const swatch = (fill, line) => {
    const made = element("i", { class: "swatch" });
    Object.assign(made.style, { background: fill, borderColor: line });
    return made;
  };
  for (const { fill, line, words } of legend.classes || []) {
    parts.push(element("span", { class: "class" }, swatch(fill, line), words));
  }
  if (legend.stops) {
    const bar = element("span", { class: "scale" });
    for (const fill of legend.stops) {
      const stop = element("i");
      stop.style.background = fill;
      bar.append(stop);
    }
    const [low, high] = legend.ends || ["nothing", "measured"];
    parts.push(element("b", {}, legend.words), low, bar, high);
  }
  byId("legend").replaceChildren(...parts);
}

/** Work out what to stress: the edges and partners of what is chosen or under the pointer. */
app.mark = () => {
  const { look, scene } = app;
  const item = visibleItem(app.chosen);
  const hover = look.hover?.item;
  look.near = item || hover ? new Set([item, hover].filter(Boolean)) : null;
  look.chosen = app.chosen ? (app.chosen.type === "group" ? app.chosen.key : `n:${app.chosen.name}`) : null;
  look.partners = [];
  if (!scene.both || !item || item.open) return;
  const [fore, back] = [item.looks.fore, item.looks.back];
  for (const face of back) if (fore[0]) look.partners.push([fore[0], face]);
};

function visibleItem(thing) {
  if (!thing) return null;
  if (thing.type !== "group") return thing.slot?.visible || null;
  for (let group = thing; group; group = group.parent) if (!group.parent?.parent || group.parent.open) return group;
  return null;
}

// --- the view ---

let waiting = false;

app.paint = () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    app.drawNow();
  });
};

app.drawNow = () => {
  app.look.hits = app.found.length ? app.hits : null;
  app.painter.draw(app.scene, app.view, app.look);
  app.minimap.draw(app.view, app.painter.width, app.painter.height, app.look.theme);
};

app.fit = () => {
  const { width, height } = app.painter;
  const { scene } = app;
  const wide = (width - 2 * MARGIN.side) / Math.max(1, scene.width);
  const tall = (height - MARGIN.top - MARGIN.bottom) / Math.max(1, scene.height);
  const k = Math.max(0.02, Math.min(wide, tall, 1.2));
  app.view = { k, x: (width - scene.width * k) / 2, y: MARGIN.top };
  const room = height - MARGIN.top - MARGIN.bottom - scene.height * k;
  if (room > 0) app.view.y += room / 3;
  app.paint();
};

/** Everything if that can be read; else as much of its top as can, fitted to the width. */
function firstLook() {
  app.look.hover = null;
  app.fit();
  if (app.view.k >= LEGIBLE) return;
  const { width } = app.painter;
  const wide = (width - 2 * MARGIN.side) / Math.max(1, app.scene.width);
  const k = Math.max(LEGIBLE, Math.min(1.1, wide));
  let x = (width - app.scene.width * k) / 2;
  if (k > wide) {
    // Not even the width fits: begin at the forward pass, with the middle of its main line.
    const fore = app.scene.faces.filter((face) => !face.lane);
    const centres = (fore.length ? fore : app.scene.faces).map((face) => face.x + face.w / 2);
    const middle = centres.sort((a, b) => a - b)[centres.length >> 1] ?? 0;
    const lane = (app.scene.width - app.scene.shift) * k;
    x = lane <= width - 2 * MARGIN.side ? MARGIN.side : width / 2 - middle * k;
  }
  app.view = { k, x, y: MARGIN.top };
}

app.zoom = (factor, x = app.painter.width / 2, y = app.painter.height / 2) => {
  const k = Math.max(0.02, Math.min(4, app.view.k * factor));
  const by = k / app.view.k;
  app.view = { k, x: x - (x - app.view.x) * by, y: y - (y - app.view.y) * by };
  app.paint();
};

app.pan = (dx, dy) => {
  app.view = { ...app.view, x: app.view.x + dx, y: app.view.y + dy };
  app.paint();
};

let gliding = 0;

function glide(target) {
  const from = { ...app.view };
  const token = ++gliding;
  if (STILL) {
    app.view = target;
    app.paint();
    return;
  }
  const started = performance.now();
  const move = () => {
    if (token !== gliding) return;
    const t = Math.min(1, (performance.now() - started) / 260);
    const e = 1 - (1 - t) ** 3;
    app.view = {
      k: from.k * (target.k / from.k) ** e,
      x: from.x + (target.x - from.x) * e,
      y: from.y + (target.y - from.y) * e,
    };
    app.paint();
    if (t < 1) requestAnimationFrame(move);
  };
  move();
}

function centre(at) {
  const { width, height } = app.painter;
  const k = Math.max(LEGIBLE, Math.min(app.view.k, 1.6, (width * 0.9) / at.w));
  const y = at.h * k > height * 0.8 ? 60 - at.y * k : height / 2 - (at.y + at.h / 2) * k;
  // Both passes stay in sight where the window has room for them.
  const all = app.scene.width * k;
  const x = all <= width - MARGIN.side ? (width - all) / 2 : width / 2 - (at.x + at.w / 2) * k;
  glide({ k, x, y });
}

// --- choosing and folding ---

app.choose = (thing) => {
  app.chosen = thing;
  fillPanel(byId("panel"), app);
  byId("panel").scrollTop = 0;
  markTree(app);
  writeAddress();
  app.mark();
  app.paint();
  if (thing) byId("say").textContent = thing.type === "group" ? `module ${thing.path}` : `${thing.kind} ${thing.name}`;
};

/** Choose a node or group, open the folds around it and bring it into sight. */
app.go = (thing) => {
  const before = app.open.size;
  const { back, fore } = app.lanes;
  const item = thing.type === "group" ? thing : thing.slot;
  for (let group = item.parent; group; group = group.parent) app.open.add(group.path);
  if (thing.type !== "group" && !(isBack(thing) ? back : fore)) setLanes("both");
  else if (app.open.size !== before) app.relayout();
  if (app.open.size !== before) fillTree(app);
  app.choose(thing);
  const at = spot(app.scene, app.look.chosen);
  if (at) centre(at);
};

app.toggle = (group, anchor = group.key) => {
  if (app.open.has(group.path)) {
    app.open.delete(group.path);
    if (group.made) for (const child of group.children) app.open.delete(child.path);
  } else app.open.add(group.path);
  app.relayout({ anchor });
  fillTree(app);
  app.choose(group);
};

app.unfoldAll = () => {
  app.open = new Set(app.tree.groups.keys());
  app.relayout({ fit: true });
  fillTree(app);
};

app.foldAll = () => {
  app.open = new Set(app.first);
  app.relayout({ fit: true });
  fillTree(app);
};

function setLanes(name) {
  app.lanes = { fore: name !== "back", back: name !== "fore" };
  for (const button of byId("lanes").children) {
    button.setAttribute("aria-pressed", String(button.dataset.lanes === name));
  }
  app.relayout({ fit: true });
}
app.setLanes = setLanes;

app.setColour = (mode) => {
  app.colour = mode;
  byId("colour").value = mode;
  app.recolour();
  app.paint();
};

/** The next item along the edges: up to what an item reads, down to what reads it. */
function neighbour(direction) {
  const item = visibleItem(app.chosen);
  const face = app.look.chosen ? spot(app.scene, app.look.chosen) : null;
  if (!item || !face) return app.scene.faces[0];
  const lane = face.lane ?? 0;
  if (direction === "ArrowUp" || direction === "ArrowDown") {
    const [mine, theirs] = direction === "ArrowUp" ? ["b", "a"] : ["a", "b"];
    const next = app.scene.routes
      .filter((route) => route.lane === lane)
      .flatMap((route) => route.pairs)
      .filter((pair) => pair[mine] === item)
      .sort((p, q) => isLight(p[theirs]) - isLight(q[theirs]))
      .map((pair) => pair[theirs].looks[lane ? "back" : "fore"][0]);
    return next.find(Boolean) || null;
  }
  const sign = direction === "ArrowRight" ? 1 : -1;
  const away = (other) => (other.x - face.x) * sign + 4 * Math.abs(other.y - face.y);
  const side = app.scene.faces.filter((other) => (other.x - face.x) * sign > 4);
  return side.length ? side.reduce((a, b) => (away(b) < away(a) ? b : a)) : null;
}

// --- search ---

app.search = (text, { stay = false } = {}) => {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  app.found = words.length ? app.step.nodes.filter((node) => words.every((word) => matches(node, word))) : [];
  app.hits = words.length ? hitKeys(app.found) : null;
  // In another step the find that was shown may stand elsewhere in the list, or nowhere.
  app.at = stay && app.at >= 0 ? app.found.indexOf(app.chosen) : -1;
  foundWords();
  app.paint();
};

function matches(node, word) {
  const cut = word.indexOf(":");
  const field = cut > 0 ? word.slice(0, cut) : "";
  if (["name", "op", "module", "source", "kind", "dtype"].includes(field)) {
    return String(node[field] ?? "").toLowerCase().includes(word.slice(cut + 1));
  }
  const all = `${node.name}\n${node.op}\n${node.module}\n${node.source ?? ""}`;
  return all.toLowerCase().includes(word);
}

function hitKeys(nodes) {
  const hits = new Set(nodes.map((node) => `n:${node.name}`));
  hits.groups = new Set();
  for (const node of nodes) {
    for (let group = node.slot.parent; group; group = group.parent) {
      hits.groups.add(isBack(node) ? `${group.key}:back` : group.key);
    }
  }
  return hits;
}

function foundWords() {
  const some = app.found.length;
  const place = app.at >= 0 ? `${app.at + 1} / ${some}` : some ? `${some} found` : "none";
  byId("found").textContent = app.hits ? place : "";
}

app.findNext = (by) => {
  if (!app.found.length) return;
  const start = app.at < 0 && by < 0 ? 0 : app.at;
  app.at = (start + by + app.found.length) % app.found.length;
  foundWords();
  app.go(app.found[app.at]);
};

function clearSearch() {
  byId("search").value = "";
  app.search("");
}

// --- theme ---

const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");

app.setTheme = (name) => {
  document.documentElement.dataset.theme = name;
  app.look.theme = readTheme();
  if (app.scene) {
    app.recolour();
    app.paint();
  }
};
