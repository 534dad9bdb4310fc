// What changed from one step to the next: causes are told from what merely follows from them.

/** What a node reads, by name; `renamed` maps names of the step before to today's. */
function readsOf(node, byId, renamed = null) {
  const nameOf = (id) => byId.get(id)?.name ?? "";
  return node.inputs.map(([id, output]) => [renamed?.get(nameOf(id)) ?? nameOf(id), output]);
}

/** What a node does, apart from what it reads and what comes of it. */
function doingOf(node) {
  return JSON.stringify([node.op, node.kind, node.attrs]);
}

function resultOf(node) {
  return JSON.stringify([node.shape, node.dtype]);
}

/** Mark what was added or changed since the step before, and keep what was removed as ghosts. */
function markChanges(step, before) {
  const oldById = new Map(before.nodes.map((node) => [node.id, node]));
  const { pairs, lost, renamed } = pairUp(step, before, oldById);
  for (const node of step.nodes) {
    node.was = pairs.get(node) ?? null;
    node.mark = node.was ? differs(node, step, oldById, renamed) : "added";
  }
  const gone = new Set(lost.map((was) => was.name));
  addGhosts(step, before, lost, pairs);
  const forwardChanged = step.nodes.some((node) => node.mark && !isBack(node));
  for (const node of step.nodes) {
    if (node.mark) node.faint = follows(node, step, { oldById, renamed, gone, forwardChanged });
  }
}

/** Which node of the step before each node is: by name, or by its place if it was replaced. */
function pairUp(step, before, oldById) {
  const pairs = new Map();
  const renamed = new Map();
  const old = new Map(before.nodes.map((node) => [node.name, node]));
  const waiting = new Map();
  for (const was of before.nodes) {
    if (step.byName.has(was.name)) continue;
    const key = `${was.kind} ${was.module}`;
    if (!waiting.has(key)) waiting.set(key, []);
    waiting.get(key).push(was);
  }
  const found = new Set();
  const take = (node, was) => {
    pairs.set(node, was);
    renamed.set(was.name, node.name);
    found.add(was);
  };
  for (const node of step.nodes) {
    const same = old.get(node.name);
    if (same) {
      pairs.set(node, same);
      continue;
    }
    const near = (waiting.get(`${node.kind} ${node.module}`) || []).slice(0, 64);
    const partner = step.byId.get(node.forward)?.name;
    const reads = JSON.stringify(readsOf(node, step.byId));
    const was = near.find((one) => {
      if (found.has(one)) return false;
      // A gradient or an update is where its forward node is.
      const theirs = oldById.get(one.forward)?.name;
      if (isBack(node)) return partner !== undefined && (renamed.get(theirs) ?? theirs) === partner;
      return node.inputs.length > 0 && JSON.stringify(readsOf(one, oldById, renamed)) === reads;
    });
    if (was) take(node, was);
  }
  const lost = before.nodes.filter((was) => !step.byName.has(was.name) && !found.has(was));
  return { pairs, lost, renamed };
}

function differs(node, step, oldById, renamed) {
  const { was } = node;
  if (doingOf(was) !== doingOf(node) || resultOf(was) !== resultOf(node)) return "changed";
  const reads = JSON.stringify(readsOf(node, step.byId));
  return JSON.stringify(readsOf(was, oldById, renamed)) === reads ? null : "changed";
}

/** Whether a mark only follows from others: what it reads changed, or the node it belongs to. */
function follows(node, step, { oldById, renamed, gone, forwardChanged }) {
  const marked = (id) => Boolean(step.byId.get(id)?.mark);
  const ownWork = node.mark !== "changed" || doingOf(node.was) !== doingOf(node);
  if (isBack(node)) return forwardChanged && (node.mark !== "changed" || !ownWork || marked(node.forward));
  if (ownWork) return false;
  if (node.inputs.some(([id]) => marked(id))) return true;
  // It reads something else: only because what it read is gone, or because it was wired anew?
  const [now, then] = [readsOf(node, step.byId), readsOf(node.was, oldById, renamed)];
  return then.some(([name], i) => gone.has(name) && name !== now[i]?.[0]);
}

function addGhosts(step, before, lost, pairs) {
  const names = new Map([...pairs].map(([node, was]) => [was.id, node.id]));
  let next = Math.max(0, ...step.nodes.map((node) => node.id)) + 1;
  for (const was of lost) names.set(was.id, next++);
  step.removed = lost;
  // A ghost stands behind what it followed when it was there.
  const orders = new Map([...pairs].map(([node, was]) => [was, node.order]));
  const places = new Map();
  let last = -1;
  for (const was of before.nodes) places.set(was, (last = orders.get(was) ?? last) + 0.5);
  for (const was of lost) {
    const ghost = {
      ...was,
      id: names.get(was.id),
      inputs: was.inputs.map(([id, output]) => [names.get(id), output]),
      forward: was.forward === null ? null : names.get(was.forward) ?? null,
      order: places.get(was),
      users: [],
      partners: [],
      was: null,
      mark: "removed",
      faint: false,
      ghost: true,
    };
    step.nodes.push(ghost);
    step.byId.set(ghost.id, ghost);
    step.byName.set(ghost.name, ghost);
  }
}
