// For keyboards and screen readers: make scrolling boxes focusable, so that arrow keys scroll them; name landmarks.
const scrolling = "pre, .table-wrapper, .drawing, .math";

function reachScrolls() {
  for (const each of document.querySelectorAll(scrolling)) {
    const needed =
      each.scrollWidth > each.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(each).overflowX);
    if (needed) each.tabIndex = 0;
    else each.removeAttribute("tabindex");
  }
}

addEventListener("DOMContentLoaded", () => {
  for (const [name, label] of [
    ["aside.sidebar-drawer", "All pages"],
    ["aside.toc-drawer", "On this page"],
  ])
    document.querySelector(name)?.setAttribute("aria-label", label);
  // The search page has no heading of its own.
  if (!document.querySelector("h1")) {
    const title = document.createElement("h1");
    title.textContent = document.title.split(" - ")[0];
    document.querySelector("article")?.prepend(title);
  }
  reachScrolls();
});
addEventListener("load", reachScrolls);
addEventListener("resize", reachScrolls);
