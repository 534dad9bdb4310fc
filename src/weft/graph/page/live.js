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
  if (!steps.length) app.fit();
  byId("lanes").hidden = !(app.tree.root.sums.back + app.tree.root.sums.updates);
  // The panel is left alone while the reader is busy in it.
  const panel = byId("panel");
  if (!panel.matches(":hover") && !panel.contains(document.activeElement)) fillPanel(panel, app);
  markTicks();
  takeTraining();
  showState();
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
