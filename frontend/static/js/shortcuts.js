// Keys: single ones, so they can be switched off in the help dialog (WCAG 2.1.4), and never while typing.
import { savePreferences } from "./preferences.js";

const PLACES = { s: "/", j: "/training", o: "/overlaps", p: "/approvals", i: "/incidents", h: "/fleet", w: "/webhooks", q: "/queue", d: "/devices", f: "/failures", a: "/audit", e: "/people", t: "/tokens" };
const CHORD_MS = 1200;

export function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
    && !["checkbox", "radio", "button", "submit"].includes(target.type);
}

function rows() {
  return [...document.querySelectorAll("[data-rows] tbody tr")].filter((row) => row.querySelector("a, button"));
}

function walk(step) {
  const all = rows();
  if (!all.length) return;
  const here = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[Math.min(Math.max(here < 0 ? (step > 0 ? 0 : all.length - 1) : here + step, 0), all.length - 1)];
  next.querySelector("a, button").focus();
  next.scrollIntoView({ block: "nearest" });
}

function search() {
  const field = document.querySelector("[data-search]");
  if (field) field.select(), field.focus();
  return Boolean(field);
}

export function listenForShortcuts() {
  const box = document.querySelector("#shortcuts-on");
  let chordUntil = 0;
  const isOn = () => document.documentElement.dataset.shortcuts !== "off";
  box?.addEventListener("change", () => {
    document.documentElement.dataset.shortcuts = box.checked ? "on" : "off";
    savePreferences({ shortcuts: box.checked ? "on" : "off" });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && isTyping(event.target)) return event.target.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || !isOn()) return;
    if (document.querySelector("dialog[open]")) return;
    if (Date.now() < chordUntil) {
      chordUntil = 0;
      if (PLACES[event.key]) location.assign(PLACES[event.key]);
      return;
    }
    const act = {
      "?": () => document.getElementById("shortcuts").showModal(),
      "/": () => search(),
      n: () => document.querySelector("a[href='/studies/new']") && location.assign("/studies/new"),
      g: () => (chordUntil = Date.now() + CHORD_MS),
      j: () => walk(1),
      k: () => walk(-1),
    }[event.key];
    if (act) event.preventDefault(), act();
  });
}
