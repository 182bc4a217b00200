// Theme and clock: applied at once, kept on the server.
import { showTimes } from "./clock.js";

export function savePreferences(values) {
  const form = document.querySelector("[data-preferences]");
  const body = new URLSearchParams({ csrfmiddlewaretoken: form.elements.csrfmiddlewaretoken.value, ...values });
  return fetch(form.action, { method: "POST", body, headers: { "X-Requested-With": "fetch" } });
}

export function wirePreferences() {
  const form = document.querySelector("[data-preferences]");
  form?.addEventListener("change", (event) => {
    const { name, value } = event.target;
    document.documentElement.dataset[name] = value;
    if (name === "clock") showTimes();
    savePreferences({ [name]: value });
  });
}
