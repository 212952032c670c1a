// For keys and screen readers: what scrolls can be focused, so that arrows scroll it; landmarks have names.
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
  // The page of the search has no title of its own.
  if (!document.querySelector("h1")) {
    const title = document.createElement("h1");
    title.textContent = document.title.split(" - ")[0];
    document.querySelector("article")?.prepend(title);
  }
  reachScrolls();
});
addEventListener("load", reachScrolls);
addEventListener("resize", reachScrolls);
