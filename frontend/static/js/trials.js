// The trial table: curves of chosen trials, brushes of the parallel coordinates as terms of the filter.
import { load } from "./figures.js";

const chosen = new Set();
const MOST_CHOSEN = 5;

function showChosen() {
  for (const box of document.querySelectorAll("[data-choose]")) {
    box.checked = chosen.has(box.dataset.choose);
    box.closest("tr").classList.toggle("chosen", box.checked);
  }
  const words = document.getElementById("chosen-trials");
  words.textContent = chosen.size ? `and ${[...chosen].map((number) => `#${number}`).join(", ")}` : "";
  document.getElementById("clear-chosen").hidden = !chosen.size;
}

function redrawCurves() {
  const curves = document.getElementById("curves");
  curves.dataset.query = chosen.size ? `trials=${[...chosen].join(",")}` : "";
  load(curves);
}

function wireChoice() {
  document.addEventListener("change", (event) => {
    const number = event.target.dataset?.choose;
    if (number === undefined) return;
    event.stopPropagation();
    if (event.target.checked) chosen.add(number);
    else chosen.delete(number);
    while (chosen.size > MOST_CHOSEN) chosen.delete([...chosen][0]);
    showChosen();
    redrawCurves();
  });
  document.getElementById("clear-chosen").addEventListener("click", () => {
    chosen.clear();
    showChosen();
    redrawCurves();
  });
}

// A live refresh asks for as many rows as are on screen, so that it takes none away.
function keepRows() {
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.elt.id !== "trial-table") return;
    const count = document.querySelectorAll("#trial-table tbody tr[id]").length;
    if (count > 100) event.detail.parameters.rows = String(count);
  });
  document.addEventListener("htmx:afterSwap", showChosen);
}

const quoted = (name) => (/[\s"'\\]/.test(name) ? `'${name.replaceAll("'", "'\"'\"'")}'` : name);
const digits = (number) => String(Number(number.toPrecision(6)));

export function termsOf(brushes) {
  return brushes.flatMap(({ key, low, high }) => [`${quoted(key)}>=${digits(low)}`, `${quoted(key)}<=${digits(high)}`]);
}

// Terms that brushes wrote go when the brush goes; what a person typed stays.
function wireBrushes() {
  let written = [];
  const field = document.getElementById("trial-q");
  document.addEventListener("forebay:brush", (event) => {
    const typed = field.value.split(/\s+/).filter((term) => term && !written.includes(term));
    written = termsOf(event.detail);
    field.value = [...typed, ...written].join(" ");
    htmx.trigger("#trial-filter", "submit");
  });
}

export function start() {
  wireChoice();
  keepRows();
  wireBrushes();
}
