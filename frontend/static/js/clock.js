// Times: relative ones that stay true, or absolute ones, here or in UTC; and the ticking of what still runs.
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export function sinceText(seconds) {
  const size = Math.abs(seconds);
  if (size < 5) return "just now";
  const [unit, name] = UNITS.find(([limit]) => size >= limit);
  const count = Math.floor(size / unit);
  return seconds > 0 ? `${count} ${name} ago` : `in ${count} ${name}`;
}

export function durationText(seconds) {
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  for (const [unit, name, part, partName] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (whole < unit) continue;
    const rest = Math.floor((whole % unit) / part);
    return rest ? `${Math.floor(whole / unit)} ${name} ${rest} ${partName}` : `${Math.floor(whole / unit)} ${name}`;
  }
  return `${whole} s`;
}

const pad = (number) => String(number).padStart(2, "0");

function localText(date) {
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

const utcText = (date) => `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;

function showTime(element, mode) {
  const date = new Date(element.dateTime);
  const texts = { local: localText(date), utc: utcText(date), relative: sinceText((Date.now() - date) / 1000) };
  if (element.textContent !== texts[mode]) element.textContent = texts[mode];
  element.title = mode === "utc" ? `${texts.local} here` : `${texts.local} here, ${texts.utc}`;
}

export function showTimes(root = document) {
  const mode = document.documentElement.dataset.clock || "relative";
  for (const element of root.querySelectorAll("time[datetime]")) showTime(element, mode);
}

function tick() {
  for (const element of document.querySelectorAll("[data-running-for]")) {
    // Counted from when this page got it: the clocks of server and browser need not agree.
    element.shownAt ??= performance.now();
    element.textContent = durationText(Number(element.dataset.runningFor) + (performance.now() - element.shownAt) / 1000);
  }
}

export function keepTimesFresh() {
  showTimes();
  setInterval(() => document.visibilityState === "visible" && showTimes(), 10_000);
  setInterval(() => document.visibilityState === "visible" && tick(), 1000);
  document.addEventListener("htmx:afterSettle", () => showTimes());
}
