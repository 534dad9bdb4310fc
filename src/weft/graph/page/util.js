// Words and small things.

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

function shapeText(shape) {
  if (!shape) return "";
  if (Array.isArray(shape[0])) {
    const shown = shape.slice(0, 3).map(shapeText).join(", ");
    return shape.length > 3 ? `${shown}, … (${shape.length})` : shown;
  }
  return shape.length ? shape.join("×") : "scalar";
}

function scaled(value, base, units) {
  let k = 0;
  while (Math.abs(value) >= base && k < units.length - 1) {
    value /= base;
    k++;
  }
  const digits = k === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[k]}`.trim();
}

const bytesText = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const flopsText = (value) => scaled(value, 1000, ["", "k", "M", "G", "T", "P"]);

function timeText(seconds) {
  if (seconds >= 1) return `${seconds.toPrecision(3)} s`;
  return scaled(seconds * 1e9, 1000, ["ns", "µs", "ms"]);
}

function numberText(value) {
  if (value === null) return "–";
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "inf");
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return value.toLocaleString("en");
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : value.toPrecision(4);
}

/** An element; what starts with "on" is a listener, everything else an attribute. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const byId = (id) => document.getElementById(id);
