// Drawing tools of every section: elements, controls, and colours that follow the theme.

const SPACE = "http://www.w3.org/2000/svg";
const quiet = matchMedia("(prefers-reduced-motion: reduce)");
const night = matchMedia("(prefers-color-scheme: dark)");

// ---- elements; text is always text, never markup

function dressed(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function el(tag, attributes, ...children) {
  return dressed(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return dressed(document.createElementNS(SPACE, tag), attributes, children);
}

// Return text for screen readers that is not visible.
function unseen(text, tag = "span") {
  return el(tag, { class: "visually-hidden" }, text);
}

// Return user text as an element; the browser finds its writing direction.
function said(text, attributes = {}, tag = "span") {
  return el(tag, { dir: "auto", ...attributes }, shown(text));
}

// Make an empty piece visible as ∅, and a piece of white space as ␣.
function shown(text) {
  return text === "" ? "∅" : text.replace(/^\s+$/u, "␣");
}

function control(label, ...inputs) {
  return el("div", { class: "control" }, el("span", { class: "label" }, label), ...inputs);
}

let counted = 0;
function fresh(name) {
  counted += 1;
  return `${name}-${counted}`;
}

// Return radio buttons side by side; the browser moves between them with arrow keys.
function choice(label, options, chosen, onchange) {
  const name = fresh("choice");
  const inputs = options.map(([value, text]) => {
    const input = el("input", { type: "radio", name, "data-value": String(value), onchange: () => onchange(value) });
    input.checked = value === chosen;
    return [value, input, el("label", {}, input, el("span", {}, text))];
  });
  const group = el(
    "div",
    { class: "choice", role: "radiogroup", "aria-label": label },
    inputs.map((each) => each[2]),
  );
  return {
    node: control(label, group),
    set: (value) =>
      inputs.forEach(([own, input]) => {
        input.checked = own === value;
      }),
  };
}

function menu(label, options, chosen, onchange) {
  const select = el(
    "select",
    { "aria-label": label, onchange: () => onchange(options[select.selectedIndex][0]) },
    options.map(([, text]) => el("option", {}, text)),
  );
  const set = (value) => {
    select.selectedIndex = options.findIndex(([own]) => own === value);
  };
  set(chosen);
  return { node: control(label, select), set };
}

function headChoice(view, chosen, onchange, all = false) {
  const options = [[null, "mean"], ...(all ? [["all", "all"]] : []), ...Array.from({ length: view.heads }, (_, h) => [h, String(h + 1)])];
  return view.heads > 16 ? menu("Head", options, chosen, onchange) : choice("Head", options, chosen, onchange);
}

// Give buttons a roving tabindex: Tab reaches one of them, and arrow keys move to the others.
function roving(nodes, { columns = () => 1, onfocus = () => {} } = {}) {
  nodes.forEach((node, index) => {
    node.tabIndex = index === 0 ? 0 : -1;
    node.addEventListener("focus", () => {
      nodes.forEach((other) => {
        other.tabIndex = other === node ? 0 : -1;
      });
      onfocus(index);
    });
    node.addEventListener("keydown", (event) => {
      const across = getComputedStyle(node.parentElement).direction === "rtl" ? -1 : 1;
      const by = {
        ArrowRight: across,
        ArrowLeft: -across,
        ArrowDown: columns(index),
        ArrowUp: -columns(index),
        Home: -index,
        End: nodes.length - 1 - index,
      }[event.key];
      if (by === undefined || !nodes[index + by]) return;
      event.preventDefault();
      nodes[index + by].focus();
    });
  });
}

// ---- colours: one hue whose lightness carries the value, in equal steps; negative values have another hue and a sign.
// Figures that Python draws have the same colours (plot.py).

const RAMPS = {
  light: {
    up: ["#ffffff", "#d7e6f5", "#aecee8", "#87b6db", "#5c9dce", "#3f84bf", "#1f6bab", "#15538c", "#0b3c6f"],
    down: ["#ffffff", "#fbe4d1", "#f6c8a4", "#f0ac78", "#e7904d", "#d8752e", "#c65b0c", "#aa4900", "#8a3b00"],
    ink: "#23272f",
    paper: "#ffffff",
    accent: "#0b5fa5",
    over: "#ffffff",
  },
  dark: {
    up: ["#1a1e25", "#1d354c", "#224d74", "#2c6797", "#3982bb", "#5b9dd4", "#7ab9ec", "#acd3f6", "#dceefd"],
    down: ["#1a1e25", "#452e1c", "#6a401c", "#8e5320", "#b36827", "#d48142", "#f29b62", "#fabf98", "#fde3cf"],
    ink: "#e4e7ec",
    paper: "#14171c",
    accent: "#6db6f0",
    over: "#14171c",
  },
};
const painters = new Set();
let printing = false;

function palette() {
  return night.matches && !printing ? RAMPS.dark : RAMPS.light;
}

function mixed(ramp, value) {
  const at = Math.min(1, Math.max(0, value)) * (ramp.length - 1),
    low = Math.min(ramp.length - 2, Math.floor(at));
  const part = (text, k) => parseInt(text.slice(1 + 2 * k, 3 + 2 * k), 16);
  return [0, 1, 2].map((k) =>
    Math.round(part(ramp[low], k) + (part(ramp[low + 1], k) - part(ramp[low], k)) * (at - low)),
  );
}

// Return black or white, whichever is easier to read on a colour, by the relative luminance of WCAG.
function inkOn(colour) {
  const [red, green, blue] = colour.map((each) =>
    each / 255 <= 0.04045 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

// Return 256 colours for each sign, as look-up tables for heat maps.
function tints() {
  const { up, down } = palette();
  const make = (ramp) => Array.from({ length: 256 }, (_, i) => mixed(ramp, i / 255));
  return { up: make(up), down: make(down) };
}

// Call `paint` now, and again whenever the theme changes or the page is printed.
function painted(paint) {
  painters.add(paint);
  paint();
  return paint;
}
function repaint() {
  painters.forEach((paint) => paint());
}
night.addEventListener("change", repaint);
addEventListener("beforeprint", () => {
  printing = true;
  repaint();
});
addEventListener("afterprint", () => {
  printing = false;
  repaint();
});

// Return the line of text below a figure; screen readers announce its changes.
function readout(hint) {
  const node = el("p", { class: "readout", "aria-live": "polite" });
  const say = (...children) => {
    node.replaceChildren(
      ...(children.flat().length ? children.flat().filter(Boolean) : [el("span", { class: "hint" }, hint)]),
    );
  };
  say();
  return { node, say };
}

function section(id, title, lead) {
  const node = el(
    "section",
    { id: fresh(id), "data-section": id, "aria-label": title },
    el("h2", {}, title),
    lead && el("p", { class: "lead" }, lead),
  );
  node.title_ = title;
  return node;
}

// Return a button that calls `step` on a timer, until the user stops it or `step` returns false.
function player(step, label = "Play") {
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    button.textContent = `▶ ${label}`;
    button.setAttribute("aria-pressed", "false");
  };
  const button = el("button", {
    type: "button",
    class: "plain",
    "aria-pressed": "false",
    onclick: () => {
      if (timer !== null) {
        stop();
        return;
      }
      button.textContent = "■ Stop";
      button.setAttribute("aria-pressed", "true");
      if (step(true) === false) {
        stop();
        return;
      }
      timer = setInterval(() => {
        if (step(false) === false) stop();
      }, 850);
    },
  });
  stop();
  return { node: button, stop };
}
