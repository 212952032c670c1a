// The addressing of any memory head at any step in stored numbers: content, gate, shift, sharpening.

const ADDRESSING = [
  "w^c = softmax(β cos(k, M))",
  "w^g = g w^c + (1 − g) w_{t−1}",
  "w̃ = w^g moved by s",
  "w = w̃^γ / Σ w̃^γ",
];

// Name the k-th of `count` shifts by its signed step: they go from the furthest forwards to the furthest backwards.
function shiftName(k, count) {
  const by = (count - 1) / 2 - k;
  return by === 0 ? "stay" : `${by > 0 ? "+" : "−"}${Math.abs(by)}`;
}

function addressingOf(view, head, at, unit, columns) {
  const { numbers } = view;
  if (numbers.left) return [el("p", { class: "note" }, ADDRESSING_LEFT[numbers.left])];
  const part = (name) => rowOf(partOf(view, name), head, at),
    [beta, gate, power] = ["strength", "gate", "power"].map((name) => part(name)[0]),
    key = part("key"),
    shifts = part("shifts"),
    stages = ["cosine", "content", "gated", "shifted", "weights"].map(part),
    weights = stages.at(-1),
    top = largest([...weights]);
  const names = ["cos(k, M)", "β cos", "w^c", "w^g", "w̃", "w"];
  const number = (value, most) => el("td", { class: `number${most ? " most" : ""}` }, share(value, 3));
  const table = el(
    "table",
    { class: "each-key" },
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th", { scope: "col" }, "slot"),
        names.map((name) => el("th", { scope: "col", class: "number" }, ...scripted(name))),
        el("th", { scope: "col" }, unseen("w as a bar")),
      ),
    ),
    el(
      "tbody",
      {},
      Array.from(weights, (weight, j) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, said(columns[j].text, { class: "name" })),
          number(stages[0][j]),
          number(beta * stages[0][j]),
          stages.slice(1, -1).map((stage) => number(stage[j])),
          number(weight, weight === top),
          el("td", {}, barOf(weight, topOf(top), false)),
        ),
      ),
    ),
  );
  const moved = Array.from(shifts, (value, k) => `${shiftName(k, shifts.length)} ${share(value, 3)}`);
  return [
    el("p", { class: "formulas symbol" }, ADDRESSING.map((text) => el("span", {}, ...scripted(text)))),
    el(
      "div",
      { class: "vector" },
      el("span", { class: "symbol" }, "k"),
      bars(key, largest([...key].map(Math.abs)), `the key of ${unit.text}`),
      el("span", { class: "faint small" }, `the key of ${unit.text}`),
    ),
    el(
      "p",
      { class: "steering" },
      el("span", {}, `strength β = ${share(beta, 3)}`),
      el("span", {}, `gate g = ${share(gate, 3)}`),
      el("span", {}, `shift s: ${moved.join(", ")}`),
      el("span", {}, `sharpening γ = ${share(power, 3)}`),
    ),
    el("div", { class: "scroll" }, table),
    el(
      "p",
      { class: "faint small" },
      "M is the memory as the step before left it, and wₜ₋₁ where the head stood then. " +
        "What is read or written there is shown by regard look with --walk.",
    ),
  ];
}

const ADDRESSING_LEFT = {
  size: "Left out of this page, which would be larger than 4 MB: the numbers of these heads.",
  range: "Left out of this page: the numbers of these heads, as one of them is too large for half precision.",
};
