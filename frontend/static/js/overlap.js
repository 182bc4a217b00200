// What-if questions of an overlap job: every change of the form asks for figures and charts anew.
import { load } from "./figures.js";

const WAIT_MS = 120;

async function ask(form) {
  const query = new URLSearchParams(new FormData(form)).toString();
  history.replaceState(null, "", `${form.action}?${query}`);
  for (const chart of document.querySelectorAll("[data-figure]")) chart.dataset.query = query;
  const answer = await fetch(`${form.dataset.answer}?${query}`, { headers: { Accept: "text/html" } });
  if (!answer.ok || query !== new URLSearchParams(new FormData(form)).toString()) return;
  const parsed = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("overlap-answer");
  document.getElementById("overlap-answer").replaceWith(parsed);
  for (const chart of document.querySelectorAll("[data-figure]")) load(chart);
}

export function start() {
  document.querySelector("[data-reload]")?.addEventListener("refresh", () => location.reload());
  const form = document.getElementById("what-if");
  if (!form) return;
  let timer = null;
  form.addEventListener("input", (event) => {
    const output = event.target.parentElement.querySelector("output");
    if (output) output.textContent = event.target.value;
    clearTimeout(timer);
    timer = setTimeout(() => ask(form), WAIT_MS);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask(form);
  });
}
