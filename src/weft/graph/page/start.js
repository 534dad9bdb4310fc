// The last of the scripts: everything is defined, so begin.

function start() {
  app.setTheme(prefersDark.matches ? "dark" : "light");
  app.painter.resize();
  listenCanvas(byId("graph"));
  listenMap(byId("map"));
  listenKeys();
  listenControls();
  listenTree(app);
  byId("modules").setAttribute("aria-pressed", String(getComputedStyle(byId("sidebar")).display !== "none"));
  app.showStep(app.document.steps.length - 1);
  if (!(app.tree.root.sums.back + app.tree.root.sums.updates)) byId("lanes").hidden = true;
  // Where there is something to compare, everything else steps back.
  if (Object.keys(app.tree.root.sums.marks).length) app.setColour("changes");
  if (!readAddress()) app.choose(null);
  markTicks();
  startTraining();
  if (app.live) startLive();
}

start();
