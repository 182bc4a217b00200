// The submit form: shows only the bounds that a distribution has, marks faulty fields, sends once.
import { restoreTab } from "./widgets.js";

const PARTS = {
  uniform: ["low", "high"], loguniform: ["low", "high"], quniform: ["low", "high", "q"], qloguniform: ["low", "high", "q"],
  randint: ["low", "high"], qrandint: ["low", "high", "q"], choice: ["values"], grid: ["values"],
};

function showBounds() {
  for (const row of document.querySelectorAll("[data-space-row]")) {
    const parts = PARTS[row.querySelector("select").value] ?? [];
    for (const part of row.querySelectorAll("[data-part]")) part.hidden = !parts.includes(part.dataset.part);
  }
  const isHalving = document.getElementById("f-scheduler-name").value !== "fifo";
  for (const name of ["scheduler.grace", "scheduler.reduction"]) {
    document.querySelector(`[data-field="${name}"]`).hidden = !isHalving;
  }
  document.getElementById("f-bound").closest(".field").hidden = !document.getElementById("f-objective").value;
}

function markFaults() {
  for (const field of document.querySelectorAll("#submit-form [aria-describedby]")) {
    const isFaulty = field.getAttribute("aria-describedby").split(" ").some((id) =>
      id.startsWith("err-") && document.getElementById(id)?.textContent.trim());
    if (isFaulty) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }
}

export function start() {
  const form = document.getElementById("submit-form");
  showBounds();
  markFaults();
  document.querySelector("[aria-invalid]")?.focus();
  form.addEventListener("change", showBounds);
  document.addEventListener("htmx:afterSettle", () => {
    markFaults();
    restoreTab();
  });
  form.addEventListener("submit", () => {
    setTimeout(() => document.querySelector("[data-submit]")?.setAttribute("disabled", ""), 0);
  });
}
