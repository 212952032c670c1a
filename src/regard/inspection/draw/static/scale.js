// The colour scale of weights: a colour bar at every drawing, and the switch that stretches the scale. A weight has the
// same colour on every page: the scale goes from 0 to 1, unless the switch stretches it to the largest of each map.

const stretchListeners = [];

// Call `listener` whenever the switch changes, after the drawings are repainted.
function onStretch(listener) {
  stretchListeners.push(listener);
}

function setStretch(on) {
  if (stretching.on === on) return;
  stretching.on = on;
  for (const each of document.querySelectorAll("input.stretch")) each.checked = on;
  repaint();
  stretchListeners.forEach((listener) => listener());
}

function stretchSwitch() {
  const input = el("input", { type: "checkbox", class: "stretch", onchange: () => setStretch(input.checked) });
  input.checked = stretching.on;
  return el(
    "label",
    { class: "switch", title: "Colour relative to the largest weight of each map, not on the scale from 0 to 1 (S)" },
    input,
    "Stretch colours",
  );
}

addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "s" || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.target.matches?.("select, textarea, input:not([type=checkbox], [type=radio], [type=range])")) return;
  if (!lecturing && !event.target.closest?.("section[data-section], .switch")) return;
  setStretch(!stretching.on);
});

// Return the value of the strongest colour of a map of weights: at least 1, or the map's largest if stretched.
function topOf(most) {
  return stretching.on && most > 0 ? most : Math.max(1, most);
}

// Format the end of a colour bar with two digits, however small it is.
function endText(value) {
  return Math.abs(value) >= 0.1 || value === 0
    ? share(value)
    : signedText(String(Number(value.toPrecision(2))).replace(/^(-?)0\./, "$1."));
}

const stretchedTo = (most) => (stretching.on ? `stretched: the largest is ${endText(most)}` : "");
const STRETCHED_EACH = "stretched: each map to its own largest";

// Colours of a bar: the ramp of shaded cells, or the veil over a picture (here: over grey).
const BAR_COLOURS = {
  ramp: (value) => (value < 0 ? mixed(palette().down, -value) : mixed(palette().up, value)),
  change: (value) => BAR_COLOURS.ramp(-value), // ablation: a drop in log-probability is blue
  veil: (value) => {
    const [grey, veil] = veilOf(value);
    return Array(3).fill(Math.round(grey * (veil / 255) + 153 * (1 - veil / 255)));
  },
};

// Return a colour bar with its ends and a note; `scale` returns {top, signed, note, colours}, or null for no bar.
function scaleBar(scale) {
  const canvas = el("canvas", { class: "scale", role: "img" }),
    [low, high] = [el("span"), el("span")],
    note = el("span", { class: "largest" }),
    node = el("p", { class: "scale-row faint small" }, low, canvas, high, note);
  canvas.width = 257;
  canvas.height = 1;
  const paint = () => {
    const now = scale();
    node.hidden = now === null;
    if (now === null) return;
    const { top, signed = false, note: words = "", colours = "ramp" } = now,
      context = canvas.getContext("2d"),
      image = context.createImageData(257, 1);
    for (let k = 0; k < 257; k++)
      image.data.set([...BAR_COLOURS[colours](signed ? k / 128 - 1 : k / 256), 255], 4 * k);
    context.putImageData(image, 0, 0);
    low.textContent = signed ? endText(-top) : "0";
    high.textContent = endText(top);
    note.textContent = words;
    canvas.setAttribute("aria-label", `colours from ${low.textContent} to ${high.textContent}`);
  };
  paint();
  return { node, paint };
}

// Return the scale of a table's map for its colour bar.
function tableScale(table) {
  return { top: table.top, signed: table.signed, note: table.shares ? stretchedTo(table.largest) : (table.note ?? "") };
}

// ---- words

// Shade a word by a fraction of the scale, with letters that are readable on it.
function shade(node, part) {
  const value = Math.min(1, Math.max(0, part));
  node.style.setProperty("--w", value.toFixed(3));
  if (value < 0.004) {
    delete node.dataset.shade;
    for (const name of ["background-color", "color"]) node.style.removeProperty(name);
  } else {
    node.dataset.shade = value;
    tint(node);
  }
}

function tint(node) {
  const colour = mixed(palette().up, Number(node.dataset.shade));
  node.style.setProperty("background-color", `rgb(${colour.join(" ")})`);
  node.style.setProperty("color", inkOn(colour));
}

painters.add(() => document.querySelectorAll("[data-shade]").forEach(tint));
