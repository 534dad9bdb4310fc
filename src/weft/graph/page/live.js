// The page beside a running program: new steps as they come, and edits that it sends back.

function address(path, more = "") {
  const token = new URLSearchParams(location.search).get("token") || "";
  return `${path}?token=${encodeURIComponent(token)}${more}`;
}

function startLive() {
  // Logs in files have no program that could be paused.
  byId("live").hidden = Boolean(app.document.training) && !hasProgram();
  byId("ops").replaceChildren(...app.settings.ops.map((name) => element("option", { value: name })));
  byId("pause").addEventListener("click", () => app.edit({ edit: app.document.paused ? "resume" : "pause" }));
  byId("once").addEventListener("click", () => app.edit({ edit: "step" }));
  byId("undo").addEventListener("click", () => app.edit({ edit: "undo" }));
  app.version = app.settings.version;
  showState();
  const events = new EventSource(address("events"));
  let failures = 0;
  events.onmessage = (event) => {
    failures = 0;
    refresh(Number(event.data));
  };
  events.onerror = () => {
    say("gone", byId("live").hidden ? "no longer served" : "the program has ended");
    if (++failures === 3) events.close();
  };
}

let refreshing = false;

/** Fetch the document if there is a newer one; one request at a time, and never a queue of them. */
async function refresh(version) {
  app.wanted = version;
  if (refreshing) return;
  refreshing = true;
  try {
    while (app.version < app.wanted) {
      const last = app.document.steps.at(-1);
      const known = `&since=${app.version}${last ? `&after=${last.step}` : ""}`;
      const answer = await fetch(address("document", known), { cache: "no-store" });
      if (!answer.ok) throw new Error(`document: ${answer.status}`);
      const news = await answer.json();
      app.version = news.version;
      if (news.document) take(merged(news));
    }
  } catch (error) {
    say("gone", String(error.message));
  } finally {
    refreshing = false;
  }
}

/** The new document: the steps that are kept, and the fresh ones. */
function merged({ document: fresh, kept, steps }) {
  const still = new Set(kept);
  return { ...fresh, steps: [...app.document.steps.filter((step) => still.has(step.step)), ...steps] };
}

function take(fresh) {
  const { steps } = app.document;
  const last = app.index >= steps.length - 1;
  const number = steps[app.index]?.step;
  app.document = fresh;
  const same = fresh.steps.findIndex((step) => step.step === number);
  if (!steps.length) app.first = app.open = null;
  app.showStep(last || same < 0 ? fresh.steps.length - 1 : same);
  if (!steps.length) firstLook();
  byId("lanes").hidden = !(app.tree.root.sums.back + app.tree.root.sums.updates);
  // The panel is left alone while the reader is busy in it.
  const panel = byId("panel");
  if (!panel.matches(":hover") && !panel.contains(document.activeElement)) fillPanel(panel, app);
  markTicks();
  takeTraining();
  showState();
}

// --- the loss curve ---

const CURVE = { width: 300, height: 84, top: 6, bottom: 6 };

/** The loss of all steps so far, with the place of the step that is shown. */
function showCurve() {
  const points = (app.document.loss || []).map(([step, value]) => [Number(step), Number(value)]);
  const known = points.filter(([, value]) => Number.isFinite(value));
  byId("curve").hidden = known.length < 2;
  if (known.length < 2) return;
  const [low, high] = lossRange(known.map(([, value]) => value));
  const [first, last] = [known[0][0], known.at(-1)[0]];
  const x = (step) => 1 + ((step - first) / (last - first || 1)) * (CURVE.width - 2);
  const span = CURVE.height - CURVE.top - CURVE.bottom;
  const inside = (v) => Math.max(CURVE.top, Math.min(CURVE.height - CURVE.bottom, v));
  const y = (value) => inside(CURVE.top + (1 - (value - low) / (high - low || 1)) * span);
  let pen = "M";
  let d = "";
  for (const [step, value] of points) {
    if (Number.isFinite(value)) d += `${pen}${x(step).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = Number.isFinite(value) ? "L" : "M";
  }
  const now = known.findLast(([step]) => step <= app.step.number) || known[0];
  const at = x(now[0]);
  const words = `loss from ${numberText(known[0][1])} to ${numberText(known.at(-1)[1])} over ${plural(last, "step")}`;
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${CURVE.width} ${CURVE.height}`, preserveAspectRatio: "none", role: "img", "aria-label": words },
    svg("line", { x1: 0, x2: CURVE.width, y1: CURVE.height - 0.5, y2: CURVE.height - 0.5 }),
    svg("path", { d, "vector-effect": "non-scaling-stroke" }),
    svg("line", { class: "now", x1: at, x2: at, y1: 0, y2: CURVE.height }),
  );
  const value = element("span", {}, element("b", {}, "Loss "), `${numberText(now[1])} at step ${now[0].toLocaleString("en")}`);
  const range = element("span", {}, `${plural(Number(app.document.ended ?? last), "step")} so far`);
  byId("curve").replaceChildren(element("figcaption", {}, value, range), picture);
}

/** What the curve shows: all but the wildest hundredth, so that one spike does not flatten the rest. */
function lossRange(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const cut = sorted.length > 50 ? Math.floor(sorted.length * 0.01) : 0;
  return [sorted[0], sorted[sorted.length - 1 - cut]];
}

function showState() {
  const paused = Boolean(app.document.paused);
  byId("pause").textContent = paused ? "Resume" : "Pause";
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("undo").disabled = !app.document.edits?.length;
  const refusal = app.refusal || app.document.note;
  if (refusal) say("refused", refusal);
  else if (byId("live").hidden) say("running", "following the logs");
  else say(paused ? "paused" : "running", paused ? "paused" : "running");
}

function say(state, words) {
  const status = byId("status");
  status.className = state;
  status.textContent = words;
}

/** Send an edit; the program answers at once whether it takes it. A refusal is shown until the next
 * edit: documents that arrive meanwhile don't wipe it away. */
app.edit = async (request) => {
  try {
    const answer = await fetch(address("edit"), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
    });
    const said = await answer.json();
    app.refusal = said.error;
    if (said.error) say("refused", said.error);
    else if (said.waiting) say("running", `${request.edit}: waits for the end of the step`);
    return said;
  } catch (error) {
    say("gone", "the program has ended");
    return { error: String(error.message) };
  }
};
