// The reader's hands: pointer, wheel, keys and controls.

function faceAt(x, y) {
  const sx = (x - app.view.x) / app.view.k;
  const sy = (y - app.view.y) / app.view.k;
  const inside = (at) => sx >= at.x && sx <= at.x + at.w && sy >= at.y && sy <= at.y + at.h;
  for (let i = app.scene.faces.length - 1; i >= 0; i--) if (inside(app.scene.faces[i])) return app.scene.faces[i];
  for (let i = app.scene.boxes.length - 1; i >= 0; i--) {
    const box = app.scene.boxes[i];
    if (inside(box)) return { box, header: sy - box.y < 28 * Math.max(1, 0.8 / app.view.k) };
  }
  return null;
}

function listenCanvas(canvas) {
  let drag = null;
  const point = (event) => {
    const frame = canvas.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    gliding++;
    drag = { at: point(event), moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = point(event);
    if (!drag) {
      hover(canvas, x, y);
      return;
    }
    const [dx, dy] = [x - drag.at[0], y - drag.at[1]];
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag.moved = true;
    drag.at = [x, y];
    app.pan(dx, dy);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) click(...point(event));
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("pointerleave", () => hover(canvas, -1e9, 0));
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      gliding++;
      const unit = event.deltaMode === 1 ? 18 : 1;
      if (event.shiftKey) app.pan(-(event.deltaX || event.deltaY) * unit, 0);
      else app.zoom(Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0016)), ...point(event));
    },
    { passive: false },
  );
}

function click(x, y) {
  const hit = faceAt(x, y);
  if (!hit) app.choose(null);
  else if (hit.box && hit.header) app.toggle(hit.box.group, hit.box.key);
  else if (hit.box) app.choose(hit.box.group);
  else if (hit.group) app.toggle(hit.group, hit.key);
  else app.choose(hit.node);
}

function hover(canvas, x, y) {
  const hit = faceAt(x, y);
  const face = hit && !hit.box ? hit : null;
  canvas.classList.toggle("over", Boolean(face || hit?.header));
  if (face !== app.look.hover) {
    app.look.hover = face;
    app.mark();
    app.paint();
  }
  showTip(face, x, y);
}

function showTip(face, x, y) {
  const tip = byId("tip");
  tip.hidden = !face;
  if (!face) return;
  const words = face.node
    ? [face.node.op, shapeText(face.node.shape), face.node.dtype, face.node.source]
    : [face.lane === 1 ? face.group.cls : null, face.sub, plural(face.group.sums.nodes, "node"), "click to unfold"];
  const sort = face.node?.category;
  if (sort && sort !== face.node.op) words.splice(1, 0, sort);
  const measure = MEASURES[app.colour];
  const value = measure ? measure.of(face) : null;
  if (value !== null) words.push(`${measure.words.toLowerCase()} ${measure.text(value)}`);
  tip.replaceChildren(
    element("b", {}, face.node ? face.node.name : face.group.path),
    element("span", {}, words.filter(Boolean).join(" · ")),
  );
  const left = Math.min(x + 14, app.painter.width - tip.offsetWidth - 8);
  const top = y + 18 + tip.offsetHeight > app.painter.height ? y - tip.offsetHeight - 10 : y + 18;
  tip.style.transform = `translate(${Math.max(4, left)}px, ${top}px)`;
}

const KEYS = {
  "+": () => app.zoom(1.25),
  "=": () => app.zoom(1.25),
  "-": () => app.zoom(0.8),
  0: () => app.fit(),
  "/": () => byId("search").focus(),
  n: () => app.findNext(1),
  p: () => app.findNext(-1),
  "[": () => app.showStep(app.index - 1),
  "]": () => app.showStep(app.index + 1),
  ArrowLeft: () => app.pan(80, 0),
  ArrowRight: () => app.pan(-80, 0),
  ArrowUp: () => app.pan(0, 80),
  ArrowDown: () => app.pan(0, -80),
};

function listenKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (event.target !== byId("graph")) byId("graph").focus();
      clearSearch();
      app.choose(null);
      return;
    }
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.shiftKey && event.key.startsWith("Arrow")) step(event.key);
    else if (event.key === "Enter" && event.target === byId("graph")) enter();
    else if (KEYS[event.key]) KEYS[event.key]();
    else return;
    event.preventDefault();
  });
}

function step(direction) {
  const face = neighbour(direction);
  if (face) app.go(face.node || face.group);
}

function enter() {
  const group = app.chosen?.type === "group" ? app.chosen : app.chosen?.slot?.parent;
  if (group?.parent) app.toggle(group);
}

function listenControls() {
  const on = (id, type, act) => byId(id).addEventListener(type, act);
  on("search", "input", (event) => app.search(event.target.value));
  on("search", "keydown", (event) => {
    if (event.key === "Enter") app.findNext(event.shiftKey ? -1 : 1);
  });
  on("find", "submit", (event) => event.preventDefault());
  on("next", "click", () => app.findNext(1));
  on("previous", "click", () => app.findNext(-1));
  on("colour", "change", (event) => app.setColour(event.target.value));
  on("unfold", "click", app.unfoldAll);
  on("fold", "click", app.foldAll);
  on("fit", "click", app.fit);
  on("in", "click", () => app.zoom(1.25));
  on("out", "click", () => app.zoom(0.8));
  on("svg", "click", () => app.save("svg"));
  on("png", "click", () => app.save("png"));
  on("modules", "click", () => {
    // In a narrow window the modules are away until asked for.
    const bar = byId("sidebar");
    const shown = getComputedStyle(bar).display !== "none";
    bar.classList.toggle("away", shown);
    bar.classList.toggle("shown", !shown);
    byId("modules").setAttribute("aria-pressed", String(!shown));
    app.minimap.prepare(app.scene, app.look);
    app.paint();
  });
  window.addEventListener("hashchange", readAddress);
  on("theme", "click", () => app.setTheme(app.look.theme.name === "dark" ? "light" : "dark"));
  on("step", "input", (event) => app.showStep(Number(event.target.value)));
  on("back", "click", () => app.showStep(app.index - 1));
  on("forth", "click", () => app.showStep(app.index + 1));
  on("play", "click", play);
  for (const button of byId("lanes").children) {
    button.addEventListener("click", () => setLanes(button.dataset.lanes));
  }
  prefersDark.addEventListener("change", (event) => app.setTheme(event.matches ? "dark" : "light"));
  new ResizeObserver(() => {
    app.painter.resize();
    app.drawNow();
  }).observe(byId("stage"));
}

let playing = null;

function play() {
  clearInterval(playing);
  if (playing) {
    playing = null;
  } else {
    if (app.index === app.document.steps.length - 1) app.showStep(0);
    playing = setInterval(() => {
      app.showStep(app.index + 1);
      if (app.index === app.document.steps.length - 1) play();
    }, 700);
  }
  byId("play").textContent = playing ? "❚❚" : "▶";
}

function listenMap(canvas) {
  const move = (event) => {
    if (!event.buttons) return;
    const frame = canvas.getBoundingClientRect();
    const [x, y] = app.minimap.point(event.clientX - frame.left, event.clientY - frame.top);
    const { k } = app.view;
    app.view = { k, x: app.painter.width / 2 - x * k, y: app.painter.height / 2 - y * k };
    app.paint();
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    move(event);
  });
  canvas.addEventListener("pointermove", move);
}
