// Where a node comes from: its lines of source, and the lines that called them.

/** The lines around a place such as "model.py:12", with the line itself marked. */
function sourceLines(place, step) {
  const cut = place.lastIndexOf(":");
  const lines = step.lines[place.slice(0, cut)];
  const at = Number(place.slice(cut + 1));
  if (!lines) return null;
  const near = Object.keys(lines).map(Number).filter((k) => Math.abs(k - at) <= 3).sort((a, b) => a - b);
  if (!near.length) return null;
  const indent = Math.min(...near.filter((k) => lines[k].trim()).map((k) => lines[k].search(/\S/)));
  const list = element("pre", { class: "source" });
  for (const k of near) {
    const number = element("i", { "aria-hidden": "true" }, String(k));
    const text = element("span", {}, lines[k].slice(Math.max(0, indent)) || " ");
    list.append(element(k === at ? "mark" : "span", { class: "line" }, number, text));
  }
  return list;
}

function lastPath(place) {
  return place.split(/[\\/]/).at(-1);
}

/** The section of the panel: the innermost lines, then its callers, each of which opens. */
function aboutSource(node, step) {
  if (!node.source) return null;
  const callers = (step.stacks[node.stack] || []).slice(1);
  const parts = [element("p", { class: "place", title: node.source }, element("code", {}, lastPath(node.source)))];
  const own = sourceLines(node.source, step);
  if (own) parts.push(own);
  for (const place of callers) {
    const cut = place.lastIndexOf(":");
    const text = (step.lines[place.slice(0, cut)]?.[place.slice(cut + 1)] || "").trim();
    const words = [element("code", {}, lastPath(place)), " ", element("span", { class: "called" }, text)];
    const lines = sourceLines(place, step);
    parts.push(
      lines
        ? element("details", { class: "caller" }, element("summary", { title: place }, ...words), lines)
        : element("p", { class: "caller", title: place }, ...words),
    );
  }
  if (callers.length) parts.splice(own ? 2 : 1, 0, element("p", { class: "hint" }, "called from"));
  return section("Source", ...parts);
}
