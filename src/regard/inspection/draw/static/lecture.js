// Lecture mode: one drawing fills the window in large type, and arrow keys or a presenter's keys step word by word.

let lecturing = null;

function lecture(node) {
  if (lecturing) return;
  const others = [...document.querySelectorAll("main header, main nav, main section, main footer")].filter(
    (each) => each !== node && !each.contains(node) && !node.contains(each),
  );
  const close = el(
    "div",
    { class: "close" },
    node.querySelector(".scale-row") ? stretchSwitch() : "",
    el("button", { type: "button", class: "plain", onclick: leave }, "Esc  Close"),
  );
  const before = document.activeElement;
  others.forEach((each) => (each.inert = true));
  document.body.classList.add("lecturing");
  node.classList.add("lecture");
  node.setAttribute("role", "dialog");
  node.setAttribute("aria-modal", "true");
  node.prepend(close);
  lecturing = { node, others, close, before };
  document.documentElement.requestFullscreen?.().catch(() => {}); // frames may not; the drawing fills the window anyway
  node.fit = () => fillWindow(node);
  node.fit();
  addEventListener("resize", node.fit);
  node.tabIndex = -1;
  node.focus({ preventScroll: true });
}

function fillWindow(node) {
  const figure = node.figures[0][1]();
  if (!figure) return;
  if (node.enlarge) {
    const used = [...node.children].reduce(
      (sum, each) => sum + (each === figure || each.classList.contains("close") ? 0 : each.offsetHeight),
      0,
    );
    node.enlarge(Math.max(200, innerHeight - used - 90));
    return;
  }
  figure.style.zoom = "";
  if (figure.matches("ol, canvas, .framed")) return; // a long list scrolls, and a picture fills its column
  // Search for the largest zoom that fits, because lines break differently at each zoom.
  const around = figure.closest(".large") ?? figure.parentElement,
    bottom = innerHeight - 80;
  const fits = (zoom) => {
    figure.style.zoom = zoom.toFixed(3);
    const box = figure.getBoundingClientRect();
    return box.bottom <= Math.max(bottom, box.top) && around.scrollWidth <= around.clientWidth + 1;
  };
  let [low, high] = [1, 3];
  if (fits(high)) return;
  while (high - low > 0.02) {
    const middle = (low + high) / 2;
    if (fits(middle)) low = middle;
    else high = middle;
  }
  fits(low);
}

function leave() {
  if (!lecturing) return;
  const { node, others, close, before } = lecturing;
  lecturing = null;
  removeEventListener("resize", node.fit);
  node.fit = null;
  close.remove();
  others.forEach((each) => (each.inert = false));
  document.body.classList.remove("lecturing");
  node.classList.remove("lecture");
  node.setAttribute("role", "region");
  node.removeAttribute("aria-modal");
  if (document.fullscreenElement) document.exitFullscreen();
  const figure = node.figures[0][1]();
  if (node.shrink) node.shrink();
  else if (figure) figure.style.zoom = "";
  node.scrollIntoView();
  before?.focus?.({ preventScroll: true });
}

addEventListener(
  "keydown",
  (event) => {
    if (!lecturing || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") {
      event.preventDefault();
      leave();
      return;
    }
    if (event.target.matches?.("select, input")) return;
    const by = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 }[event.key],
      whole = { Home: -1, End: 1 }[event.key];
    if ((by || whole) && lecturing.node.step) {
      event.preventDefault();
      event.stopPropagation();
      lecturing.node.step(by ?? whole, whole !== undefined);
    }
  },
  true,
);
// Leave lecture mode when the browser leaves full screen.
addEventListener("fullscreenchange", () => {
  if (!document.fullscreenElement) leave();
});
