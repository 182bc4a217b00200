// The form of a training job: marks faulty fields as the server names them, sends once.
import { restoreTab } from "./widgets.js";

function markFaults() {
  for (const field of document.querySelectorAll("#training-form [aria-describedby]")) {
    const isFaulty = field.getAttribute("aria-describedby").split(" ").some((id) =>
      id.startsWith("err-") && document.getElementById(id)?.textContent.trim());
    if (isFaulty) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }
}

export function start() {
  markFaults();
  document.querySelector("[aria-invalid]")?.focus();
  document.addEventListener("htmx:afterSettle", () => {
    markFaults();
    restoreTab();
  });
  document.getElementById("training-form").addEventListener("submit", () => {
    setTimeout(() => document.querySelector("[data-submit]")?.setAttribute("disabled", ""), 0);
  });
}
