// Keeps a page true: listens to its streams, refreshes the parts that an event concerns, says when data is stale.
import { Stream } from "./stream.js";
import { durationText } from "./clock.js";

const GRACE_MS = 1500;
const due = new Map(); // part id -> { timer, last }

function isBusy(part) {
  return Boolean(part.querySelector("details[open], dialog[open]"))
    || (part.contains(document.activeElement) && /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)
      && document.activeElement.type !== "checkbox");
}

function refresh(part) {
  const state = due.get(part.id) ?? { last: 0, timer: null };
  due.set(part.id, state);
  if (state.timer) return;
  const wait = Math.max(state.last + Number(part.dataset.every ?? 1000) - Date.now(), 60);
  state.timer = setTimeout(() => {
    state.timer = null;
    const present = document.getElementById(part.id);
    if (!present) return;
    if (isBusy(present)) return refresh(present);
    state.last = Date.now();
    // Charts listen for it in their module, everything else through htmx.
    present.dispatchEvent(new CustomEvent("refresh"));
  }, wait);
}

function concerned(kinds) {
  return [...document.querySelectorAll("[data-refresh]")].filter((part) =>
    part.dataset.refresh.split(" ").some((kind) => kinds.has(kind)));
}

class Status {
  constructor(streams) {
    this.streams = streams;
    this.lostAt = null;
    this.bar = document.getElementById("stale");
    this.bar.querySelector("button").addEventListener("click", () => streams.forEach((stream) => stream.retryNow()));
    setInterval(() => this.show(), 500);
  }

  update({ final }) {
    if (final) this.final = final;
    const isOpen = this.streams.every((stream) => stream.isOpen);
    if (isOpen) this.lostAt = null;
    else this.lostAt ??= Date.now();
    for (const mark of document.querySelectorAll("[data-live-state]")) {
      mark.dataset.liveState = isOpen ? "open" : "closed";
      if (mark.textContent.trim() !== "ended") mark.textContent = isOpen ? "live" : "not live";
    }
    this.show();
  }

  show() {
    const isStale = this.lostAt !== null && Date.now() - this.lostAt > GRACE_MS;
    this.bar.hidden = !isStale;
    if (!isStale) return;
    const age = durationText((Date.now() - this.lostAt) / 1000);
    const next = Math.min(...this.streams.map((stream) => stream.retryAt ?? Infinity));
    const wait = Math.max(Math.ceil((next - Date.now()) / 1000), 0);
    const words = this.final ?? (Number.isFinite(next) ? `Trying again in ${wait} s.` : "Connecting…");
    this.bar.querySelector("span").textContent = `What you see may be ${age.replace(/\.\d+ s/, " s")} old: the live connection is gone. ${words}`;
    this.bar.querySelector("button").hidden = Boolean(this.final);
  }
}

export function start() {
  const streams = [];
  let status = null;
  for (const mark of document.querySelectorAll("[data-stream]")) {
    const everything = () => document.querySelectorAll("[data-refresh]").forEach(refresh);
    streams.push(new Stream(mark.dataset.stream, Number(mark.dataset.seq), {
      onEvents: (events) => {
        document.dispatchEvent(new CustomEvent("forebay:events", { detail: events }));
        concerned(new Set(events.map((event) => event.kind))).forEach(refresh);
      },
      onReset: everything,
      onState: (state) => status?.update(state),
    }));
  }
  status = new Status(streams);
  streams.forEach((stream) => stream.open());
  addEventListener("online", () => streams.forEach((stream) => stream.retryNow()));
  document.addEventListener("htmx:afterSwap", () => status.update({}));
  setInterval(poll, 1000);
}

// Parts whose figures move without an event of their own: looked at again every few seconds, while somebody looks.
const polled = new Map();

function poll() {
  if (document.visibilityState !== "visible") return;
  for (const part of document.querySelectorAll("[data-poll]")) {
    const last = polled.get(part.id) ?? Date.now();
    if (!polled.has(part.id)) polled.set(part.id, last);
    if (Date.now() - last < Number(part.dataset.poll)) continue;
    polled.set(part.id, Date.now());
    refresh(part);
  }
}
