// The gates of a recurrent network word by word: a row per word, a column per gate, a cell per unit.

const GATES = {
  i: "written",
  f: "kept",
  o: "shown",
  r: "reset",
  z: "kept",
  ĉ: "proposed",
  "h̃": "proposed",
  c: "memory",
  h: "state",
};
const TAPES = { "h̃": "read, hidden", "c̃": "read, memory", c: "memory tape", h: "hidden tape" };
const ROW = 20; // pixels per word

function isGate(symbol) {
  return ["i", "f", "o", "r", "z"].includes(symbol);
}

function gatesSection(exhibit) {
  const all = exhibit.walk?.gates ?? [];
  if (!all.length) return null;
  const node = section(
    "gates",
    "Remembered and forgotten",
    "The gates of each layer after every word, a column per unit: of a gate the stronger the colour, the more it lets " +
      "through, with the mean beside it; of what is held, blue above zero and orange below.",
  );
  node.figures = all.map((gates, k) => [gates.title, () => node.querySelectorAll(".gates")[k]]);
  all.forEach((gates, k) => {
    // Open the top layer of each side.
    const layer = (each) => each.title.replace(/, from the .*/, "");
    const top = !all.slice(k + 1).some((other) => other.side === gates.side && layer(other) !== layer(gates));
    node.append(
      el(
        "details",
        { class: "layer-gates", open: top && gates.pieces.length <= 60 },
        el("summary", {}, capital(gates.title), el("span", { class: "faint" }, `  ${cellName(gates)}`)),
        el("p", { class: "small remark" }, ...remarkOf(gates)),
        el("div", { class: "scroll" }, gatesTable(gates)),
        ...gatesScales(gates),
      ),
    );
  });
  return node;
}

function cellName(gates) {
  const name = { lstm: "LSTM", gru: "GRU", rnn: "tanh or ReLU", lstmn: "LSTMN, two tapes" }[gates.cell];
  return gates.backwards ? `${name} · reads from the end, upwards here` : name;
}

// Name the words at which the network forgets, keeps and writes most.
function remarkOf(gates) {
  const keep = gates.parts.find((part) => part.symbol === "f" || part.symbol === "z"),
    write = gates.parts.find((part) => part.symbol === "i");
  const at = (means, choose) => means.indexOf(choose(...means));
  const words = [];
  if (keep) {
    const low = at(keep.means, Math.min),
      high = at(keep.means, Math.max);
    words.push("Forgets most at ", said(gates.pieces[low], { class: "who" }), ` (${keep.symbol} = ${share(keep.means[low])} on average)`);
    words.push(", keeps most at ", said(gates.pieces[high], { class: "who" }), ` (${share(keep.means[high])})`);
  }
  if (write) {
    const high = at(write.means, Math.max);
    words.push(", writes most at ", said(gates.pieces[high], { class: "who" }), ` (i = ${share(write.means[high])})`);
  }
  return words.length ? [...words, "."] : words;
}

// Return the top of a part's colour scale: 1 for a gate, otherwise its largest magnitude.
function reachOf(part) {
  return isGate(part.symbol) ? 1 : Math.max(Math.abs(part.low), Math.abs(part.low + 255 * part.step)) || 1;
}

// Return one colour bar for all gates, and one for each other part.
function gatesScales(gates) {
  const held = gates.parts.filter((part) => !isGate(part.symbol)),
    scales = held.map((part) => ({ top: reachOf(part), signed: true, note: part.symbol }));
  const open = gates.parts.filter((part) => isGate(part.symbol)).map((part) => part.symbol);
  if (open.length) scales.unshift({ top: 1, note: open.join(", ") });
  return scales.map((scale) => {
    const bar = scaleBar(() => scale);
    painters.add(bar.paint);
    return bar.node;
  });
}

function gatesTable(gates) {
  const n = gates.pieces.length,
    table = el("div", { class: "gates", style: { "--rows": n } });
  gates.pieces.forEach((piece, i) => {
    table.append(said(piece, { class: "name", style: { "grid-row": i + 2 } }));
  });
  let column = 2;
  for (const part of gates.parts) {
    const words = (gates.cell === "lstmn" && TAPES[part.symbol]) || GATES[part.symbol] || "";
    table.append(
      el(
        "span",
        { class: "top", style: { "grid-column": `${column} / span ${isGate(part.symbol) ? 2 : 1}` } },
        el("span", { class: "symbol" }, part.symbol),
        el("span", { class: "faint small" }, words),
      ),
      unitsCanvas(gates, part, column),
    );
    column += 1;
    if (!isGate(part.symbol)) continue;
    part.means.forEach((value, i) => {
      table.append(
        el("span", { class: "mean", style: { "grid-row": i + 2, "grid-column": column } }, share(value)),
      );
    });
    column += 1;
  }
  table.style.setProperty(
    "grid-template-columns",
    `max-content ${gates.parts.map((part) => (isGate(part.symbol) ? "7rem 2.1rem" : "7rem")).join(" ")}`,
  );
  return table;
}

function unitsCanvas(gates, part, column) {
  const n = gates.pieces.length,
    { width } = part;
  const value = (i, k) => part.low + part.step * part.levels[i * width + k];
  const most = reachOf(part);
  const canvas = el("canvas", {
    class: "units",
    role: "img",
    "aria-label": `${part.symbol} of ${width} units after each of ${n} words`,
    style: { "grid-column": column, height: `${n * ROW}px` },
  });
  canvas.width = width;
  canvas.height = n;
  painted(() => {
    const context = canvas.getContext("2d"),
      image = context.createImageData(width, n),
      { up, down } = tints();
    for (let i = 0; i < n; i++)
      for (let k = 0; k < width; k++) {
        const each = value(i, k),
          level = Math.min(255, Math.round((255 * Math.abs(each)) / most)),
          [red, green, blue] = (each < 0 ? down : up)[level];
        image.data.set([red, green, blue, 255], 4 * (i * width + k));
      }
    context.putImageData(image, 0, 0);
  });
  canvas.addEventListener("pointermove", (event) => {
    const i = Math.min(n - 1, Math.max(0, Math.floor((event.offsetY / canvas.clientHeight) * n))),
      k = Math.min(width - 1, Math.max(0, Math.floor((event.offsetX / canvas.clientWidth) * width)));
    canvas.title = `${gates.pieces[i]}, ${part.symbol} of unit ${k + 1}: ${share(value(i, k), 3)}`;
  });
  return canvas;
}
