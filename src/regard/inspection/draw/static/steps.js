// The walk of one word from its input to the likeliest words, in numbers and bars; and the states word by word.

function walkSection(exhibit) {
  const { walk } = exhibit;
  if (!walk?.stages.length) return null;
  const view = exhibit.views.find((each) => each.name === walk.view),
    side = exhibit.sides[view ? view.rows : "written"];
  const whole = view?.rows === "document"; // the query is the document, not a word
  const place = view?.rows === "places" && view.n > 1; // the query is a place of a picture
  // With many keys, show those with the largest weights, and the same keys at every stage.
  const weights = view && weightsOf(view, walk.head).subarray(walk.row * view.m, (walk.row + 1) * view.m);
  const few = view && view.m > MANY_KEYS ? largestOf(weights, FEW_KEYS).sort((i, j) => i - j) : null;
  const end = exhibit.labels.length ? "label" : "word";
  const node = section("walk", walk.stages.some((stage) => stage.part) ? `From x to the ${end}` : "One word in numbers", null);
  node.append(
    el(
      "p",
      { class: "lead" },
      whole ? "The document" : place ? "One place" : "One word",
      side && !whole ? [": ", said(side.pieces[walk.row], { class: "who" })] : "",
      view ? `, ${view.title}${view.heads > 1 ? `, head ${walk.head + 1}` : ""}.` : ".",
      " Every number is the model’s own, of this pass.",
    ),
  );
  const unfold = el("button", {
    type: "button",
    class: "plain",
    onclick: () => {
      const all = [...node.querySelectorAll("details.stage")],
        open = all.some((each) => !each.open);
      all.forEach((each) => {
        each.open = open;
      });
      named();
    },
  });
  const named = () => {
    const shut = [...node.querySelectorAll("details.stage")].some((each) => !each.open);
    unfold.textContent = shut ? "Unfold all" : "Fold all";
  };
  node.append(el("div", { class: "bar-row" }, unfold));
  let part = null,
    list = null;
  for (const stage of walk.stages) {
    if (list === null || stage.part !== part) {
      part = stage.part;
      list = el("ol", { class: "stages" });
      node.append(part ? el("h3", {}, part) : "", list);
    }
    const draw = () => stageOf(stage, few && stage.names.length === view.m ? few : null);
    let body = draw();
    if (isShare(stage))
      onStretch(() => {
        const other = draw();
        body.replaceWith(other);
        body = other;
      });
    list.append(
      el(
        "li",
        {},
        el(
          "details",
          { class: "stage", open: stage.main !== false, ontoggle: named },
          el(
            "summary",
            { class: "formula" },
            el("span", { class: "symbol" }, ...scripted(stage.formula || stage.symbol)),
            el("span", { class: "faint" }, ...scripted(stage.words)),
          ),
          body,
        ),
      ),
    );
  }
  named();
  node.figures = walk.stages.length
    ? [...new Set(walk.stages.map((stage) => stage.part))].map((name, k) => [
        name || "the stages",
        () => node.querySelectorAll(".stages")[k],
      ])
    : null;
  return node;
}

// Set the subscripts and superscripts of s_{i−1}, W_Q and w^c.
function scripted(text) {
  return text
    .split(/([_^]\{[^}]*\}|[_^][\p{L}\p{N}]+)/u)
    .map((piece) =>
      /^[_^]/.test(piece)
        ? el(piece.startsWith("_") ? "sub" : "sup", {}, piece.slice(1).replace(/^\{|\}$/g, ""))
        : piece,
    );
}

// Tell whether the values of a stage are weights, probabilities or a step between them.
function isShare({ symbol, values }) {
  return SHARES.has(symbol) && values.flat().every((value) => value <= 1.02);
}

const SHARES = new Set(["a", "softmax(e)", "p", "w^c", "w^g", "w̃", "w"]);

function stageOf(stage, few = null) {
  let { values, names } = stage;
  if (values.length === 1 && names.length > 1 && values[0].length === names.length)
    values = values[0].map((value) => [value]);
  const flat = values.flat().filter((value) => typeof value === "number"),
    most = largest(flat.map(Math.abs)),
    negative = flat.some((value) => value < 0);
  const reach = isShare(stage) && !negative ? topOf(most) : most; // bars of weights have the same scale in every walk
  const single = values[0]?.length === 1,
    alone = values.length === 1;
  const top = single && values.length > 1 && largest(flat, -Infinity);
  const rows = values.map((row, i) =>
    el(
      "div",
      { class: "line" },
      alone ? "" : said(names[i] ?? "", { class: "name" }),
      single ? barOf(row[0], reach, negative) : stripOf(row, reach, names[i] ?? ""),
      single ? el("span", { class: `value${row[0] === top ? " most" : ""}` }, scoreText(row[0])) : "",
    ),
  );
  const body = el(
    "div",
    { class: `${single ? "single" : "vectors"}${alone ? " alone" : ""}` },
    ...foldedRows(rows, few ?? [...rows.keys()].slice(0, 60), few !== null),
  );
  if (single) return body;
  return el(
    "div",
    {},
    body,
    el(
      "details",
      {},
      el("summary", {}, "numbers"),
      el(
        "div",
        { class: "scroll" },
        el(
          "table",
          { class: "numbers" },
          el(
            "tbody",
            {},
            values.map((row, i) =>
              el(
                "tr",
                {},
                alone ? "" : el("th", { scope: "row" }, said(names[i] ?? "")),
                row.map((value) => el("td", { class: "number" }, share(value))),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

// Return some of the rows, and a button that replaces them by all rows.
function foldedRows(rows, few, largest_) {
  if (few.length >= rows.length) return rows;
  const said_ = el("span", { class: "faint small" }, largest_ ? `The ${few.length} with the largest weights. ` : ""),
    line = el("p", { class: "fold-line" }, said_);
  line.append(
    el(
      "button",
      {
        type: "button",
        class: "plain",
        onclick: () => {
          const box = line.parentElement;
          box.replaceChildren(...rows);
          box.tabIndex = -1;
          box.focus();
        },
      },
      `Show all ${rows.length}`,
    ),
  );
  return [...few.map((i) => rows[i]), line];
}

function scoreText(value) {
  return value === "-inf" ? "−∞" : share(value, 3);
}

function barOf(value, reach, negative) {
  if (typeof value !== "number") return el("span", { class: "meter signed shut", "aria-hidden": "true" });
  const width = (100 * Math.abs(value)) / reach / (negative ? 2 : 1);
  return el(
    "span",
    { class: `meter signed${negative ? " both" : ""}`, "aria-hidden": "true" },
    el("span", {
      class: value < 0 ? "below" : "above",
      style: { width: `${width.toFixed(1)}%`, [value < 0 ? "right" : "left"]: negative ? "50%" : "0" },
    }),
  );
}

// Draw a vector as bars above and below a line, so that the sign does not depend on colour.
function stripOf(row, reach, name) {
  const canvas = el("canvas", {
    class: "strip",
    role: "img",
    "aria-label": `${name}: ${row.length} numbers from ${share(Math.min(...row))} to ${share(Math.max(...row))}`,
  });
  const high = 30,
    step = Math.max(2, Math.min(18, Math.floor(620 / row.length))),
    sharp = 2;
  canvas.width = row.length * step * sharp;
  canvas.height = high * sharp;
  canvas.style.setProperty("width", `${row.length * step}px`);
  const paint = () => {
    const context = canvas.getContext("2d"),
      { up, down, ink } = palette();
    context.setTransform(sharp, 0, 0, sharp, 0, 0);
    context.clearRect(0, 0, row.length * step, high);
    row.forEach((value, k) => {
      const tall = (Math.abs(value ?? 0) / reach) * (high / 2 - 1);
      context.fillStyle = value < 0 ? down[5] : up[6];
      context.fillRect(k * step, value < 0 ? high / 2 : high / 2 - tall, Math.max(1, step - 1), tall);
    });
    context.fillStyle = ink;
    context.globalAlpha = 0.35;
    context.fillRect(0, high / 2 - 0.25, row.length * step, 0.5);
    context.globalAlpha = 1;
  };
  painted(paint);
  canvas.addEventListener("pointermove", (event) => {
    const k = Math.floor((event.offsetX / canvas.clientWidth) * row.length);
    canvas.title = k in row ? `${k + 1}: ${share(row[k], 3)}` : "";
  });
  return canvas;
}

function statesSection(exhibit) {
  const states = exhibit.walk?.states ?? [];
  if (!states.length) return null;
  const node = section(
    "states",
    "States, one by one",
    "What the network holds after each word: a bar a number, up above zero and down below it.",
  );
  const reach = largest(states.flatMap((state) => state.values.map((value) => Math.abs(value ?? 0))));
  const list = el("ol", { class: "states" });
  let before = null;
  const rows = states.map((state) => {
    const row = el(
      "li",
      { class: state.side === before ? "" : "first" },
      state.side === before
        ? ""
        : el("span", { class: "faint small side" }, state.side === "source" ? "reading" : "writing"),
      said(state.piece, { class: "name" }),
      stripOf(state.values, reach, state.piece),
    );
    before = state.side;
    return row;
  });
  list.append(...rows);
  const range = el("input", {
    type: "range",
    min: 1,
    max: states.length,
    value: states.length,
    "aria-label": "States that have arrived",
    oninput: () => go(Number(range.value)),
  });
  const number = el("span", { class: "faint small counter" });
  let at = states.length;
  const go = (to) => {
    at = Math.min(states.length, Math.max(1, to));
    range.value = at;
    number.textContent = `${at} of ${states.length}`;
    rows.forEach((row, k) => {
      row.classList.toggle("away", k >= at);
      row.classList.toggle("now", k === at - 1 && at < states.length);
    });
  };
  const play = player((begun) => {
    go(begun ? (at === states.length ? 1 : at + 1) : at + 1);
    return at < states.length;
  });
  node.append(el("div", { class: "bar-row" }, range, play.node, number), el("div", { class: "scroll" }, list));
  node.figures = [["the states", () => list]];
  node.step = (by) => go(at + by);
  go(states.length);
  return node;
}
