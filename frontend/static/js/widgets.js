// Small manners of the page: dialogs, menus, tabs, copying, asking before what cannot be undone.
export function toast(text) {
  document.querySelector(".toast")?.remove();
  const note = Object.assign(document.createElement("div"), { className: "toast", textContent: text });
  note.setAttribute("role", "status");
  document.body.append(note);
  setTimeout(() => note.remove(), 2600);
}

export function wireDialogs() {
  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-open]");
    if (opener) document.getElementById(opener.dataset.open).showModal();
    if (event.target instanceof HTMLDialogElement) event.target.close();
  });
}

export function wireMenus() {
  const close = (except) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (menu !== except) menu.open = false;
  };
  document.addEventListener("click", (event) => close(event.target.closest("details.menu")));
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && event.target.closest?.("details.menu[open]");
    if (menu) menu.open = false, menu.querySelector("summary").focus();
  });
}

function choose(tab) {
  for (const other of tab.parentElement.children) {
    const isChosen = other === tab;
    other.setAttribute("aria-selected", isChosen);
    other.tabIndex = isChosen ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).hidden = !isChosen;
  }
  sessionStorage.setItem("code-tab", tab.id);
}

export function restoreTab() {
  const tab = document.getElementById(sessionStorage.getItem("code-tab"));
  if (tab?.getAttribute("role") === "tab") choose(tab);
}

export function wireTabs() {
  restoreTab();
  document.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) choose(tab);
  });
  document.addEventListener("keydown", (event) => {
    const tab = event.target.closest?.("[role=tab]");
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!tab || !step) return;
    const all = [...tab.parentElement.children];
    const next = all[(all.indexOf(tab) + step + all.length) % all.length];
    choose(next);
    next.focus();
  });
}

export function wireCopying() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const source = button.dataset.copy
      ? document.querySelector(button.dataset.copy)
      : button.closest("[data-tabs]").querySelector("[role=tabpanel]:not([hidden])");
    try {
      await navigator.clipboard.writeText(source.textContent);
      toast("Copied");
    } catch {
      getSelection().selectAllChildren(source);
      toast("Selected: press Ctrl+C to copy");
    }
  });
}

export function wireConfirmations() {
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset?.confirm;
    if (question && !confirm(question)) event.preventDefault(), event.stopImmediatePropagation();
  }, true);
}
