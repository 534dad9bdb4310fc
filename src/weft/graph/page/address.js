// What is chosen stands in the address, so that a link leads back to it.

let written = "";

/** The node or module that is chosen, and the step if there are several, as the address's end. */
function writeAddress() {
  const { chosen } = app;
  const parts = new URLSearchParams();
  if (chosen) parts.set(chosen.type === "group" ? "module" : "node", chosen.type === "group" ? chosen.path : chosen.name);
  if (chosen && app.document.steps.length > 1 && !app.live) parts.set("step", app.step.number);
  const text = parts.toString() ? `#${parts}` : "";
  if (text === written) return;
  written = text;
  try {
    window.history.replaceState(null, "", text || location.pathname + location.search);
  } catch {
    // A page inside a notebook has no address of its own.
  }
}

/** Go to what the address names, if this document has it. */
function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const step = app.document.steps.findIndex((one) => String(one.step) === parts.get("step"));
  if (step >= 0 && step !== app.index) app.showStep(step);
  const thing = app.step.byName.get(parts.get("node")) || app.tree.groups.get(parts.get("module"));
  if (thing && thing !== app.tree.root) app.go(thing);
  return Boolean(thing);
}
