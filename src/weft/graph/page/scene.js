// What is visible for the current folds: boxes with places, and merged edges with routes.

const LANE_GAP = 64;
const PADDING = 16;
const NODE_HEIGHT = 30;
const PILL_HEIGHT = 26;
const WIDEST = 330;
const FACE_GAP = 8;
const TEXT_GAP = 14;
const CHIP_HEIGHT = 20; // the shape of a result, on the wire below its node
// How hard an edge pulls its ends into one line.
const LIGHT = 0.05;
const HEAVY = 3;

/**
 * Lay out the tree with the groups in `open` unfolded. `lanes` says which passes to show; `plans`
 * keeps the places by group, for the next step that has the same structure.
 */
function buildScene(tree, open, lanes, measure, plans) {
  const scene = { faces: [], boxes: [], chips: [], routes: [], byKey: new Map(), lanes, width: 0, height: 0 };
  walk(tree.root, (item) => (item.looks = null));
  reveal(tree.root, open, lanes);
  connect(tree, lanes);
  walk(tree.root, (item) => item.looks && sizeUp(item, measure));
  arrange(tree.root, plans, measure);
  const both = lanes.fore && lanes.back && tree.root.sums.back + tree.root.sums.updates > 0;
  scene.shift = both ? tree.root.inner.width + LANE_GAP : 0;
  emit(scene, tree.root, 0, 0);
  scene.width = tree.root.inner.width + scene.shift;
  scene.height = tree.root.inner.height;
  scene.both = both;
  for (const face of scene.faces) if (!scene.byKey.has(face.key)) scene.byKey.set(face.key, face);
  return scene;
}

// --- which items are visible, and how large they are ---

function reveal(group, open, lanes) {
  group.items = group.children.filter((item) => shows(item, lanes));
  group.segments = new Map();
  group.ports = new Map();
  for (const item of group.items) {
    item.open = item.type === "group" && open.has(item.path);
    if (item.open) {
      reveal(item, open, lanes);
    } else {
      represent(item, item);
      item.exits = new Map();
      item.looks = item.type === "group" ? groupFaces(item, lanes) : slotFaces(item, lanes);
    }
  }
}

function shows(item, lanes) {
  const { fore, back, updates } = item.sums;
  return (lanes.fore && fore > 0) || (lanes.back && back + updates > 0);
}

function represent(item, visible) {
  walk(item, (one) => {
    if (one.type === "slot") one.visible = visible;
  });
}

function slotFaces(slot, lanes) {
  const fore = lanes.fore && slot.primary ? [nodeFace(slot, slot.primary)] : [];
  const back = lanes.back ? slot.back.map((node) => nodeFace(slot, node)) : [];
  return { fore, back };
}

function nodeFace(item, node) {
  const pill = LEAF_KINDS.has(node.kind);
  const title = shortName(node);
  return { item, node, kind: node.kind, pill, title, sub: shapeText(node.shape), key: `n:${node.name}` };
}

function shortName(node) {
  const inside = node.module && node.name.startsWith(`${node.module}.`);
  const name = inside ? node.name.slice(node.module.length + 1) : node.name;
  // The lane says what it is.
  return node.kind === "backward" ? name.replace(/\.backward(:\d+)?$/, "$1") : name;
}

function groupFaces(group, lanes) {
  const { fore, back, updates } = group.sums;
  const face = (kind, sub, lane) => {
    const key = lane ? `${group.key}:back` : group.key;
    return { item: group, group, kind, pill: false, title: group.label, sub, key };
  };
  const what = group.run ? countWords(group) : group.cls;
  const ops = what || plural(fore, "node");
  const left = back - group.sums.goneBack;
  const parts = back ? `${left || back} backward` : plural(updates, "update");
  return {
    fore: lanes.fore && fore ? [face("forward", ops, 0)] : [],
    back: lanes.back && back + updates ? [face("backward", parts, 1)] : [],
  };
}

/** The shapes of what leaves an item, as one short text. */
function exitText(item) {
  const shapes = [...new Set([...item.exits.values()].map(shapeText))];
  if (!shapes.length) return "";
  if (shapes.length < 3) return shapes.join("  ");
  return plural(item.exits.size, "tensor");
}

function sizeUp(item, measure) {
  const { fore, back } = item.looks;
  const [face] = fore;
  item.chip = "";
  if (face && !face.pill) {
    item.chip = exitText(item);
    // What nobody reads has its shape beside its name, and so has a leaf.
    if (face.node) face.sub = item.chip ? "" : shapeText(face.node.shape);
  }
  for (const face of [...fore, ...back]) {
    const text = measure(face.title, face.pill ? "pill" : "title") + measure(face.sub, "small");
    // Whole, so that no rounding makes the words a hair too long for their face.
    const gap = face.sub ? TEXT_GAP : 0;
    face.w = Math.max(64, Math.min(WIDEST, Math.ceil(text) + gap + (face.group ? 48 : 26)));
    face.h = face.pill || face.kind === "optimizer" ? PILL_HEIGHT : NODE_HEIGHT;
  }
  item.chipWidth = item.chip ? Math.ceil(measure(item.chip, "chip")) + 12 : 0;
  item.width = Math.max(rowWidth(fore), rowWidth(back), item.chipWidth);
  item.height = Math.max(...[...fore, ...back].map((face) => face.h)) + (item.chip ? CHIP_HEIGHT : 0);
  item.middle = item.chip ? -CHIP_HEIGHT / 2 : 0; // of the faces, from the middle of the item
}

// --- merged edges, cut at the borders of open groups ---

function connect(tree, lanes) {
  const pairs = new Map();
  const ids = new Map();
  const idOf = (item) => {
    if (!ids.has(item)) ids.set(item, ids.size);
    return ids.get(item);
  };
  walk(tree.root, (slot) => {
    if (slot.type !== "slot" || !slot.visible) return;
    for (const node of nodesOf(slot)) {
      for (const { node: source, output } of node.sources) {
        const back = isBack(node);
        if (back !== isBack(source) || !(back ? lanes.back : lanes.fore)) continue;
        // Gradients run against the order of the forward pass, which the layers follow.
        const [a, b] = back ? [node.slot, source.slot] : [source.slot, node.slot];
        if (!a?.visible || !b?.visible || a.visible === b.visible) continue;
        const key = `${idOf(a.visible)}>${idOf(b.visible)}`;
        if (!pairs.has(key)) pairs.set(key, { a: a.visible, b: b.visible, ...noEdges() });
        const pair = pairs.get(key);
        if (!back && !source.ghost) a.visible.exits.set(`${output} ${source.name}`, outputShape(source, output));
        pair[back ? "back" : "fore"]++;
        if (node.ghost || source.ghost) pair[back ? "backGhosts" : "foreGhosts"]++;
      }
    }
  });
  for (const pair of pairs.values()) cut(pair, idOf(pair.a));
}

function outputShape(node, output) {
  return Array.isArray(node.shape?.[0]) ? node.shape[output] : node.shape;
}

/** How many edges were merged in each lane, and how many of them are gone. */
function noEdges() {
  return { fore: 0, back: 0, foreGhosts: 0, backGhosts: 0 };
}

function isGone(pair) {
  return pair.foreGhosts + pair.backGhosts === pair.fore + pair.back;
}

function cut(pair, id) {
  const chainOf = (item) => {
    const chain = [];
    for (let group = item.parent; group; group = group.parent) chain.push(group);
    return chain;
  };
  const above = chainOf(pair.a);
  const below = chainOf(pair.b);
  while (above.length > 1 && below.length > 1 && above.at(-2) === below.at(-2)) {
    above.pop();
    below.pop();
  }
  const common = above.pop();
  below.pop();
  let from = { item: pair.a, port: null };
  for (const group of above) {
    const port = portOf(group, `o${id}`, "last");
    segment(group, from, { item: port, port: null }, pair);
    from = { item: group, port };
  }
  const ends = below.reverse().map((group) => ({ item: group, port: portOf(group, `i${id}`, "first") }));
  ends.push({ item: pair.b, port: null });
  segment(common, from, ends[0], pair);
  for (let k = 1; k < ends.length; k++) {
    segment(ends[k - 1].item, { item: ends[k - 1].port, port: null }, ends[k], pair);
  }
}

function portOf(group, key, rank) {
  if (!group.ports.has(key)) {
    const first = rank === "first";
    group.ports.set(key, { type: "port", rank, width: 0, height: first ? HEADER : 0, order: first ? -1 : 1e12 });
  }
  return group.ports.get(key);
}

const segmentIds = new WeakMap();
let nextSegmentId = 0;

function segmentId(thing) {
  if (!segmentIds.has(thing)) segmentIds.set(thing, nextSegmentId++);
  return segmentIds.get(thing);
}

function segment(group, from, to, pair) {
  const end = ({ item, port }) => segmentId(port || item);
  const key = `${end(from)}>${end(to)}`;
  let found = group.segments.get(key);
  if (!found) {
    found = { from, to, ...noEdges(), pairs: [] };
    group.segments.set(key, found);
  }
  for (const name of Object.keys(noEdges())) found[name] += pair[name];
  found.pairs.push(pair);
}

// --- places, from the innermost groups outwards ---

function arrange(group, plans, measure) {
  for (const item of group.items) if (item.open) arrange(item, plans, measure);
  const segments = [...group.segments.values()];
  const used = new Set();
  for (const { from, to } of segments) used.add(from.item).add(to.item);
  const loose = group.items.filter((item) => !used.has(item));
  const wired = group.items.filter((item) => used.has(item));
  const few = loose.length <= 3;
  const vertices = [...group.ports.values(), ...(few ? group.items : wired)];
  const index = new Map(vertices.map((vertex, i) => [vertex, i]));
  const edges = segments.map(({ from, to, pairs }) => ({
    from: index.get(from.item),
    to: index.get(to.item),
    fromDx: from.port ? from.port.x - from.item.width / 2 : 0,
    toDx: to.port ? to.port.x - to.item.width / 2 : 0,
    weight: pairs.every((pair) => isGone(pair) || isLight(pair.a)) ? LIGHT : HEAVY,
  }));
  const plan = plans.get(group.path) || layered(vertices, edges);
  plans.set(group.path, plan);
  const header = group.parent ? HEADER : 0;
  const pad = group.parent ? PADDING : 0;
  const hasIn = vertices.some((vertex) => vertex.rank === "first");
  const hasOut = vertices.some((vertex) => vertex.rank === "last");
  const top = hasIn ? 0 : header;
  vertices.forEach((vertex, i) => {
    vertex.x = plan.places[i].x + pad;
    vertex.y = plan.places[i].y + top;
  });
  segments.forEach((seg, i) => {
    seg.turned = plan.routes[i].turned;
    seg.points = plan.routes[i].points.map(([x, y]) => [x + pad, y + top]);
  });
  let width = plan.width;
  let height = plan.height + top;
  if (!few) ({ width, height } = shelve(loose, width, height, pad));
  group.inner = { width: width + 2 * pad, height: height + (hasOut ? 0 : pad) };
  if (group.parent) {
    const name = measure(`▾ ${group.label}`, "box") + 4;
    const slack = Math.min(name, 200) - titlePlace(group, name).room;
    if (slack > 0) widen(group, vertices, segments, slack);
    group.title = titlePlace(group, name);
    group.width = group.inner.width;
    group.height = group.inner.height;
  }
}

/** Whether nothing is computed there: parameters and the like stand beside the main line. */
function isLight(item) {
  return item.sums.fore > 0 && item.sums.ops === 0;
}

/** Where the name of an open group can stand: the first place between wires that is wide enough. */
function titlePlace(group, want) {
  const wires = [...group.ports.values()].filter((port) => port.rank === "first").map((port) => port.x);
  const edges = [4, ...wires.sort((a, b) => a - b), group.inner.width - 4];
  const places = edges.slice(1).map((edge, i) => ({ x: edges[i] + 7, room: edge - edges[i] - 14 }));
  return places.find((place) => place.room >= want) || places.reduce((a, b) => (b.room > a.room ? b : a));
}

/** Give a narrow group room for its own name. */
function widen(group, vertices, segments, slack) {
  group.inner.width += 2 * slack;
  for (const vertex of vertices) vertex.x += slack;
  for (const seg of segments) for (const point of seg.points) point[0] += slack;
}

/** Put what has no edges on shelves below the rest. */
function shelve(loose, width, height, pad) {
  const limit = Math.max(width, 640, Math.sqrt(loose.length) * 150);
  let x = 0;
  let y = height + (height ? LAYER_GAP : 0);
  let tall = 0;
  for (const item of loose) {
    if (x && x + item.width > limit) {
      x = 0;
      y += tall + SIDE_GAP;
      tall = 0;
    }
    item.x = x + item.width / 2 + pad;
    item.y = y + item.height / 2;
    x += item.width + SIDE_GAP;
    width = Math.max(width, x - SIDE_GAP);
    tall = Math.max(tall, item.height);
  }
  return { width, height: y + tall };
}

// --- the flat list that is drawn ---

function emit(scene, group, left, top) {
  for (const item of group.items) {
    const x = left + item.x - item.width / 2;
    const y = top + item.y - item.height / 2;
    if (item.open) {
      const { fore, back, updates } = item.sums;
      const box = { group: item, x, y, w: item.width, h: item.height, depth: depthOf(item) };
      if (scene.lanes.fore && fore) scene.boxes.push({ ...box, lane: 0, key: item.key });
      if (scene.lanes.back && back + updates) {
        scene.boxes.push({ ...box, x: x + scene.shift, lane: 1, key: `${item.key}:back` });
      }
      emit(scene, item, x, y);
    } else {
      put(scene, item.looks.fore, left + item.x, top + item.y + item.middle, 0);
      put(scene, item.looks.back, left + item.x + scene.shift, top + item.y + item.middle, 1);
      if (item.chip && item.looks.fore.length) {
        const at = { x: left + item.x - item.chipWidth / 2, y: y + item.height - 15 };
        scene.chips.push({ item, text: item.chip, ...at, w: item.chipWidth, h: 14 });
      }
    }
  }
  for (const seg of group.segments.values()) {
    if (seg.fore) scene.routes.push(routeOf(seg, left, top, 0));
    if (seg.back) scene.routes.push(routeOf(seg, left + scene.shift, top, 1));
  }
}

function depthOf(group) {
  let depth = 0;
  for (let up = group.parent; up; up = up.parent) depth++;
  return depth;
}

function put(scene, faces, middle, y, lane) {
  let x = middle - rowWidth(faces) / 2;
  faces.forEach((face, i) => {
    Object.assign(face, { x, y: y - face.h / 2, lane });
    face.mark = markOf(face);
    face.faint = Boolean(face.mark) && isFaint(face);
    scene.faces.push(face);
    const before = faces[i - 1];
    const linked = before && face.node.sources.some((source) => source.node === before.node);
    if (linked) scene.routes.push(drawn([[x - FACE_GAP, y], [x, y]], lane, { count: 1, pairs: [] }));
    x += face.w + FACE_GAP;
  });
}

/** How a face has changed; a folded group is new or gone only if all that it stands for is. */
function markOf(face) {
  if (face.node) return face.node.mark;
  const { fore, back, updates, foreMarks, backMarks } = face.group.sums;
  const [marks, all] = face.lane === 1 ? [backMarks, back + updates] : [foreMarks, fore];
  const [mark] = Object.keys(marks);
  if (!mark) return null;
  return marks[mark] === all ? mark : "changed";
}

/** Whether a face has changed only because something else has. */
function isFaint(face) {
  if (face.node) return face.node.faint;
  return !face.group.sums[face.lane === 1 ? "backCauses" : "foreCauses"];
}

function rowWidth(faces) {
  return faces.reduce((sum, face) => sum + face.w + FACE_GAP, -FACE_GAP);
}

function routeOf(seg, dx, dy, lane) {
  const points = seg.points.map(([x, y]) => [x + dx, y + dy]);
  if (seg.turned) points.reverse();
  meet(points, seg.turned ? seg.to : seg.from, lane, -1);
  points.reverse();
  meet(points, seg.turned ? seg.from : seg.to, lane, 1);
  // Forward, an edge runs from its first end to its second; gradients run the other way.
  if (Boolean(lane) === Boolean(seg.turned)) points.reverse();
  const end = lane ? seg.from : seg.to;
  return drawn(points, lane, {
    count: lane ? seg.back : seg.fore,
    pairs: seg.pairs,
    turned: seg.turned,
    ghost: lane ? seg.backGhosts === seg.back : seg.foreGhosts === seg.fore,
    light: seg.pairs.every((pair) => isLight(pair.a)),
    arrow: !end.port && end.item.type !== "port",
  });
}

/** Bring the first point of a route to the face that it leaves or reaches. */
function meet(points, { item, port }, lane, sign) {
  if (port || item.type === "port" || item.open) return;
  const faces = lane ? item.looks.back : item.looks.fore;
  const tall = Math.max(0, ...faces.map((face) => face.h));
  // Of several, the first receives gradients, and the last of the backward pass sends them on.
  const below = sign < 0;
  const chosen = below ? 0 : Math.max(0, faces.findLastIndex((face) => face.kind === "backward"));
  let [x, y] = points[0];
  if (faces.length > 1) {
    const from = x;
    x -= rowWidth(faces) / 2;
    for (let i = 0; i < chosen; i++) x += faces[i].w + FACE_GAP;
    x += faces[chosen].w / 2;
    for (const point of points.slice(0, 2)) if (point[0] === from) point[0] = x;
  }
  y += item.middle + (sign * (item.height - (faces[chosen]?.h ?? tall))) / 2;
  if (Math.abs(y - points[0][1]) > 0.01) points.unshift([x, y]);
}

function drawn(points, lane, rest) {
  const xs = points.map((point) => point[0]);
  const ys = points.map((point) => point[1]);
  const box = [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
  return { points, lane, box, turned: false, ghost: false, light: false, arrow: false, ...rest };
}
