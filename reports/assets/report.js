"use strict";
// The page is whole without this script. It adds buttons that copy code, one reading of all rows of the time axis, and
// search and zoom in flame graphs. All numbers are read from the drawings.

const words = document.body.dataset;

function made(tag, name, text) {
  const element = document.createElement(tag);
  element.className = name;
  if (text) element.textContent = text;
  return element;
}

// --- code that can be copied

for (const code of document.querySelectorAll(".code")) {
  const button = made("button", "copy", words.copy);
  button.type = "button";
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    const text = code.querySelector("code");
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = words.copied;
    } catch {
      getSelection().selectAllChildren(text);  // where copying is not allowed, it is one key away
    }
    setTimeout(() => { button.textContent = words.copy; }, 2000);
  });
  code.append(button);
}

// --- the time axis

function percent(part) {
  return `${Math.round(part)}%`;
}

function amount(value, unit) {
  return unit === "fraction" ? percent(100 * value) : `${Number(value.toPrecision(3))} ${unit}`.trim();
}

// What a thread did: of each cause, the heights of its boxes are percentages of the bins below them.
function bandReader(plot) {
  const bins = plot.querySelector("svg").viewBox.baseVal.width;
  const layers = [...plot.querySelectorAll("path:not(.border)")].map((path) => {
    const heights = new Array(bins).fill(0);
    for (const [, start, , width, height] of path.getAttribute("d").matchAll(/M(\d+) (\d+)h(\d+)v(\d+)/g)) {
      heights.fill(Number(height), Number(start), Number(start) + Number(width));
    }
    return { name: path.dataset.name, heights };
  });
  return (part) => {
    const bin = Math.min(bins - 1, Math.floor(part * bins));
    const found = layers.filter((layer) => layer.heights[bin] > 0);
    if (found.some((layer) => layer.name === undefined)) return words.unseen;
    found.sort((one, other) => other.heights[bin] - one.heights[bin]);
    return found.slice(0, 2).map((layer) => `${layer.name} ${percent(layer.heights[bin])}`).join(words.comma) || words.idle;
  };
}

function points(path) {
  const numbers = path.getAttribute("d").split(/[ML]/).filter(Boolean);
  return numbers.map((pair) => pair.split(" ").map(Number));
}

function nearest(course, x) {
  return course.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
}

function lineReader(plot) {
  const { top, bottom, unit } = plot.dataset;
  const lines = [...plot.querySelectorAll("path")].map((path) => ({ name: path.dataset.name, course: points(path) }));
  return (part) => lines.map(({ name, course }) => {
    const [x, y] = nearest(course, 1000 * part);
    if (Math.abs(x - 1000 * part) > 60) return "";
    return `${name} ${amount(Number(bottom) + (1 - y / 100) * (top - bottom), unit)}`;
  }).filter(Boolean).join(words.comma);
}

function stepReader(plot) {
  const steps = [...plot.querySelectorAll("path")].flatMap((path) =>
    [...path.getAttribute("d").matchAll(/M([\d.]+) 100V([\d.]+)/g)].map(([, x, y]) => [Number(x), Number(y)]));
  return (part) => {
    const before = steps.filter(([x]) => x <= 1000 * part);
    if (!before.length) return "";
    const [, y] = nearest(before, 1000 * part);
    return `${plot.dataset.length} ${amount((1 - y / 100) * plot.dataset.top, "s")}`;
  };
}

function readRow(row) {
  const plot = row.querySelector(".plot");
  const reader = plot.matches(".band") ? bandReader : plot.matches(".steps") ? stepReader : lineReader;
  return { now: row.querySelector(".now"), title: row.querySelector("b").textContent, read: reader(plot) };
}

for (const axis of document.querySelectorAll(".axis")) {
  const rows = [...axis.querySelectorAll(".row:not(.ticks)")].map(readRow);
  const line = made("div", "row ticks reads");
  const name = made("div", "name faint");
  const reader = made("div", "reader");
  const slider = made("input", "");
  Object.assign(slider, { type: "range", min: 0, max: 1000, step: 5, value: 0 });
  slider.setAttribute("aria-label", words.read);
  reader.append(slider);
  line.append(name, reader);
  axis.prepend(line);
  name.textContent = words.read;

  const show = (part) => {
    const readings = rows.map((row) => ({ row, text: row.read(part) }));
    for (const { row, text } of readings) row.now.textContent = text;
    const time = `${(part * axis.dataset.span).toPrecision(3)} s`;
    axis.style.setProperty("--at", `${100 * part}%`);
    axis.classList.add("reading");
    name.textContent = time;
    slider.setAttribute("aria-valuetext", [time, ...readings.map(({ row, text }) => `${row.title}${words.colon}${text}`)].join(words.semicolon));
  };
  const hide = () => {
    axis.classList.remove("reading");
    name.textContent = words.read;
    for (const row of rows) row.now.textContent = "";
  };
  slider.addEventListener("input", () => show(slider.value / 1000));
  slider.addEventListener("focus", () => show(slider.value / 1000));
  slider.addEventListener("blur", hide);
  axis.addEventListener("pointermove", (event) => {
    const plot = event.target.closest(".plot");
    if (!plot) return;
    const box = plot.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    slider.value = 1000 * part;
    show(part);
  });
  axis.addEventListener("pointerleave", () => { if (document.activeElement !== slider) hide(); });
}

// --- flame graphs

function box(element) {
  const { left, width } = element.style;
  return {
    element,
    left: parseFloat(left),
    width: parseFloat(width),
    depth: Number(element.style.getPropertyValue("--d")),
  };
}

// One search, and one way back to the whole, for all flame graphs of the page.
const graphs = [];

function searchTools() {
  const tools = made("div", "tools");
  const search = made("input", "");
  const reset = made("button", "", words.reset);
  Object.assign(search, { type: "search", placeholder: words.search });
  search.setAttribute("aria-label", words.search);
  reset.type = "button";
  const look = () => {
    for (const graph of graphs) graph.look(search.value.trim().toLowerCase());
  };
  search.addEventListener("input", look);
  reset.addEventListener("click", () => {
    search.value = "";
    look();
    for (const graph of graphs) graph.zoom(0, 100);
  });
  tools.append(search, reset);
  return tools;
}

for (const flame of document.querySelectorAll(".flame")) {
  const boxes = [...flame.children].map(box);
  const found = made("span", "faint found");
  const says = made("p", "says");
  found.setAttribute("role", "status");
  if (!graphs.length) flame.closest("figure").before(searchTools());
  flame.closest("figure").querySelector("figcaption").append(" ", found);
  flame.after(says);
  flame.removeAttribute("aria-hidden");
  flame.setAttribute("role", "group");
  flame.setAttribute("aria-label", flame.dataset.label);

  const zoom = (left, width) => {
    for (const one of boxes) {
      const from = Math.max(one.left, left);
      const until = Math.min(one.left + one.width, left + width);
      one.element.hidden = until - from < 0.001;
      one.element.style.left = `${(100 * (from - left)) / width}%`;
      one.element.style.width = `${(100 * (until - from)) / width}%`;
    }
  };
  const look = (wanted) => {
    let end = -1;
    let sum = 0;
    for (const one of boxes) {
      const hit = wanted !== "" && one.element.title.toLowerCase().includes(wanted);
      one.element.classList.toggle("hit", hit);
      one.element.classList.toggle("dim", wanted !== "" && !hit);
      if (hit && one.left >= end - 0.001) {  // boxes come in order of calls: what lies in a found one is counted with it
        sum += one.width;
        end = one.left + one.width;
      }
    }
    found.textContent = wanted ? words.found.replace("{share}", percent(sum)) : "";
  };
  const reach = (from, key) => {
    const shown = boxes.filter((one) => !one.element.hidden);
    const inside = (inner, outer) => inner.left >= outer.left - 0.001 && inner.left < outer.left + outer.width;
    if (key === "ArrowUp") return shown.find((one) => one.depth === from.depth - 1 && inside(from, one));
    if (key === "ArrowDown") return shown.find((one) => one.depth === from.depth + 1 && inside(one, from));
    const row = shown.filter((one) => one.depth === from.depth);
    return row[row.indexOf(from) + (key === "ArrowRight" ? 1 : -1)];
  };
  const go = (one) => {
    for (const other of boxes) other.element.tabIndex = other === one ? 0 : -1;
    one.element.focus();
  };
  boxes.forEach((one, place) => {
    one.element.tabIndex = place ? -1 : 0;
    one.element.setAttribute("role", "button");
    one.element.setAttribute("aria-label", one.element.title);
    one.element.addEventListener("click", () => zoom(one.left, one.width));
    for (const event of ["pointerenter", "focus"]) {
      one.element.addEventListener(event, () => { says.textContent = one.element.title; });
    }
    one.element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") zoom(one.left, one.width);
      else if (event.key === "Escape") zoom(0, 100);
      else if (event.key.startsWith("Arrow")) {
        const next = reach(one, event.key);
        if (next) go(next);
      } else return;
      event.preventDefault();
    });
  });
  graphs.push({ look, zoom });
}
