// The training view: curves, layers, speed, memory and samples of one run or several.

const RUN_COLOURS = {
  light: ["#3c4fd0", "#c2410c", "#0f766e", "#a21caf", "#4d7c0f", "#b91c1c", "#0369a1", "#854d0e"],
  dark: ["#97a5ff", "#fb923c", "#2dd4bf", "#e879f9", "#a3e635", "#f87171", "#38bdf8", "#facc15"],
};
const GROUPS = [
  ["Loss and metrics", (tag) => !SPECIAL.some((is) => is(tag))],
  ["Learning rate", isRate],
  ["Gradient norms", isNorm],
  ["Update ratios", isRatio],
  ["Speed and memory", isCost],
];
const SPECIAL = [isRate, isNorm, isRatio, isCost, (tag) => tag === "epoch"];
const CHART = { width: 420, height: 210, left: 52, right: 12, top: 12, bottom: 26 };
const FEW_POINTS = 20; // up to which a curve is drawn as it is
const MOST_LINES = 24; // in a chart; more than that nobody can tell apart

const training = { off: new Set(), smooth: 0.6, across: "step", log: false, shown: "", fitted: false };

function lastPart(tag) {
  return tag.split("/").at(-1);
}
function isRate(tag) {
  return /(^|\/)lr(\/|$|-)/.test(tag);
}
function isNorm(tag) {
  return tag === "grad_norm" || tag.startsWith("grad_norm/");
}
function isRatio(tag) {
  return tag.startsWith("update_ratio");
}
function isCost(tag) {
  return /(_per_second|memory)$/.test(tag);
}

// --- what goes into which chart ---

/** The charts: a title and lines, each a run's series with its colour. */
function chartsOf(runs, theme) {
  const colours = RUN_COLOURS[theme];
  const charts = new Map(GROUPS.map(([title]) => [title, new Map()]));
  runs.forEach((run, k) => {
    if (training.off.has(run.name)) return;
    const layers = new Map();
    for (const [tag, points] of Object.entries(run.series)) {
      const group = GROUPS.find(([, holds]) => holds(tag))?.[0];
      if (!group || isRepeated(tag, run.series)) continue;
      const byLayer = (isNorm(tag) || isRatio(tag)) && tag.includes("/");
      const many = runs.length > 1 ? ` · ${run.name}` : "";
      const title = byLayer ? `${tag.split("/")[0]} by layer${many}` : titleOf(tag);
      const chart = entryOf(charts.get(group), title, () => ({ title, lines: [], byLayer }));
      const place = byLayer ? entryOf(layers, title, () => []).push(tag) - 1 : k;
      chart.lines.push({
        name: byLayer ? tag.slice(tag.indexOf("/") + 1) : lineName(run, tag, runs.length > 1),
        colour: colours[place % colours.length],
        steps: isRate(tag),
        dashed: isHeldOut(tag) || (byLayer && place >= colours.length),
        points,
      });
    }
  });
  return charts;
}

function entryOf(map, key, make) {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
}

const isHeldOut = (tag) => /(^|\/)(val|test)[_/]/.test(tag);

/** Training and validation stand in one chart. */
function titleOf(tag) {
  const byEpoch = tag.startsWith("epoch/");
  const bare = tag.replace(/^epoch\//, "").replace(/^(val|test)[_/]/, "");
  return byEpoch ? `${bare} (by epoch)` : bare;
}

/** What is logged by step need not be shown by epoch again, if it is the same thing. */
function isRepeated(tag, series) {
  return tag.startsWith("epoch/") && (isRate(tag) || isCost(tag)) && tag.slice(6) in series;
}

function lineName(run, tag, several) {
  const held = isHeldOut(tag) ? "validation" : "";
  return [several ? run.name : "", several ? held : held || tag].filter(Boolean).join(" ");
}

// --- curves ---

/** A running mean without the bias of its start; gaps stay gaps. */
function smoothed(values, amount) {
  let mean = 0;
  let weight = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return NaN;
    mean = amount * mean + (1 - amount) * value;
    weight = amount * weight + (1 - amount);
    return mean / weight;
  });
}

function prepared(line) {
  const first = line.points.length ? Number(line.points[0][2]) : 0;
  const xs = line.points.map((p) => (training.across === "step" ? Number(p[0]) : Number(p[2]) - first));
  const raw = line.points.map((p) => (training.log && Number(p[1]) <= 0 ? NaN : Number(p[1])));
  const ys = training.smooth && raw.length >= FEW_POINTS && !line.steps ? smoothed(raw, training.smooth) : raw;
  return { ...line, xs, raw, ys };
}

/** All values, but for spikes that would flatten the rest to less than half of the height. */
function valueRange(lines) {
  const values = lines.flatMap((line) => line.ys).filter(Number.isFinite).sort((a, b) => a - b);
  if (!values.length) return null;
  const cut = values.length > 50 ? Math.floor(values.length * 0.01) : 0;
  let [low, high] = [values[0], values.at(-1)];
  const middle = [values[cut], values[values.length - 1 - cut]];
  if (high - low > 2 * (middle[1] - middle[0]) && !training.log) [low, high] = middle;
  if (training.log) return low === high ? [low / 2, high * 2] : [low, high];
  if (!low && !high) return [0, 1];
  // Rounding alone is no difference.
  if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) [low, high] = [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
  const margin = (high - low) * 0.06;
  return [low - margin, high + margin];
}

function axisTicks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  const first = Math.ceil(low / step);
  for (let k = first; k * step <= high && k < first + 2 * count; k++) found.push(k * step || 0); // no minus zero
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let k = Math.ceil(Math.log10(low)); k <= Math.log10(high); k++) found.push(10 ** k);
  return found.length > 1 ? found : [low, high];
}

function valueText(title, value) {
  if (title.startsWith("memory")) return bytesText(value);
  if (Math.abs(value) >= 1e4 && Math.abs(value) < 1e7) return Math.round(value).toLocaleString("en");
  return numberText(value).replace(/(\.\d*?)0+(e|$)/, "$1$2").replace(/\.(e|$)/, "$1");
}

function acrossText(value) {
  return training.across === "step" ? numberText(value) : timeText(value);
}

function drawChart(chart) {
  const lines = chart.lines.slice(0, MOST_LINES).map(prepared);
  const { width, height, left, right, top, bottom } = CHART;
  const xs = lines.flatMap((line) => line.xs);
  const [x0, x1] = [xs.reduce((a, b) => Math.min(a, b), Infinity), xs.reduce((a, b) => Math.max(a, b), -Infinity)];
  const bounds = valueRange(lines);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": chart.title });
  if (bounds) {
    const level = training.log ? Math.log : (v) => v;
    const [low, high] = bounds.map(level);
    const px = (x) => left + ((x - x0) / (x1 - x0 || 1)) * (width - left - right);
    const py = (y) => height - bottom - ((level(y) - low) / (high - low || 1)) * (height - top - bottom);
    drawAxes(picture, chart.title, bounds, [x0, x1], px, py);
    const inside = (y) => Math.max(-height, Math.min(2 * height, y));
    // What is cut off leaves the frame; along its edge it would look like a plateau.
    const [wide, tall] = [width - left - right + 2, height - top - bottom + 4];
    const frame = svg("svg", { x: left, y: top - 2, width: wide, height: tall, viewBox: `${left} ${top - 2} ${wide} ${tall}` });
    for (const line of lines) {
      if (line.ys !== line.raw) frame.append(curvePath(line, line.raw, px, py, inside, "raw"));
      frame.append(curvePath(line, line.ys, px, py, inside, "line"));
    }
    picture.append(frame, ...cutNote(chart.title, lines, bounds));
    listenChart(picture, chart, lines, px, py);
  }
  return picture;
}

/** Says so if curves go beyond the chart, above its frame. */
function cutNote(title, lines, [low, high]) {
  const values = lines.flatMap((line) => line.ys).filter(Number.isFinite);
  const [least, most] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
  if (least >= low && most <= high) return [];
  const words = `all from ${valueText(title, least)} to ${valueText(title, most)}`;
  return [svg("text", { class: "tick end cut", x: CHART.width - CHART.right, y: CHART.top - 4 }, words)];
}

function drawAxes(picture, title, [low, high], [x0, x1], px, py) {
  const { width, height, left, right, bottom } = CHART;
  const told = new Set(); // parts of a byte have the words of whole ones
  for (const value of training.log ? logTicks(low, high) : axisTicks(low, high, 4)) {
    const words = valueText(title, value);
    if (told.has(words)) continue;
    told.add(words);
    picture.append(
      svg("line", { class: "grid", x1: left, x2: width - right, y1: py(value), y2: py(value) }),
      svg("text", { class: "tick end", x: left - 6, y: py(value) + 4 }, words),
    );
  }
  for (const value of x1 > x0 ? axisTicks(x0, x1, 5) : [x0]) {
    picture.append(svg("text", { class: "tick middle", x: px(value), y: height - bottom + 17 }, acrossText(value)));
  }
}

function curvePath(line, values, px, py, inside, name) {
  let pen = false;
  let d = "";
  values.forEach((value, k) => {
    if (Number.isFinite(value)) d += `${pen ? "L" : "M"}${px(line.xs[k]).toFixed(1)} ${inside(py(value)).toFixed(1)}`;
    pen = Number.isFinite(value);
  });
  const dash = line.dashed ? { "stroke-dasharray": "5 3" } : {};
  // A single point is no line; a dot shows it.
  if (values.filter(Number.isFinite).length === 1) d += "h0.01";
  return svg("path", { class: name, d, stroke: line.colour, ...dash });
}

/** What is under the mouse: the values of all lines at that place. */
function listenChart(picture, chart, lines, px, py) {
  const rule = svg("line", { class: "rule", y1: CHART.top, y2: CHART.height - CHART.bottom, visibility: "hidden" });
  picture.append(rule);
  picture.addEventListener("pointermove", (event) => {
    const frame = picture.getBoundingClientRect();
    const x = ((event.clientX - frame.left) / frame.width) * CHART.width;
    const found = lines.map((line) => [line, nearestPoint(line.xs, x, px)]).filter(([, k]) => k >= 0);
    if (!found.length) return;
    const place = px(found[0][0].xs[found[0][1]]);
    for (const [name, value] of [["x1", place], ["x2", place], ["visibility", "visible"]]) rule.setAttribute(name, value);
    showChartTip(event, chart, found);
  });
  picture.addEventListener("pointerleave", () => {
    rule.setAttribute("visibility", "hidden");
    byId("chart-tip").hidden = true;
  });
}

function nearestPoint(xs, x, px) {
  let best = -1;
  xs.forEach((value, k) => {
    if (best < 0 || Math.abs(px(value) - x) < Math.abs(px(xs[best]) - x)) best = k;
  });
  return best;
}

function showChartTip(event, chart, found) {
  const tip = byId("chart-tip");
  const [line, k] = found[0];
  const rows = found
    .sort((a, b) => b[0].ys[b[1]] - a[0].ys[a[1]])
    .slice(0, 12)
    .map(([each, i]) => element("div", {}, swatch(each), each.name, element("code", {}, valueText(chart.title, each.raw[i]))));
  tip.replaceChildren(element("b", {}, `${training.across} ${acrossText(line.xs[k])}`), ...rows);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - width - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - height - 8)}px`;
}

function swatch(line) {
  const made = svg("svg", { class: "swatch", viewBox: "0 0 16 8" });
  const dash = line.dashed ? { "stroke-dasharray": "5 3" } : {};
  made.append(svg("path", { d: "M0 4H16", stroke: line.colour, "stroke-width": 3, ...dash }));
  return made;
}

// --- the view ---

function chartCard(chart) {
  const last = (line) => line.points.map((p) => Number(p[1])).findLast(Number.isFinite) ?? NaN;
  const words = chart.lines
    .slice(0, MOST_LINES)
    .map((line) => element("li", {}, swatch(line), line.name, element("code", {}, valueText(chart.title, last(line)))));
  const more = chart.lines.length - words.length;
  if (more > 0) words.push(element("li", { class: "more" }, `and ${plural(more, "line")} more`));
  return element("figure", { class: "chart" }, element("figcaption", {}, chart.title), drawChart(chart), element("ul", {}, ...words));
}

function samplesOf(runs) {
  return runs
    .filter((run) => !training.off.has(run.name))
    .flatMap((run) =>
      run.images.map((image) => {
        const words = `${runs.length > 1 ? `${run.name} · ` : ""}${image.tag} · step ${image.step}`;
        const picture = element("img", { src: `data:image/png;base64,${image.data}`, alt: words });
        return element("figure", { class: "sample" }, picture, element("figcaption", {}, words));
      }),
    );
}

function fillTraining() {
  const { runs, note } = app.document.training;
  const theme = app.look.theme.name;
  const sections = [];
  for (const [title, charts] of chartsOf(runs, theme)) {
    if (!charts.size) continue;
    const cards = [...charts.values()].sort((a, b) => a.byLayer - b.byLayer).map(chartCard);
    sections.push(element("section", {}, element("h2", {}, title), element("div", { class: "charts" }, ...cards)));
  }
  const samples = samplesOf(runs);
  if (samples.length) {
    sections.push(element("section", {}, element("h2", {}, "Samples"), element("div", { class: "samples" }, ...samples)));
  }
  if (note || !sections.length) sections.unshift(element("p", { class: "note" }, note || "The first numbers will appear here."));
  const box = byId("curves");
  const place = box.scrollTop;
  box.replaceChildren(...sections);
  box.scrollTop = place;
  byId("chart-tip").hidden = true;
  fillRuns(runs, theme);
}

function fillRuns(runs, theme) {
  const colours = RUN_COLOURS[theme];
  const rows = runs.map((run, k) => {
    const box = element("input", {
      type: "checkbox",
      checked: !training.off.has(run.name),
      onchange: (event) => {
        training.off[event.target.checked ? "delete" : "add"](run.name);
        fillTraining();
      },
    });
    const line = { colour: colours[k % colours.length] };
    return element("li", {}, element("label", {}, box, swatch(line), element("span", {}, run.name)), element("small", {}, runWords(run)));
  });
  byId("runs").replaceChildren(...rows);
}

function runWords(run) {
  const all = Object.values(run.series);
  const step = all.map((points) => Number(points.at(-1)[0])).reduce((a, b) => Math.max(a, b), 0);
  const starts = all.map((points) => Number(points[0][2])).reduce((a, b) => Math.min(a, b), Infinity);
  const ends = all.map((points) => Number(points.at(-1)[2])).reduce((a, b) => Math.max(a, b), 0);
  return all.length ? `${plural(step, "step")}, ${timeText(Math.max(0, ends - starts))}` : "";
}

/** Show the graph or the training. */
function showView(name) {
  training.shown = name;
  document.body.dataset.view = name;
  for (const button of byId("views").children) button.setAttribute("aria-pressed", String(button.dataset.view === name));
  if (name === "training") return fillTraining();
  app.painter.resize();
  // While it was hidden it had no size that a graph could be fitted to.
  if (!training.fitted) firstLook();
  training.fitted ||= app.scene.faces.length > 0;
}

function startTraining() {
  if (!app.document.training) return;
  for (const button of byId("views").children) button.addEventListener("click", () => showView(button.dataset.view));
  const on = (id, type, act) => byId(id).addEventListener(type, (event) => (act(event.target), fillTraining()));
  on("smooth", "input", (input) => (training.smooth = Number(input.value)));
  on("across", "change", (select) => (training.across = select.value));
  on("log", "change", (box) => (training.log = box.checked));
  byId("theme").addEventListener("click", takeTraining);
  prefersDark.addEventListener("change", takeTraining);
  byId("views").hidden = !hasProgram() && !app.document.steps.length;
  showView("training");
}

/** Whether a program is behind the page, and not only its logs. */
function hasProgram() {
  return app.live && "paused" in app.document;
}

/** New numbers have come. */
function takeTraining() {
  if (training.shown === "training") fillTraining();
}
