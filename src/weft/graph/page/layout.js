// A layered layout: layers by longest path, few crossings, positions by least squares.
//
// A vertex is {width, height, rank?: "first" | "last", order}; an edge is {from, to, weight,
// fromDx, toDx}, with the offsets of its ends from the middles of their vertices. The result has the
// middle of each vertex, the points of each edge, and the size of the whole.

const LAYER_GAP = 22;
const SIDE_GAP = 20;
const WIRE_GAP = 12;
const LONGEST_WIRE = 60;
// What an edge's pull is multiplied by: direct and main ones are to be straight; others may bend.
const DIRECT = 8;
const WIRE = 2;
const END = 0.15;
const HEADER = 30;
const PORT_GAP = 14;
const PORT_BEND = 18; // below a header, through which wires run straight

function layered(vertices, edges) {
  const net = orient(vertices, edges);
  rank(net);
  thread(net);
  uncross(net);
  const heights = stack(net);
  straighten(net);
  align(net);
  movePorts(net);
  return finish(net, heights);
}

/** Turn round the edges that would close a cycle, following the order in which things ran. */
function orient(vertices, edges) {
  const n = vertices.length;
  const out = vertices.map(() => []);
  const waiting = new Int32Array(n);
  for (const edge of edges) {
    out[edge.from].push(edge.to);
    waiting[edge.to]++;
  }
  const heap = new Heap((a, b) => vertices[a].order - vertices[b].order || a - b);
  const place = new Int32Array(n).fill(-1);
  for (let v = 0; v < n; v++) if (!waiting[v]) heap.push(v);
  const byOrder = [...vertices.keys()].sort((a, b) => vertices[a].order - vertices[b].order);
  let placed = 0;
  let stuck = 0;
  while (placed < n) {
    let v = heap.pop();
    while (v === undefined) {
      if (place[byOrder[stuck]] < 0) v = byOrder[stuck];
      stuck++;
    }
    if (place[v] >= 0) continue;
    place[v] = placed++;
    for (const w of out[v]) if (--waiting[w] === 0 && place[w] < 0) heap.push(w);
  }
  const arcs = edges.map((edge, index) => {
    const turned = place[edge.from] > place[edge.to];
    return {
      index,
      turned,
      from: turned ? edge.to : edge.from,
      to: turned ? edge.from : edge.to,
      fromDx: turned ? edge.toDx : edge.fromDx,
      toDx: turned ? edge.fromDx : edge.toDx,
      weight: edge.weight,
    };
  });
  const sorted = [...vertices.keys()].sort((a, b) => place[a] - place[b]);
  return { vertices, edges, arcs, sorted, real: n };
}

class Heap {
  constructor(compare) {
    this.compare = compare;
    this.items = [];
  }

  push(item) {
    const items = this.items;
    let i = items.push(item) - 1;
    while (i > 0) {
      const up = (i - 1) >> 1;
      if (this.compare(items[i], items[up]) >= 0) break;
      [items[i], items[up]] = [items[up], items[i]];
      i = up;
    }
  }

  pop() {
    const items = this.items;
    if (items.length < 2) return items.pop();
    const top = items[0];
    items[0] = items.pop();
    for (let i = 0; ; ) {
      let least = i;
      for (const child of [2 * i + 1, 2 * i + 2]) {
        if (child < items.length && this.compare(items[child], items[least]) < 0) least = child;
      }
      if (least === i) return top;
      [items[i], items[least]] = [items[least], items[i]];
      i = least;
    }
  }
}

/** The layer of each vertex: below all it needs, and close above what needs it. */
function rank(net) {
  const { vertices, arcs, sorted, real } = net;
  const layer = (net.layer = new Array(real).fill(0));
  const into = vertices.map(() => []);
  const out = vertices.map(() => []);
  for (const arc of arcs) {
    into[arc.to].push(arc.from);
    out[arc.from].push(arc.to);
  }
  const firsts = vertices.some((v) => v.rank === "first");
  for (const v of sorted) {
    if (vertices[v].rank === "first") continue;
    let low = firsts ? 1 : 0;
    for (const u of into[v]) low = Math.max(low, layer[u] + 1);
    layer[v] = low;
  }
  for (let i = real - 1; i >= 0; i--) {
    const v = sorted[i];
    if (vertices[v].rank || !out[v].length || out[v].length < into[v].length) continue;
    const limit = Math.min(...out[v].map((w) => layer[w])) - 1;
    if (limit > layer[v] && (!into[v].length || out[v].length > into[v].length)) layer[v] = limit;
  }
  const last = Math.max(0, ...layer);
  for (let v = 0; v < real; v++) {
    if (vertices[v].rank === "last") {
      const sole = vertices.some((w, i) => w.rank !== "last" && layer[i] === last);
      layer[v] = last + (sole ? 1 : 0);
    }
  }
}

/** Give each edge a thin vertex in every layer that it passes. */
function thread(net) {
  const { vertices, arcs, layer } = net;
  const width = vertices.map((v) => v.width);
  const height = vertices.map((v) => v.height);
  net.up = vertices.map(() => []);
  net.down = vertices.map(() => []);
  const join = (a, b, aDx, bDx, weight) => {
    net.down[a].push({ v: b, mine: aDx, theirs: bDx, weight });
    net.up[b].push({ v: a, mine: bDx, theirs: aDx, weight });
  };
  const heaviest = (end) => {
    const most = new Array(vertices.length).fill(0);
    const number = new Array(vertices.length).fill(0);
    for (const arc of arcs) most[arc[end]] = Math.max(most[arc[end]], arc.weight);
    for (const arc of arcs) if (arc.weight === most[arc[end]]) number[arc[end]]++;
    return (arc) => arc.weight === most[arc[end]] && number[arc[end]] === 1;
  };
  const shared = new Map();
  const soleFrom = heaviest("from");
  const soleTo = heaviest("to");
  for (const arc of arcs) {
    const span = layer[arc.to] - layer[arc.from];
    const start = soleFrom(arc) ? DIRECT : END;
    const stop = soleTo(arc) ? DIRECT : END;
    arc.far = span > LONGEST_WIRE || span < 1;
    arc.via = [];
    if (arc.far) continue;
    let last = arc.from;
    let dx = arc.fromDx;
    for (let k = 1; k < span; k++) {
      // Edges from one place share their wire as far as they go together.
      const key = `${arc.from} ${arc.fromDx} ${k}`;
      let wire = shared.get(key);
      if (wire === undefined) {
        wire = layer.push(layer[arc.from] + k) - 1;
        width.push(0);
        height.push(0);
        net.up.push([]);
        net.down.push([]);
        join(last, wire, dx, 0, arc.weight * (k === 1 ? start : WIRE));
        shared.set(key, wire);
      }
      arc.via.push(wire);
      last = wire;
      dx = 0;
    }
    join(last, arc.to, dx, arc.toDx, arc.weight * (span > 1 ? stop : DIRECT));
  }
  Object.assign(net, { width, height });
  const rows = (net.rows = Array.from({ length: Math.max(0, ...layer) + 1 }, () => []));
  for (const v of firstOrder(net)) rows[layer[v]].push(v);
}

/** Depth first from the top, so that what belongs together starts out together. */
function firstOrder(net) {
  const seen = new Uint8Array(net.layer.length);
  const order = [];
  for (const start of net.sorted) {
    const stack = [start];
    while (stack.length) {
      const v = stack.pop();
      if (seen[v]) continue;
      seen[v] = 1;
      order.push(v);
      for (let i = net.down[v].length - 1; i >= 0; i--) stack.push(net.down[v][i].v);
    }
  }
  return order;
}

// --- fewer crossings ---

function uncross(net) {
  const { rows, layer } = net;
  net.side = sides(net);
  const at = (net.at = new Float64Array(layer.length));
  const number = (row) => row.forEach((v, i) => (at[v] = i));
  rows.forEach(number);
  if (!net.arcs.length) return;
  let best = rows.map((row) => [...row]);
  let fewest = crossings(net);
  const sweeps = layer.length > 4000 ? 6 : 12;
  for (let sweep = 0; sweep < sweeps && (fewest > 0 || sweep < 2); sweep++) {
    const down = sweep % 2 === 0;
    for (let k = 0; k < rows.length; k++) {
      const row = rows[down ? k : rows.length - 1 - k];
      sortByNeighbours(net, row, down ? net.up : net.down);
      number(row);
    }
    const now = crossings(net);
    if (now <= fewest) {
      fewest = now;
      best = rows.map((row) => [...row]);
    }
  }
  net.rows = best;
  best.forEach(number);
}

/** Small inputs such as weights go to the left and right of the main one, in turn. */
function sides(net) {
  const side = new Float64Array(net.layer.length);
  const turn = new Map();
  for (const v of net.sorted) {
    if (net.up[v].length || net.down[v].length !== 1 || net.vertices[v].rank) continue;
    const target = net.down[v][0].v;
    turn.set(target, -(turn.get(target) ?? 1));
    side[v] = 1e-3 * turn.get(target);
  }
  return side;
}

function sortByNeighbours(net, row, links) {
  const { at, width } = net;
  const keys = new Map();
  for (const v of row) {
    let sum = 0;
    let weight = 0;
    for (const link of links[v]) {
      const tilt = width[link.v] ? link.theirs / width[link.v] : 0;
      sum += (at[link.v] + tilt) * link.weight;
      weight += link.weight;
    }
    keys.set(v, weight ? sum / weight + (net.side[v] || 0) : null);
  }
  // Those without neighbours keep their places; the others are sorted among the remaining ones.
  const moving = row.filter((v) => keys.get(v) !== null).sort((a, b) => keys.get(a) - keys.get(b));
  let next = 0;
  for (let i = 0; i < row.length; i++) if (keys.get(row[i]) !== null) row[i] = moving[next++];
}

function crossings(net) {
  let sum = 0;
  for (let k = 0; k + 1 < net.rows.length; k++) {
    const ends = [];
    for (const v of net.rows[k]) {
      const mine = net.down[v].map((link) => net.at[link.v]).sort((a, b) => a - b);
      ends.push(...mine);
    }
    const size = net.rows[k + 1].length;
    const tree = new Int32Array(size + 1);
    for (let seen = 0; seen < ends.length; seen++) {
      let atMost = 0;
      for (let i = ends[seen] + 1; i > 0; i -= i & -i) atMost += tree[i];
      sum += seen - atMost;
      for (let i = ends[seen] + 1; i <= size; i += i & -i) tree[i]++;
    }
  }
  return sum;
}

// --- positions ---

function stack(net) {
  const tops = [];
  const bottoms = [];
  let y = 0;
  net.rows.forEach((row, k) => {
    const high = row.reduce((most, v) => Math.max(most, net.height[v]), 0);
    const between = k ? LAYER_GAP + Math.min(30, 0.7 * (net.rows[k - 1].length - 1)) : 0;
    const afterPorts = k === 1 && net.vertices.some((v) => v.rank === "first");
    y += afterPorts ? PORT_BEND : k && high === 0 ? PORT_GAP : between;
    tops.push(y);
    y += high;
    bottoms.push(y);
  });
  return { tops, bottoms };
}

function straighten(net) {
  const { rows, up, down } = net;
  const x = (net.x = new Float64Array(net.layer.length));
  for (const row of rows) {
    let left = 0;
    row.forEach((v, i) => {
      left += i ? distance(net, row[i - 1], v) : 0;
      x[v] = left;
    });
    for (const v of row) x[v] -= left / 2;
  }
  const rounds = net.layer.length > 8000 ? 5 : 10;
  for (let round = 0; round < rounds; round++) {
    const both = round === rounds - 1;
    for (let k = 1; k < rows.length; k++) settle(net, rows[k], both ? [up, down] : [up]);
    for (let k = rows.length - 2; k >= 0; k--) settle(net, rows[k], both ? [up, down] : [down]);
  }
}

function distance(net, a, b) {
  const wires = a >= net.real || b >= net.real;
  return (net.width[a] + net.width[b]) / 2 + (wires ? WIRE_GAP : SIDE_GAP);
}

/** Put a row as near as possible to its neighbours without changing its order. */
function settle(net, row, sides) {
  const { x } = net;
  const blocks = [];
  const offsets = new Float64Array(row.length);
  for (let i = 0; i < row.length; i++) {
    if (i) offsets[i] = offsets[i - 1] + distance(net, row[i - 1], row[i]);
    let sum = 0;
    let weight = 0;
    for (const side of sides) {
      for (const link of side[row[i]]) {
        sum += (x[link.v] + link.theirs - link.mine) * link.weight;
        weight += link.weight;
      }
    }
    if (!weight) {
      sum = x[row[i]] * 0.01;
      weight = 0.01;
    }
    let block = { sum: sum - offsets[i] * weight, weight, first: i };
    while (blocks.length && blocks.at(-1).sum * block.weight >= block.sum * blocks.at(-1).weight) {
      const left = blocks.pop();
      block = { sum: left.sum + block.sum, weight: left.weight + block.weight, first: left.first };
    }
    blocks.push(block);
  }
  blocks.forEach((block, b) => {
    const end = b + 1 < blocks.length ? blocks[b + 1].first : row.length;
    for (let i = block.first; i < end; i++) x[row[i]] = block.sum / block.weight + offsets[i];
  });
}

// --- chains: what follows one another stands in one line where there is room for it ---

function align(net) {
  const chains = chainsOf(net);
  for (let pass = 0; pass < 3; pass++) {
    for (const chain of chains) alignChain(net, chain);
  }
}

/** Lists of vertices each of which is the other's main neighbour, the longest first. */
function chainsOf(net) {
  const main = (links) => {
    if (!links.length) return null;
    const most = Math.max(...links.map((link) => link.weight));
    const best = links.filter((link) => link.weight === most);
    best.sort((a, b) => net.at[a.v] - net.at[b.v]);
    return best[(best.length - 1) >> 1];
  };
  const below = net.down.map(main);
  const above = net.up.map(main);
  const next = (v) => (below[v] && above[below[v].v]?.v === v ? below[v] : null);
  const inside = new Uint8Array(net.layer.length);
  for (let v = 0; v < inside.length; v++) if (next(v)) inside[next(v).v] = 1;
  const chains = [];
  for (let v = 0; v < inside.length; v++) {
    if (inside[v]) continue;
    const chain = [{ v, shift: 0 }];
    for (let link = next(v); link; link = next(link.v)) {
      chain.push({ v: link.v, shift: chain.at(-1).shift + link.mine - link.theirs });
    }
    chains.push(chain);
  }
  return chains.sort((a, b) => b.length - a.length);
}

/** Cut a chain into as few straight pieces as its neighbours in each row allow. */
function alignChain(net, chain) {
  const { x } = net;
  let first = 0;
  let [low, high] = [-Infinity, Infinity];
  const flush = (end) => {
    const wishes = [];
    for (let i = first; i < end; i++) wishes.push(x[chain[i].v] - chain[i].shift);
    wishes.sort((a, b) => a - b);
    const wish = chain.length === 1 ? wanted(net, chain[0].v) : wishes[wishes.length >> 1];
    const t = Math.max(low, Math.min(high, wish));
    for (let i = first; i < end; i++) x[chain[i].v] = t + chain[i].shift;
    first = end;
  };
  for (let i = 0; i < chain.length; i++) {
    const { v, shift } = chain[i];
    const row = net.rows[net.layer[v]];
    const [left, right] = [row[net.at[v] - 1], row[net.at[v] + 1]];
    const l = left === undefined ? -Infinity : x[left] + distance(net, left, v) - shift;
    const r = right === undefined ? Infinity : x[right] - distance(net, v, right) - shift;
    if (Math.max(low, l) > Math.min(high, r) + 1e-6) {
      flush(i);
      [low, high] = [l, r];
    } else {
      [low, high] = [Math.max(low, l), Math.min(high, r)];
    }
  }
  flush(chain.length);
}

/** Where a vertex would stand if it were alone: in the middle of its neighbours. */
function wanted(net, v) {
  let sum = 0;
  let weight = 0;
  for (const link of [...net.up[v], ...net.down[v]]) {
    sum += (net.x[link.v] + link.theirs - link.mine) * link.weight;
    weight += link.weight;
  }
  return weight ? sum / weight : net.x[v];
}

/** Let the main line enter a group above the place where it leaves, so that it stays straight. */
function movePorts(net) {
  const { x, vertices } = net;
  const row = net.rows[0] || [];
  const ports = (list, rank, links) => {
    const all = list.filter((v) => v < net.real && vertices[v].rank === rank);
    const pull = (v) => Math.max(0, ...links[v].map((link) => link.weight));
    const most = Math.max(...all.map(pull));
    return all.filter((v) => pull(v) === most);
  };
  const ins = ports(row, "first", net.down);
  const outs = ports(net.rows.at(-1) || [], "last", net.up);
  if (!ins.length || !outs.length) return;
  const target = x[outs[(outs.length - 1) >> 1]];
  const chosen = ins.reduce((a, b) => (Math.abs(x[b] - target) < Math.abs(x[a] - target) ? b : a));
  x[chosen] = target;
  const at = row.indexOf(chosen);
  for (let i = at + 1; i < row.length; i++) {
    x[row[i]] = Math.max(x[row[i]], x[row[i - 1]] + distance(net, row[i - 1], row[i]));
  }
  for (let i = at - 1; i >= 0; i--) {
    x[row[i]] = Math.min(x[row[i]], x[row[i + 1]] - distance(net, row[i], row[i + 1]));
  }
}

// --- the result ---

function finish(net, { tops, bottoms }) {
  const { x, layer, real, width } = net;
  let left = Infinity;
  let right = -Infinity;
  for (let v = 0; v < layer.length; v++) {
    left = Math.min(left, x[v] - width[v] / 2);
    right = Math.max(right, x[v] + width[v] / 2);
  }
  if (!layer.length) left = right = 0;
  for (let v = 0; v < layer.length; v++) x[v] -= left;
  const places = [];
  for (let v = 0; v < real; v++) {
    places.push({ x: x[v], y: (tops[layer[v]] + bottoms[layer[v]]) / 2 });
  }
  const size = { width: right - left, height: bottoms.at(-1) ?? 0 };
  const far = net.arcs.filter((arc) => arc.far);
  far.forEach((arc, k) => (arc.gutter = size.width + 10 + 6 * (k % 12)));
  if (far.length) size.width += 10 + 6 * Math.min(12, far.length);
  const routes = net.arcs.map((arc) => route(net, arc, places, tops, bottoms));
  return { places, routes, ...size };
}

function route(net, arc, places, tops, bottoms) {
  const { x, layer, height } = net;
  const points = [];
  const from = places[arc.from];
  const to = places[arc.to];
  const add = (px, py) => {
    const last = points.at(-1);
    if (!last || last[0] !== px || last[1] !== py) points.push([px, py]);
  };
  // A wire runs through a header from its upper edge, straight, so that the title has its place.
  const side = net.vertices[arc.from].rank === "first" ? -1 : 1;
  add(from.x + arc.fromDx, from.y + (side * height[arc.from]) / 2);
  add(from.x + arc.fromDx, bottoms[layer[arc.from]]);
  if (arc.far) {
    const above = tops[layer[arc.to]] - LAYER_GAP / 2;
    add(arc.gutter, bottoms[layer[arc.from]] + LAYER_GAP / 2);
    add(arc.gutter, above);
  }
  for (const wire of arc.via) {
    add(x[wire], tops[layer[wire]]);
    add(x[wire], bottoms[layer[wire]]);
  }
  add(to.x + arc.toDx, tops[layer[arc.to]]);
  add(to.x + arc.toDx, to.y - height[arc.to] / 2);
  if (arc.turned) points.reverse();
  return { points, turned: arc.turned };
}
