// The document as objects: nodes with users and partners, the tree of modules, what changed.

const LEAF_KINDS = new Set(["input", "parameter", "constant"]);
const BACK_KINDS = new Set(["backward", "optimizer"]);
const isBack = (node) => BACK_KINDS.has(node.kind);

/** A number of the document: NaN and infinities come as strings, since JSON has none. */
function number(value) {
  return value === null || value === undefined ? null : Number(value);
}

/** One step: its nodes by id and by name, linked both ways. */
function readStep(raw, before) {
  const step = { number: raw.step, modules: raw.modules || {}, outputs: new Set(raw.outputs || []) };
  Object.assign(step, { stacks: raw.stacks || [], lines: raw.lines || {} });
  step.nodes = raw.nodes.map((node, order) => ({
    ...node,
    order,
    users: [],
    partners: [],
    was: null,
    mark: null,
    faint: false,
    ghost: false,
  }));
  step.byId = new Map(step.nodes.map((node) => [node.id, node]));
  step.byName = new Map(step.nodes.map((node) => [node.name, node]));
  step.removed = [];
  if (before) markChanges(step, before);
  for (const node of step.nodes) link(step, node);
  return step;
}

function link(step, node) {
  node.sources = [];
  for (const [id, output] of node.inputs) {
    const source = step.byId.get(id);
    if (!source) continue;
    node.sources.push({ node: source, output });
    if (source.users.at(-1) !== node) source.users.push(node);
  }
  const partner = node.forward === null ? null : step.byId.get(node.forward);
  node.partner = partner && partner !== node ? partner : null;
  if (node.partner) node.partner.partners.push(node);
}

/** What a node is, apart from its values: two uses with the same words are the same structure. */
function structure(node, byId) {
  const from = node.inputs.map(([id, output]) => [byId.get(id)?.name ?? "", output]);
  return JSON.stringify([node.op, node.kind, node.shape, node.dtype, node.attrs, from]);
}

/** A hash of the structure, to see at once whether two steps need different drawings. */
function signature(step) {
  let hash = 0;
  for (const node of step.nodes) {
    const partner = step.byId.get(node.forward)?.name;
    const words = `${node.name} ${partner} ${node.mark} ${node.faint} ${structure(node, step.byId)}`;
    for (let i = 0; i < words.length; i++) hash = (hash * 31 + words.charCodeAt(i)) | 0;
  }
  return `${step.nodes.length}:${hash}`;
}

// --- slots: a forward node and what the backward pass and the optimizer do for it ---

function makeSlots(step) {
  const slots = [];
  for (const node of step.nodes) {
    node.slot = null;
    if (!isBack(node)) slots.push(newSlot(node, null));
  }
  const waiting = step.nodes.filter(isBack);
  for (const node of waiting) {
    let partner = node.partner;
    for (let hops = 0; partner && isBack(partner) && hops < 8; hops++) partner = partner.partner;
    if (partner && partner.slot) join(node, partner.slot);
  }
  // What has no partner, such as a sum of gradients, stands with the node that it feeds.
  for (let round = 0; round < 4; round++) {
    for (const node of waiting) {
      if (node.slot) continue;
      const near = [...node.users, ...node.sources.map((s) => s.node)];
      const found = near.find((other) => isBack(other) && other.slot);
      if (found) join(node, found.slot);
    }
  }
  for (const node of waiting) if (!node.slot) slots.push(newSlot(null, node));
  return slots;
}

function newSlot(primary, back) {
  const node = primary || back;
  const slot = { type: "slot", key: `n:${node.name}`, primary, back: [], order: node.order };
  slot.module = homeOf(node);
  if (primary) primary.slot = slot;
  else join(back, slot);
  return slot;
}

/** The module that a node stands in; a constant without one is where all its users are. */
function homeOf(node) {
  const own = node.module || "";
  if (own || (node.kind !== "constant" && node.kind !== "parameter")) return own;
  const users = node.users.filter((user) => !isBack(user));
  if (!users.length) return own;
  const paths = users.map((user) => (user.module ? user.module.split(".") : []));
  let shared = 0;
  while (paths.every((path) => shared < path.length && path[shared] === paths[0][shared])) shared++;
  return paths[0].slice(0, shared).join(".");
}

function join(node, slot) {
  slot.back.push(node);
  node.slot = slot;
}

// --- the tree of modules ---

/** The tree in which slots hang below their modules; chains of single children are one group. */
function makeTree(step) {
  const root = newGroup("", "", step, null);
  const groups = new Map([["", root]]);
  for (const slot of makeSlots(step)) {
    const parent = groupAt(groups, slot.module, step);
    slot.parent = parent;
    parent.children.push(slot);
  }
  compact(root);
  total(root);
  foldRuns(root);
  const tree = { root, groups: new Map() };
  walk(root, (item) => {
    if (item.type === "group") tree.groups.set(item.path, item);
  });
  return tree;
}

function newGroup(path, label, step, parent) {
  return {
    type: "group",
    key: `g:${path}`,
    path,
    label,
    cls: step.modules[path] || "",
    run: 0,
    parent,
    children: [],
    order: Infinity,
  };
}

function groupAt(groups, path, step) {
  const known = groups.get(path);
  if (known) return known;
  const cut = path.lastIndexOf(".");
  const parent = groupAt(groups, cut < 0 ? "" : path.slice(0, cut), step);
  const group = newGroup(path, path.slice(cut + 1), step, parent);
  parent.children.push(group);
  groups.set(path, group);
  return group;
}

function compact(group) {
  for (let i = 0; i < group.children.length; i++) {
    let child = group.children[i];
    if (child.type !== "group") continue;
    while (child.children.length === 1 && child.children[0].type === "group") {
      const only = child.children[0];
      only.label = `${child.label}.${only.label}`;
      only.parent = group;
      group.children[i] = child = only;
    }
    compact(child);
  }
}

// --- runs: siblings that are alike stand as one ---

const SHORTEST_RUN = 3;
const SHORTEST_ROW = 8; // of single nodes

/** Put siblings that follow one another and are alike into a group of their own, a "×12" box. */
function foldRuns(group) {
  for (const child of group.children) if (child.type === "group") foldRuns(child);
  const made = [];
  for (let i = 0; i < group.children.length; ) {
    const first = group.children[i];
    let end = i + 1;
    if (first.type === "group") {
      const like = likeness(first);
      const alike = (other) => other?.type === "group" && other.cls === first.cls && likeness(other) === like;
      while (alike(group.children[end])) end++;
      if (end - i < SHORTEST_RUN) end = i + 1;
    } else {
      end = endOfOps(group.children, i);
    }
    const members = group.children.slice(i, end);
    made.push(members.length === 1 ? first : first.type === "group" ? newRun(group, members) : newOps(group, members));
    i = end;
  }
  // Where there is nothing else but constants, the group itself is the run.
  const runs = made.filter((item) => item.made && !item.ops);
  const rest = made.filter((item) => (!item.made || item.ops) && (item.type === "group" || item.sums.ops));
  if (runs.length === 1 && !rest.length && group.parent) Object.assign(group, { run: runs[0].run, each: runs[0].each });
  else group.children = made;
  for (const child of group.children) child.parent = group;
}

/** Where a row of nodes ends that do the same side by side, as one norm for each parameter does. */
function endOfOps(children, start) {
  const first = children[start].primary;
  if (first?.kind !== "forward") return start + 1;
  const members = new Set();
  let end = start;
  for (; end < children.length; end++) {
    const node = children[end].primary;
    const alike = node?.op === first.op && node.kind === "forward" && node.mark === first.mark && node.faint === first.faint;
    if (!alike || node.sources.some((source) => members.has(source.node))) break;
    members.add(node);
  }
  return members.size < SHORTEST_ROW ? start + 1 : end;
}

function newOps(parent, members) {
  const [first, last] = [members[0].primary.name, members.at(-1).primary.name];
  const label = first.slice(parent.path ? parent.path.length + 1 : 0).replace(/:\d+$/, "");
  const run = runOf(parent, members, `${first} … ${last}`, label, label);
  return Object.assign(run, { ops: true });
}

function newRun(parent, members) {
  const label = `${members[0].label} … ${members.at(-1).label}`;
  return runOf(parent, members, parent.path ? `${parent.path}.${label}` : label, label, members[0].cls);
}

/** How many things stand as one, and what they are. */
function countWords(group) {
  return group.ops ? `× ${group.run}` : `${group.run} × ${group.each || "alike"}`;
}

function runOf(parent, members, path, label, each) {
  const run = newGroup(path, label, { modules: {} }, parent);
  Object.assign(run, { children: members, order: members[0].order, run: members.length, each, made: true });
  run.sums = noSums();
  for (const member of members) {
    merge(run.sums, member.sums);
    member.parent = run;
  }
  return run;
}

/** What the forward nodes of a group do, in words that do not name the group. */
function likeness(group) {
  if (group.like !== undefined) return group.like;
  const short = (node) => (node.name.startsWith(`${group.path}.`) ? node.name.slice(group.path.length) : node.op);
  const words = nodesBelow(group)
    .filter((node) => !isBack(node) || (node.mark && !node.faint))
    .map((node) => `${short(node)} ${node.op} ${node.shape} ${node.dtype} ${node.mark} ${node.faint}`);
  group.like = words.join("\n");
  return group.like;
}

function noSums() {
  const sums = { nodes: 0, fore: 0, ops: 0, back: 0, updates: 0, bytes: 0, flops: 0, parameters: 0 };
  Object.assign(sums, { goneFore: 0, goneBack: 0, goneUpdates: 0, time: 0, timed: false, grad: null, nan: 0, inf: 0, dtypes: {}, marks: {} });
  return Object.assign(sums, { foreMarks: {}, backMarks: {}, causes: {}, foreCauses: 0, backCauses: 0, categories: {} });
}

/** Sums over everything below, children in the order in which they first ran. */
function total(item) {
  const sums = noSums();
  if (item.type === "slot") {
    for (const node of nodesOf(item)) count(sums, node);
  } else {
    for (const child of item.children) {
      merge(sums, total(child));
      item.order = Math.min(item.order, child.order);
    }
    item.children.sort((a, b) => a.order - b.order);
  }
  item.sums = sums;
  return sums;
}

function nodesOf(slot) {
  return slot.primary ? [slot.primary, ...slot.back] : slot.back;
}

function count(sums, node) {
  sums.nodes++;
  if (node.kind === "backward") sums.back++;
  else if (node.kind === "optimizer") sums.updates++;
  else sums.fore++;
  if (node.kind === "forward") {
    sums.ops++;
    sums.categories[node.category ?? ""] = (sums.categories[node.category ?? ""] || 0) + 1;
  }
  if (node.ghost) {
    // It is drawn, but costs nothing any more.
    if (node.kind === "backward") sums.goneBack++;
    else if (node.kind === "optimizer") sums.goneUpdates++;
    else sums.goneFore++;
  } else {
    countCosts(sums, node);
  }
  if (!node.mark) return;
  for (const marks of [sums.marks, isBack(node) ? sums.backMarks : sums.foreMarks]) {
    marks[node.mark] = (marks[node.mark] || 0) + 1;
  }
  if (node.faint) return;
  sums.causes[node.mark] = (sums.causes[node.mark] || 0) + 1;
  sums[isBack(node) ? "backCauses" : "foreCauses"]++;
}

function countCosts(sums, node) {
  if (node.kind === "parameter" && Array.isArray(node.shape)) sums.parameters += node.shape.reduce((a, b) => a * b, 1);
  sums.bytes += number(node.bytes) || 0;
  sums.flops += number(node.flops) || 0;
  const time = number(node.time);
  if (time !== null) {
    sums.time += time;
    sums.timed = true;
  }
  const grad = number(node.grad_norm);
  if (grad !== null) sums.grad = Math.max(sums.grad ?? 0, Number.isNaN(grad) ? Infinity : grad);
  if (node.stats?.nan) sums.nan++;
  if (node.stats?.inf) sums.inf++;
  sums.dtypes[node.dtype] = (sums.dtypes[node.dtype] || 0) + 1;
}

function merge(sums, other) {
  for (const [name, value] of Object.entries(other)) if (typeof value === "number" && name !== "grad") sums[name] += value;
  sums.timed ||= other.timed;
  if (other.grad !== null) sums.grad = Math.max(sums.grad ?? 0, other.grad);
  for (const name of ["dtypes", "marks", "foreMarks", "backMarks", "causes", "categories"]) {
    for (const [key, n] of Object.entries(other[name])) sums[name][key] = (sums[name][key] || 0) + n;
  }
}

function walk(item, visit) {
  const stack = [item];
  while (stack.length) {
    const next = stack.pop();
    visit(next);
    if (next.children) stack.push(...next.children);
  }
}

/** The nodes of a slot or of everything in a group, in the order in which they ran. */
function nodesBelow(item) {
  const found = [];
  walk(item, (one) => {
    if (one.type === "slot") found.push(...nodesOf(one));
  });
  return found.sort((a, b) => a.order - b.order);
}

/** Which groups to open at first: whole levels, as long as the picture stays small; runs stay one. */
function firstFolds(tree, budget) {
  const open = new Set([""]);
  const inner = (group) => !group.run && group.children.some((child) => child.type === "group");
  let shown = tree.root.children;
  for (let level = 0; level < 12; level++) {
    const groups = shown.filter((item) => item.type === "group" && inner(item));
    if (!groups.length) break;
    const size = (list) => list.reduce((sum, group) => sum + group.children.length - 1, shown.length);
    const largest = groups.reduce((a, b) => (b.sums.nodes > a.sums.nodes ? b : a));
    let chosen = groups;
    if (size(groups) > budget) {
      const rules = largest.sums.nodes > 0.5 * tree.root.sums.nodes;
      chosen = rules && size([largest]) <= 1.3 * budget ? [largest] : [];
    }
    if (!chosen.length) break;
    for (const group of chosen) open.add(group.path);
    shown = shown.flatMap((item) => (chosen.includes(item) ? item.children : [item]));
  }
  return open;
}
