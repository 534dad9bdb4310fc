// The tree of modules beside the drawing: the same folds, for eyes and for the keyboard.

/** Fill the tree with the modules of the step that is shown; what is folded there is folded here. */
function fillTree(app) {
  const box = byId("tree");
  const groups = app.tree.root.children.filter((item) => item.type === "group" && !item.ops);
  const focused = box.contains(document.activeElement) ? document.activeElement.dataset.path : null;
  box.replaceChildren(...groups.map((group) => treeItem(group, app, 1)));
  byId("sidebar").classList.toggle("bare", !groups.length);
  markTree(app);
  if (focused !== null) rowOf(focused)?.focus();
}

function treeItem(group, app, level) {
  const inner = group.children.filter((item) => item.type === "group" && !item.ops);
  const open = app.open.has(group.path);
  const words = group.run ? countWords(group) : group.cls;
  const count = group.sums.parameters;
  const row = element(
    "div",
    { class: "row", role: "treeitem", tabindex: "-1", "aria-level": level, "aria-expanded": String(open), "data-path": group.path },
    element("span", { class: "twist", "aria-hidden": "true", onclick: (event) => (event.stopPropagation(), app.toggle(group)) }, open ? "▾" : "▸"),
    element("b", {}, group.label),
    element("span", { class: "cls" }, words),
    count ? element("span", { class: "count", title: `${plural(count, "parameter")}` }, flopsText(count)) : null,
  );
  row.style.paddingLeft = `${4 + 12 * (level - 1)}px`;
  row.addEventListener("click", () => app.go(group));
  const parts = open ? inner.map((child) => treeItem(child, app, level + 1)) : [];
  return element("div", { role: "none" }, row, ...parts);
}

function rowOf(path) {
  return byId("tree").querySelector(`[data-path="${CSS.escape(path)}"]`);
}

/** Show which module is chosen, or holds what is chosen; one row can be reached by Tab. */
function markTree(app) {
  const rows = [...byId("tree").querySelectorAll("[role=treeitem]")];
  let group = app.chosen?.type === "group" ? app.chosen : app.chosen?.slot?.parent;
  while (group && !rowOf(group.path)) group = group.parent;
  for (const row of rows) {
    const mine = Boolean(group) && row.dataset.path === group.path;
    row.setAttribute("aria-selected", String(mine));
    row.tabIndex = mine || (!group && row === rows[0]) ? 0 : -1;
    if (mine) row.scrollIntoView({ block: "nearest" });
  }
  if (rows.length && !rows.some((row) => row.tabIndex === 0)) rows[0].tabIndex = 0;
}

/** Keys as trees have them: up and down, right to open, left to close or to go to what is around. */
function listenTree(app) {
  byId("tree").addEventListener("keydown", (event) => {
    const row = event.target.closest("[role=treeitem]");
    const group = row && app.tree.groups.get(row.dataset.path);
    if (!group) return;
    const rows = [...byId("tree").querySelectorAll("[role=treeitem]")];
    const at = rows.indexOf(row);
    const open = app.open.has(group.path);
    const acts = {
      ArrowDown: () => rows[at + 1]?.focus(),
      ArrowUp: () => rows[at - 1]?.focus(),
      Home: () => rows[0].focus(),
      End: () => rows.at(-1).focus(),
      ArrowRight: () => (open ? rows[at + 1]?.focus() : app.toggle(group)),
      ArrowLeft: () => (open ? app.toggle(group) : rowOf(group.parent?.path ?? "")?.focus()),
      Enter: () => app.go(group),
      " ": () => app.toggle(group),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  });
}
