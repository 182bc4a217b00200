// Parallel coordinates: lines on a canvas, axes and brushes in SVG, both by pointer and by keyboard.
import { colour } from "./figures.js";

const TOP = 34, BOTTOM = 14, SIDE = 54;
const NS = "http://www.w3.org/2000/svg";
const states = new WeakMap(); // element -> { figure, brushes: Map(key -> [low, high] in 0..1) }

const make = (name, attributes = {}, text = "") => {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  return node;
};

// Where a value stands on its axis, from 0 (bottom) to 1 (top), and back.
export function scaleOf(axis) {
  if (axis.kind === "category") {
    const last = Math.max(axis.categories.length - 1, 1);
    return { to: (v) => (axis.categories.length === 1 ? 0.5 : v / last), from: (t) => t * last };
  }
  const given = axis.values.filter((v) => v !== null && (axis.kind !== "log" || v > 0));
  const change = axis.kind === "log" ? Math.log10 : (v) => v;
  const back = axis.kind === "log" ? (v) => 10 ** v : (v) => v;
  let low = Infinity, high = -Infinity;
  for (const value of given) low = Math.min(low, change(value)), high = Math.max(high, change(value));
  const span = high - low || 1;
  return { to: (v) => (high === low ? 0.5 : (change(v) - low) / span), from: (t) => back(low + t * span) };
}

export function ticksOf(axis, scale) {
  if (axis.kind === "category") return axis.categories.map((label, index) => [scale.to(index), label]);
  const shown = axis.kind === "log" ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.25, 0.5, 0.75, 1];
  return shown.map((t) => [t, tickText(scale.from(t))]);
}

function tickText(value) {
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(1).replace("-", "−").replace("e+", "e") : String(Number(value.toPrecision(3))).replace("-", "−");
}

// Colours rank lines, so that one diverged trial does not take the whole ramp.
function ranksOf(figure) {
  const metrics = figure.axes.at(-1).values;
  const sign = figure.mode === "max" ? 1 : -1;
  const order = metrics.map((_, index) => index).sort((a, b) => sign * (metrics[a] - metrics[b]));
  const ranks = new Float64Array(metrics.length);
  order.forEach((line, position) => (ranks[line] = order.length > 1 ? position / (order.length - 1) : 1));
  return { order, ranks };
}

const channels = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);

function ramp(low, mid, high) {
  const mix = (a, b, t) => a.map((value, index) => Math.round(value + (b[index] - value) * t));
  return (t) => `rgb(${(t < 0.5 ? mix(low, mid, t * 2) : mix(mid, high, t * 2 - 1)).join(" ")})`;
}

export function passes(line, axes, scales, brushes) {
  for (const [key, [low, high]] of brushes) {
    const index = axes.findIndex((axis) => axis.key === key);
    const value = index < 0 ? null : axes[index].values[line];
    if (value === null) return false;
    const position = scales[index].to(value);
    if (position < low - 1e-9 || position > high + 1e-9) return false;
  }
  return true;
}

function drawLines(canvas, state, layout) {
  const { figure, brushes } = state;
  const ratio = devicePixelRatio || 1;
  canvas.width = layout.width * ratio;
  canvas.height = layout.height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.lineJoin = "round";
  const { order, ranks } = ranksOf(figure);
  const tone = ramp(channels(colour("low")), channels(colour("mid")), channels(colour("high")));
  const dimmed = colour("low");
  // The more lines, the fainter each.
  const crowd = Math.min(Math.max(300 / order.length, 0.3), 1);
  const isKept = (line) => passes(line, figure.axes, layout.scales, brushes);
  const kept = new Set(brushes.size ? order.filter(isKept) : order);
  for (const line of [...order.filter((l) => !kept.has(l)), ...order.filter((l) => kept.has(l))]) {
    pen.strokeStyle = kept.has(line) ? tone(ranks[line]) : dimmed;
    pen.globalAlpha = kept.has(line) ? (0.3 + 0.6 * ranks[line]) * crowd : 0.12;
    pen.lineWidth = kept.has(line) && ranks[line] > 0.97 ? 2 : 1;
    pen.beginPath();
    let isDown = false;
    figure.axes.forEach((axis, index) => {
      const value = axis.values[line];
      if (value === null || Number.isNaN(layout.scales[index].to(value))) return (isDown = false);
      const x = layout.xs[index], y = layout.y(layout.scales[index].to(value));
      if (isDown) pen.lineTo(x, y);
      else pen.moveTo(x, y);
      isDown = true;
    });
    pen.stroke();
  }
  return kept.size;
}

function drawAxes(svg, element, state, layout) {
  svg.replaceChildren();
  state.figure.axes.forEach((axis, index) => {
    const x = layout.xs[index];
    svg.append(make("text", { x, y: 16, "text-anchor": "middle", class: "name" }, axis.name.length > 22 ? `${axis.name.slice(0, 21)}…` : axis.name));
    svg.append(make("line", { x1: x, x2: x, y1: layout.y(0), y2: layout.y(1), class: "axis" }));
    for (const [t, label] of ticksOf(axis, layout.scales[index])) {
      svg.append(make("line", { x1: x - 3, x2: x + 3, y1: layout.y(t), y2: layout.y(t), class: "axis" }));
      const isLast = index === state.figure.axes.length - 1;
      svg.append(make("text", { x: x + (isLast ? 8 : -8), y: layout.y(t) + 3.5, "text-anchor": isLast ? "start" : "end", class: "tick" }, label));
    }
    svg.append(brushOf(axis, x, layout, state), gripOf(axis, index, x, element, state, layout));
  });
}

function brushOf(axis, x, layout, state) {
  const range = state.brushes.get(axis.key);
  const box = make("rect", { x: x - 7, width: 14, rx: 3, class: "brush" });
  if (!range) box.setAttribute("visibility", "hidden");
  else box.setAttribute("y", layout.y(range[1])), box.setAttribute("height", Math.max(layout.y(range[0]) - layout.y(range[1]), 2));
  return box;
}

function describe(axis, scale, range) {
  if (!range) return "everything";
  const [low, high] = range.map((t) => scale.from(t));
  if (axis.kind !== "category") return `${tickText(low)} to ${tickText(high)}`;
  return axis.categories.filter((_, index) => index >= low - 1e-6 && index <= high + 1e-6).join(", ") || "nothing";
}

function gripOf(axis, index, x, element, state, layout) {
  const grip = make("rect", {
    x: x - 14, y: layout.y(1) - 6, width: 28, height: layout.y(0) - layout.y(1) + 12, class: "grip", tabindex: 0, role: "slider",
    "aria-label": `Range of ${axis.name}`, "aria-valuemin": 0, "aria-valuemax": 100, "aria-orientation": "vertical",
    "aria-valuenow": Math.round(100 * (state.brushes.get(axis.key)?.[0] ?? 0)),
    "aria-valuetext": describe(axis, layout.scales[index], state.brushes.get(axis.key)),
  });
  grip.dataset.axis = axis.key;
  grip.addEventListener("pointerdown", (event) => drag(event, grip, axis, element, state, layout));
  grip.addEventListener("keydown", (event) => press(event, axis, element, state));
  return grip;
}

function drag(event, grip, axis, element, state, layout) {
  const top = element.getBoundingClientRect().top;
  const at = (moved) => Math.min(Math.max(layout.t(moved.clientY - top), 0), 1);
  const start = at(event);
  let hasMoved = false;
  grip.setPointerCapture(event.pointerId);
  grip.onpointermove = (moved) => {
    const here = at(moved);
    hasMoved ||= Math.abs(here - start) > 0.015;
    if (!hasMoved) return;
    state.brushes.set(axis.key, [Math.min(start, here), Math.max(start, here)]);
    render(element, state, false);
  };
  grip.onpointerup = () => {
    grip.onpointermove = grip.onpointerup = null;
    if (!hasMoved) state.brushes.delete(axis.key);
    render(element, state, true);
  };
}

function press(event, axis, element, state) {
  const step = { ArrowUp: 0.05, ArrowDown: -0.05 }[event.key];
  if (event.key === "Escape") state.brushes.delete(axis.key);
  else if (!step) return;
  else {
    const [low, high] = state.brushes.get(axis.key) ?? [0.75, 1];
    const size = high - low;
    if (event.shiftKey) state.brushes.set(axis.key, [Math.max(Math.min(low - step, high - 0.02), 0), high]);
    else {
      const moved = Math.min(Math.max(low + step, 0), 1 - size);
      state.brushes.set(axis.key, [moved, moved + size]);
    }
  }
  event.preventDefault();
  render(element, state, true);
  element.querySelector(`[data-axis="${CSS.escape(axis.key)}"]`).focus();
}

// What a brush means in the table's filter: numbers as they are; categories by their first and last value.
function rangesOf(state, layout) {
  return [...state.brushes].flatMap(([key, range]) => {
    const index = state.figure.axes.findIndex((axis) => axis.key === key);
    if (index < 0) return [];
    const axis = state.figure.axes[index];
    let [low, high] = range.map((t) => layout.scales[index].from(t));
    if (axis.kind === "category") {
      const inside = axis.categories.filter((_, i) => i >= low - 1e-6 && i <= high + 1e-6).map(Number);
      if (!inside.length || inside.some(Number.isNaN)) return [];
      [low, high] = [Math.min(...inside), Math.max(...inside)];
    }
    return [{ key, low, high }];
  });
}

let told = null;

function render(element, state, isFinal) {
  const { width, height } = element.getBoundingClientRect();
  const count = state.figure.axes.length;
  const layout = {
    width, height,
    xs: state.figure.axes.map((_, index) => SIDE + (count > 1 ? (index * (width - 2 * SIDE)) / (count - 1) : 0)),
    y: (t) => height - BOTTOM - t * (height - TOP - BOTTOM),
    t: (y) => (height - BOTTOM - y) / (height - TOP - BOTTOM),
    scales: state.figure.axes.map(scaleOf),
  };
  const kept = drawLines(element.querySelector("canvas"), state, layout);
  // While a finger drags, its axis must stay in place: only the lines and the brush follow.
  if (isFinal) drawAxes(element.querySelector("svg"), element, state, layout);
  else moveBrushes(element, state, layout);
  const total = state.figure.numbers.length;
  const words = state.brushes.size ? `${kept} of ${total} lines kept.` : "";
  document.getElementById("parallel-note").textContent = [state.figure.note, words].filter(Boolean).join(" ");
  const clear = document.getElementById("clear-brushes");
  clear.hidden = !state.brushes.size;
  clear.onclick = () => (state.brushes.clear(), render(element, state, true));
  if (!isFinal) return;
  const ranges = rangesOf(state, layout);
  const now = JSON.stringify(ranges);
  if (told !== null && now !== told) document.dispatchEvent(new CustomEvent("forebay:brush", { detail: ranges }));
  told = now;
}

function moveBrushes(element, state, layout) {
  element.querySelectorAll(".brush").forEach((box, index) => {
    const range = state.brushes.get(state.figure.axes[index].key);
    box.setAttribute("visibility", range ? "visible" : "hidden");
    if (range) box.setAttribute("y", layout.y(range[1])), box.setAttribute("height", Math.max(layout.y(range[0]) - layout.y(range[1]), 2));
  });
}

export function draw(element, figure) {
  if (figure.empty) {
    element.replaceChildren(Object.assign(document.createElement("div"), { className: "chart" }));
    element.firstChild.append(Object.assign(document.createElement("div"), { className: "word", textContent: figure.empty }));
    return;
  }
  let state = states.get(element);
  if (!state) {
    state = { figure, brushes: new Map() };
    states.set(element, state);
    new ResizeObserver(() => element.querySelector("canvas") && render(element, state, true)).observe(element);
  }
  state.figure = figure;
  if (!element.querySelector("canvas")) {
    const svg = make("svg", { role: "group", "aria-label": "Axes; each can be narrowed to a range" });
    element.replaceChildren(document.createElement("canvas"), svg);
    element.firstChild.setAttribute("aria-hidden", "true");
  }
  // A finger that is dragging now draws the new lines itself.
  const isDragging = [...element.querySelectorAll(".grip")].some((grip) => grip.onpointermove);
  render(element, state, !isDragging);
}
