// Charts: Plotly is loaded when the first one comes near, figures come as JSON and are painted in the page's theme.
const NAMED = /^\$([a-z0-9-]+)$/;
let loading = null;
const drawn = new Map(); // element -> figure as it came

export function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = document.querySelector("meta[name=plotly]").content;
    script.onload = () => resolve(globalThis.Plotly);
    script.onerror = () => reject(new Error("the chart library did not load"));
    document.head.append(script);
  });
  return loading;
}

export function colour(name) {
  const probe = document.getElementById("colour-probe") ?? document.body.appendChild(
    Object.assign(document.createElement("span"), { id: "colour-probe", hidden: true }));
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

function paint(value) {
  if (Array.isArray(value)) return value.length > 64 && typeof value[0] !== "object" ? value : value.map(paint);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, paint(item)]));
  }
  const match = typeof value === "string" && NAMED.exec(value);
  return match ? colour(match[1]) : value;
}

function axis(given, extra = {}) {
  return {
    gridcolor: colour("grid"), zeroline: false, linecolor: colour("border-strong"), tickcolor: colour("border-strong"),
    automargin: true, ticks: "outside", ticklen: 4, exponentformat: "e", ...extra, ...given,
    title: { font: { size: 11.5, color: colour("text-faint") }, standoff: 8, ...(given?.title ?? {}) },
  };
}

function layoutOf(figure) {
  const given = paint(figure.layout);
  return {
    ...given,
    font: { family: getComputedStyle(document.body).fontFamily, size: 11, color: colour("text-soft") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 48, r: 14, t: 12, b: 40 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 }, bgcolor: "rgba(0,0,0,0)" },
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("border-strong"), font: { color: colour("text"), size: 12 }, align: "left" },
    xaxis: axis(given.xaxis),
    yaxis: axis(given.yaxis),
    dragmode: false,
    hovermode: given.hovermode ?? "closest",
  };
}

function say(element, text) {
  const word = element.querySelector(".word");
  word.textContent = text;
  delete element.dataset.drawn;
}

async function draw(element) {
  const figure = drawn.get(element);
  if (figure.empty) {
    element.querySelector(".plot")?.remove();
    return say(element, figure.empty);
  }
  const Plotly = await loadPlotly();
  const plot = element.querySelector(".plot") ?? element.appendChild(Object.assign(document.createElement("div"), { className: "plot" }));
  if (figure.height) element.style.height = `${Math.min(figure.height, 640)}px`;
  await Plotly.react(plot, paint(figure.data), layoutOf(figure), { displayModeBar: false, responsive: true, doubleClick: false });
  element.dataset.drawn = "";
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", `${element.dataset.label}. ${figure.note ?? ""}`);
  if (element.dataset.link && !plot.dataset.wired) {
    plot.dataset.wired = "";
    plot.on("plotly_click", ({ points }) => {
      const number = points[0]?.customdata;
      if (number !== undefined) location.assign(element.dataset.link + number);
    });
  }
}

export async function load(element) {
  const query = element.dataset.query ? `?${element.dataset.query}` : "";
  try {
    const answer = await fetch(element.dataset.figure + query, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    drawn.set(element, await answer.json());
    const note = document.querySelector(`[data-note-of="${element.id}"]`);
    if (note) note.textContent = drawn.get(element).note ?? "";
    if (element.classList.contains("parallel")) (await import("./parallel.js")).draw(element, drawn.get(element));
    else await draw(element);
  } catch (problem) {
    if (!drawn.has(element)) say(element, `This chart could not be drawn: ${problem.message}.`);
  }
}

function repaint() {
  for (const [element, figure] of drawn) {
    if (!element.isConnected) drawn.delete(element);
    else if (element.classList.contains("parallel")) import("./parallel.js").then((module) => module.draw(element, figure));
    else draw(element);
  }
}

export function start() {
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting || seen.has(target)) continue;
      seen.add(target);
      load(target);
    }
  }, { rootMargin: "300px" });
  for (const element of document.querySelectorAll("[data-figure]")) {
    watch.observe(element);
    element.addEventListener("refresh", () => seen.has(element) && load(element));
  }
  new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-figure-switch] button");
    if (!button) return;
    for (const other of button.parentElement.children) other.setAttribute("aria-pressed", other === button);
    const element = document.getElementById(button.parentElement.dataset.figureSwitch);
    element.dataset.query = button.dataset.query;
    load(element);
  });
}
