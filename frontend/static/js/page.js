// The one entry point of every page: what all pages share, then whatever this page's elements ask for.
import { keepTimesFresh } from "./clock.js";
import { listenForShortcuts } from "./shortcuts.js";
import { wirePreferences } from "./preferences.js";
import { wireCopying, wireConfirmations, wireDialogs, wireMenus, wireTabs } from "./widgets.js";

// Which module an element needs; loaded only where there is such an element.
const MODULES = [
  ["[data-stream], [data-poll]", "./live.js"],
  ["[data-figure]", "./figures.js"],
  ["#trial-table", "./trials.js"],
  ["#submit-form", "./form.js"],
  ["#what-if, [data-reload]", "./overlap.js"],
  ["#training-form", "./training_form.js"],
];

keepTimesFresh();
listenForShortcuts();
wirePreferences();
wireDialogs();
wireMenus();
wireTabs();
wireCopying();
wireConfirmations();
for (const [selector, module] of MODULES) {
  if (document.querySelector(selector)) import(module).then((loaded) => loaded.start());
}
