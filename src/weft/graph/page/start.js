// The last of the scripts: everything is defined, so begin.

function start() {
  app.setTheme(prefersDark.matches ? "dark" : "light");
  app.painter.resize();
  listenCanvas(byId("graph"));
  listenMap(byId("map"));
  listenKeys();
  listenControls();
  app.showStep(app.document.steps.length - 1);
  if (!(app.tree.root.sums.back + app.tree.root.sums.updates)) byId("lanes").hidden = true;
  app.choose(null);
  markTicks();
  startTraining();
  if (app.live) startLive();
}

start();
