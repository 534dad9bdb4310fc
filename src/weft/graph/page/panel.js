// The panel beside the graph: one node, one group, or the whole step.

const LONG_LIST = 12;

/** Fill the panel for what is chosen. `go` moves to a node or a group. */
function fillPanel(panel, app) {
  const { chosen } = app;
  const parts = !chosen ? overview(app) : chosen.type === "group" ? aboutGroup(chosen, app) : aboutNode(chosen, app);
  panel.replaceChildren(...parts.filter(Boolean));
}

function section(title, ...children) {
  return element("section", {}, element("h3", {}, title), ...children);
}

function rows(pairs) {
  const list = element("dl");
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(element("dt", {}, name), element("dd", {}, value));
  }
  return list.childElementCount ? list : null;
}

/** A dotted name that a narrow column may break after a dot. */
function breakable(name) {
  return name.split(/(?<=\.)/).flatMap((part) => [part, element("wbr")]);
}

function nodeLink(node, app, note = "") {
  const dot = element("i", { class: `dot ${node.kind}`, "aria-hidden": "true" });
  const button = element("button", { class: "link", type: "button", onclick: () => app.go(node) }, dot, ...breakable(node.name));
  const words = note || shapeText(node.shape);
  return element("li", {}, button, element("span", { class: "note" }, words));
}

function nodeList(title, entries, app) {
  if (!entries.length) return null;
  const list = element("ul", { class: "nodes" });
  const show = (some) => list.append(...some.map(([node, note]) => nodeLink(node, app, note)));
  show(entries.slice(0, LONG_LIST));
  const rest = entries.slice(LONG_LIST);
  const more =
    rest.length > 0
      ? element("button", { class: "more", type: "button", onclick: () => (show(rest), more.remove()) }, `${rest.length} more`)
      : null;
  return section(title, list, more);
}

function crumbs(path, app) {
  if (!path) return null;
  const nav = element("nav", { class: "crumbs", "aria-label": "module" });
  const words = path.split(".");
  words.forEach((word, i) => {
    const group = app.tree.groups.get(words.slice(0, i + 1).join(".")) || null;
    if (i) nav.append(element("span", { "aria-hidden": "true" }, "›"));
    nav.append(
      group
        ? element("button", { class: "link", type: "button", onclick: () => app.go(group) }, word)
        : element("span", {}, word),
    );
  });
  return nav;
}

// --- a node ---

function aboutNode(node, app) {
  const live = app.live && !node.ghost ? editForm(node, app) : null;
  const back = node.partners.filter((other) => other.kind === "backward");
  const updates = node.partners.filter((other) => other.kind === "optimizer");
  const pairs = [
    ...(node.partner ? [[node.partner, "forward"]] : []),
    ...back.map((other) => [other, "backward"]),
    ...updates.map((other) => [other, "update"]),
  ];
  return [
    element(
      "header",
      {},
      element("span", { class: `chip ${node.kind}` }, KIND_WORDS[node.kind]),
      element("h2", {}, ...breakable(node.name)),
      crumbs(node.module, app),
    ),
    changeNote(node, app),
    rows([
      ["op", element("code", {}, node.op)],
      ["shape", element("code", {}, shapeText(node.shape))],
      ["dtype", element("code", {}, String(node.dtype))],
      ["size", bytesText(number(node.bytes) || 0)],
      ["FLOPs", node.flops ? flopsText(number(node.flops)) : null],
      ["time", number(node.time) === null ? null : timeText(number(node.time))],
      ["gradient norm", number(node.grad_norm) === null ? null : numberText(number(node.grad_norm))],
      ["category", node.category],
    ]),
    attributes(node),
    live,
    aboutSource(node, app.step),
    node.stats ? section("Values", ...valuesOf(node.stats)) : null,
    nodeList("Inputs", node.sources.map((s) => [s.node, s.output ? `output ${s.output}` : ""]), app),
    nodeList("Used by", node.users.map((user) => [user, ""]), app),
    nodeList("Partners", pairs, app),
    history(node, app),
  ];
}

function attributes(node) {
  const entries = Object.entries(node.attrs || {});
  if (!entries.length) return null;
  return section("Attributes", rows(entries.map(([k, v]) => [k, element("code", {}, printable(v))])));
}

function printable(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** What differs from the node of the same name one step before. */
function changeNote(node, app) {
  if (!node.mark) return null;
  const words = { added: "New in this step.", removed: "Gone since the step before.", changed: "Changed since the step before." };
  const said = words[node.mark] + (node.faint ? " This follows from other changes." : "");
  const note = element("div", { class: `change ${node.mark}` }, said);
  const { was } = node;
  if (!was) return note;
  const differing = ["op", "kind", "dtype", "shape", "attrs"].filter(
    (key) => JSON.stringify(was[key]) !== JSON.stringify(node[key]),
  );
  const text = (one, key) => (key === "shape" ? shapeText(one[key]) : printable(one[key]));
  const lines = differing.map((key) => [key, `${text(was, key)} → ${text(node, key)}`]);
  if (was.name !== node.name) lines.unshift(["name", `${was.name} → ${node.name}`]);
  if (!lines.length) lines.push(["inputs", "read from other nodes than before"]);
  note.append(rows(lines));
  return note;
}

function valuesOf(stats) {
  const value = (name) => numberText(number(stats[name]));
  const bad = [];
  if (stats.nan) bad.push(plural(stats.nan, "NaN"));
  if (stats.inf) bad.push(`${stats.inf.toLocaleString("en")} inf`);
  return [
    bad.length ? element("p", { class: "bad" }, bad.join(", ")) : null,
    stats.hist && stats.hist.length ? histogram(stats) : null,
    rows([
      ["min", value("min")],
      ["max", value("max")],
      ["mean", value("mean")],
      ["std", value("std")],
    ]),
  ].filter(Boolean);
}

function histogram(stats) {
  const { hist } = stats;
  const most = Math.max(1, ...hist);
  const high = 64;
  const step = 280 / hist.length;
  const bars = hist.map((n, i) => {
    const h = n ? Math.max(1, (n / most) * high) : 0;
    const bar = svg("rect", { x: i * step, y: high - h, width: Math.max(0.5, step - 1), height: h, rx: 1 });
    bar.append(svg("title", {}, n.toLocaleString("en")));
    return bar;
  });
  const words = `histogram of the values from ${numberText(number(stats.lo))} to ${numberText(number(stats.hi))}`;
  const ends = element(
    "div",
    { class: "ends" },
    element("span", {}, numberText(number(stats.lo))),
    element("span", {}, numberText(number(stats.hi))),
  );
  const picture = svg("svg", { viewBox: `0 0 280 ${high}`, role: "img", "aria-label": words, class: "histogram" }, ...bars);
  return element("div", {}, picture, ends);
}

/** How a node's numbers moved over the steps. */
function history(node, app) {
  if (app.document.steps.length < 3) return null;
  const found = app.document.steps.map((step) => app.rawNode(step, node.name));
  const lines = [
    ["gradient norm", (n) => number(n.grad_norm), numberText],
    ["mean", (n) => number(n.stats?.mean), numberText],
    ["std", (n) => number(n.stats?.std), numberText],
    ["time", (n) => number(n.time), timeText],
  ]
    .map(([name, of, text]) => [name, found.map((n) => (n ? of(n) : null)), text])
    .filter(([, values]) => values.filter((v) => v !== null && Number.isFinite(v)).length > 1);
  if (!lines.length) return null;
  const list = element("div", { class: "history" });
  for (const [name, values, text] of lines) {
    const now = values[app.index];
    list.append(
      element("span", {}, name),
      sparkline(values, app.index, `${name} over the steps`),
      element("code", {}, now === null ? "–" : text(now)),
    );
  }
  return section("Over the steps", list);
}

function sparkline(values, at, words) {
  const known = values.filter((v) => v !== null && Number.isFinite(v));
  const low = Math.min(...known);
  const span = Math.max(...known) - low || 1;
  const x = (i) => 2 + (116 * i) / Math.max(1, values.length - 1);
  const y = (v) => 22 - (20 * (v - low)) / span;
  const points = [];
  values.forEach((v, i) => {
    if (v !== null && Number.isFinite(v)) points.push(`${x(i).toFixed(1)},${y(v).toFixed(1)}`);
  });
  const line = svg("polyline", { points: points.join(" "), fill: "none" });
  const parts = [line];
  const now = values[at];
  if (now !== null && Number.isFinite(now)) parts.push(svg("circle", { cx: x(at), cy: y(now), r: 2.5 }));
  return svg("svg", { viewBox: "0 0 120 24", role: "img", "aria-label": words, class: "spark" }, ...parts);
}

// --- a group, and the whole ---

function sumRows(sums) {
  return rows([
    [
      "nodes",
      `${sums.fore - sums.goneFore} forward, ${sums.back - sums.goneBack} backward, ` +
        plural(sums.updates - sums.goneUpdates, "update"),
    ],
    ["parameters", sums.parameters ? sums.parameters.toLocaleString("en") : null],
    ["size", bytesText(sums.bytes)],
    ["FLOPs", flopsText(sums.flops)],
    ["time", sums.timed ? timeText(sums.time) : null],
    ["largest gradient", sums.grad === null ? null : numberText(sums.grad)],
    ["with NaN", sums.nan ? plural(sums.nan, "node") : null],
    ["with inf", sums.inf ? plural(sums.inf, "node") : null],
  ]);
}

function costly(nodes, app) {
  const timed = nodes.filter((node) => number(node.time) > 0);
  const by = timed.length ? "time" : "bytes";
  const text = timed.length ? timeText : bytesText;
  const most = [...(timed.length ? timed : nodes)].sort((a, b) => (number(b[by]) || 0) - (number(a[by]) || 0));
  const entries = most.slice(0, 6).map((node) => [node, text(number(node[by]) || 0)]);
  return nodeList(timed.length ? "Slowest" : "Largest", entries, app);
}

function aboutGroup(group, app) {
  const open = app.open.has(group.path);
  const toggle = element(
    "button",
    { class: "wide", type: "button", onclick: () => app.toggle(group) },
    open ? "Fold" : "Unfold",
  );
  return [
    element(
      "header",
      {},
      element("span", { class: "chip" }, group.ops ? "nodes" : "module"),
      element("h2", {}, ...breakable(group.path)),
      element("p", { class: "class" }, group.run ? countWords(group) : group.cls),
      crumbs(group.path, app),
    ),
    toggle,
    sumRows(group.sums),
    costly(nodesBelow(group), app),
    nodeList("Parameters", parametersOf(group), app),
  ];
}

function parametersOf(group) {
  return nodesBelow(group)
    .filter((node) => node.kind === "parameter")
    .map((node) => [node, bytesText(number(node.bytes) || 0)]);
}

function overview(app) {
  const { step, tree } = app;
  const marked = (mark) => step.nodes.filter((node) => node.mark === mark && !node.faint).map((node) => [node, ""]);
  const following = step.nodes.filter((node) => node.faint).map((node) => [node, node.mark]);
  const several = app.document.steps.length > 1;
  const words = several ? `Step ${step.number}` : "";
  return [
    element("header", {}, element("h2", {}, app.document.title || "Graph"), element("p", { class: "class" }, words)),
    sumRows(tree.root.sums),
    activeEdits(app.document.edits || []),
    nodeList("Added since the step before", marked("added"), app),
    nodeList("Removed since the step before", marked("removed"), app),
    nodeList("Changed since the step before", marked("changed"), app),
    nodeList("Follows from that", following, app),
    costly(step.nodes.filter((node) => !node.ghost), app),
    keys(),
  ];
}

function activeEdits(edits) {
  if (!edits.length) return null;
  return section("Edits in force", element("ol", { class: "edits" }, ...edits.map((said) => element("li", {}, said))));
}

function keys() {
  const all = [
    ["arrows", "move"],
    ["+ −", "zoom"],
    ["0", "fit everything"],
    ["/", "search"],
    ["n p", "next, previous find"],
    ["⇧ arrows", "walk along edges"],
    ["Enter", "fold or unfold"],
    ["[ ]", "step before, after"],
    ["Esc", "clear"],
  ];
  const list = element("dl", { class: "keys" });
  for (const [key, words] of all) list.append(element("dt", {}, element("kbd", {}, key)), element("dd", {}, words));
  return section("Keys", list);
}

// --- edits of a running program ---

function editForm(node, app) {
  if (node.kind !== "forward") return null;
  const op = element("input", { id: "edit-op", list: "ops", "aria-label": "op", placeholder: "op, such as relu", autocomplete: "off", spellcheck: "false" });
  const send = (edit, withOp) => () => {
    if (withOp && !op.value.trim()) {
      op.focus();
      return;
    }
    app.edit(withOp ? { edit, node: node.name, op: op.value.trim() } : { edit, node: node.name });
  };
  const button = (words, edit, withOp) =>
    element("button", { type: "button", "data-edit": edit, onclick: send(edit, withOp) }, words);
  return section(
    "Edit the running program",
    op,
    element("div", { class: "buttons" }, button("Replace", "replace", true), button("Insert after", "insert", true), button("Remove", "remove", false)),
    element("p", { class: "hint" }, "Acts from the next step on; what would break shapes or dtypes is refused."),
  );
}
