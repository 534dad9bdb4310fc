// What the tests ask of the page, run inside it.
window.checks = {
  /** What is wrong with the picture: the first few findings. */
  wrong() {
    const { scene } = weftGraph;
    const found = [];
    const slack = 0.01;
    const all = [...scene.faces, ...scene.boxes];
    for (const at of all) {
      if (![at.x, at.y, at.w, at.h].every(Number.isFinite)) found.push(["not finite", at.key]);
    }
    const sorted = [...scene.faces].sort((a, b) => a.y - b.y);
    sorted.forEach((a, i) => {
      for (let j = i + 1; j < sorted.length && sorted[j].y < a.y + a.h - slack; j++) {
        const b = sorted[j];
        const beside = b.x >= a.x + a.w - slack || a.x >= b.x + b.w - slack;
        if (!beside) found.push(["overlap", a.key, b.key]);
      }
    });
    const boxes = new Map(scene.boxes.map((box) => [box.key, box]));
    const inside = (at, box) =>
      at.x >= box.x - slack && at.x + at.w <= box.x + box.w + slack &&
      at.y >= box.y - slack && at.y + at.h <= box.y + box.h + slack;
    for (const at of all) {
      const parent = (at.item || at.group).parent;
      if (!parent || !parent.parent) continue;
      const box = boxes.get(at.lane ? `${parent.key}:back` : parent.key);
      if (!box || !inside(at, box)) found.push(["outside", at.key]);
    }
    const touches = (face, x, y) =>
      x >= face.x - slack && x <= face.x + face.w + slack &&
      (Math.abs(y - face.y) < slack || Math.abs(y - face.y - face.h) < slack);
    for (const route of scene.routes) {
      const [first, last] = [route.points[0], route.points.at(-1)];
      if (route.turned || !route.pairs.length) continue;
      if (last[1] > first[1] !== (route.lane === 0)) found.push(["direction", first, last]);
      const met = !route.arrow || scene.faces.some((face) => touches(face, ...last));
      if (!met) found.push(["loose end", last]);
    }
    return found.slice(0, 5);
  },

  /** Places where a wire runs through words that are not its own: faces, shapes, titles of groups. */
  crossed() {
    const { scene } = weftGraph;
    const header = 30;
    const labels = scene.faces.map((face) => ({ ...face, x: face.x + 2, y: face.y + 2, w: face.w - 4, h: face.h - 4, of: null }));
    for (const chip of scene.chips) labels.push({ ...chip, key: `shape ${chip.text}`, of: chip.item });
    for (const box of scene.boxes) {
      const room = Math.min(box.group.title.room, box.w);
      labels.push({ key: `title ${box.key}`, x: box.x + box.group.title.x, y: box.y + header / 2 - 6, w: room, h: 13, of: null });
    }
    const found = [];
    for (const route of scene.routes) {
      const near = labels.filter((at) => {
        if (at.of && route.pairs.some((pair) => pair.a === at.of)) return false;
        const [x0, y0, x1, y1] = route.box;
        return at.x < x1 && at.x + at.w > x0 && at.y < y1 && at.y + at.h > y0;
      });
      if (!near.length) continue;
      for (const [x, y] of checks.sampled(route.points)) {
        const hit = near.find((at) => x > at.x && x < at.x + at.w && y > at.y && y < at.y + at.h);
        if (hit) {
          found.push([hit.key, Math.round(x), Math.round(y)]);
          break;
        }
      }
    }
    return found.slice(0, 5);
  },

  /** Points along a wire as it is drawn. */
  sampled(points) {
    const all = [points[0]];
    for (let i = 1; i < points.length; i++) {
      const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
      for (let k = 1; k <= 24; k++) {
        const t = k / 24;
        const s = 1 - t;
        const middle = (y0 + y1) / 2;
        all.push([
          s ** 3 * x0 + 3 * s * s * t * x0 + 3 * s * t * t * x1 + t ** 3 * x1,
          s ** 3 * y0 + 3 * s * s * t * middle + 3 * s * t * t * middle + t ** 3 * y1,
        ]);
      }
    }
    return all;
  },

  /** The middle of a face, or the header of an open group, on the screen. */
  place(key) {
    const { scene, view } = weftGraph;
    const face = scene.faces.find((one) => one.key === key);
    const box = scene.boxes.find((one) => one.key === key);
    const frame = document.getElementById("graph").getBoundingClientRect();
    const x = face ? face.x + face.w / 2 : box.x + 20;
    const y = face ? face.y + face.h / 2 : box.y + 12;
    return [frame.left + view.x + x * view.k, frame.top + view.y + y * view.k];
  },

  /** Whether every face is in sight. */
  allInSight() {
    const { scene, view, painter } = weftGraph;
    const x = (v) => view.x + v * view.k;
    const y = (v) => view.y + v * view.k;
    return scene.faces.every(
      (at) => x(at.x) >= 0 && y(at.y) >= 0 && x(at.x + at.w) <= painter.width && y(at.y + at.h) <= painter.height,
    );
  },

  /** The colours that cover some part of the canvas. */
  async colours() {
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const canvas = document.getElementById("graph");
    const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Map();
    for (let i = 0; i < data.length; i += 4) {
      const key = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
      seen.set(key, (seen.get(key) || 0) + 1);
    }
    const common = [...seen].filter(([, count]) => count > 500);
    return common.map(([key]) => `#${key.toString(16).padStart(6, "0")}`);
  },

  /** The fills of the legend's classes, by their words. */
  fills() {
    const hex = (text) => `#${text.match(/\d+/g).map((v) => Number(v).toString(16).padStart(2, "0")).join("")}`;
    const classes = [...document.querySelectorAll("#legend .class")];
    return Object.fromEntries(classes.map((one) => [one.innerText.trim(), hex(one.firstChild.style.backgroundColor)]));
  },

  /** The least contrast between words and what they stand on, as WCAG measures it: of faces as they
   * are and as they step back, of the shapes on wires, of titles, and of all words beside the canvas. */
  worstContrast() {
    const { look } = weftGraph;
    const pairs = [];
    for (const paint of look.colours.values()) pairs.push(paint);
    const hits = look.hits;
    look.hits = Object.assign(new Set(), { groups: new Set() });
    for (const face of weftGraph.scene.faces) pairs.push(weftGraph.paintOf(face, look));
    look.hits = hits;
    for (const fill of [look.theme.paper, look.theme.box]) pairs.push({ fill, ink: look.theme.soft });
    for (const mark of ["added", "removed", "changed"]) pairs.push({ fill: look.theme[mark], ink: look.theme.paper });
    return Math.min(checks.leastOf(pairs), checks.leastOf(checks.writtenPairs()));
  },

  /** The colours of all words of the page beside the canvas, each with what is behind it. */
  writtenPairs() {
    const pairs = [];
    for (const element of document.querySelectorAll("body *")) {
      const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
      if (!own || !element.checkVisibility() || element.disabled || element.closest("svg, option, script")) continue;
      let behind = element;
      const opaque = (one) => !/rgba\(.*, 0\)|transparent/.test(getComputedStyle(one).backgroundColor);
      while (behind.parentElement && !opaque(behind)) behind = behind.parentElement;
      pairs.push({ ink: getComputedStyle(element).color, fill: getComputedStyle(behind).backgroundColor });
    }
    return pairs;
  },

  leastOf(pairs) {
    const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const light = (colour) => {
      context.fillStyle = colour;
      context.fillRect(0, 0, 1, 1);
      const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map((v) => linear(v / 255));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    let worst = 21;
    for (const { fill, ink } of pairs) {
      const [high, low] = [light(fill), light(ink)].sort((a, b) => b - a);
      worst = Math.min(worst, (high + 0.05) / (low + 0.05));
    }
    return worst;
  },

  /** The forward edges that are drawn, as "from>to". */
  edges() {
    const ends = weftGraph.scene.routes.filter((route) => route.lane === 0 && route.arrow);
    const pairs = ends.flatMap((route) => route.pairs).filter((pair) => pair.fore);
    return [...new Set(pairs.map((pair) => `${pair.a.primary.name}>${pair.b.primary.name}`))].sort();
  },

  /** The names of the nodes with a mark. */
  marked(mark) {
    return weftGraph.step.nodes.filter((node) => node.mark === mark).map((node) => node.name);
  },
};
