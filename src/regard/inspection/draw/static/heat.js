// Heat maps: a table of weights in shades, with its words, and a cursor for pointer and arrow keys.

// Paint a table with one canvas pixel per cell; the style sheet enlarges it without smoothing.
function dots(canvas, table) {
  const { n, m, values, top } = table;
  canvas.width = m;
  canvas.height = n;
  const context = canvas.getContext("2d"),
    image = context.createImageData(m, n),
    { up, down } = tints();
  for (let i = 0; i < n * m; i++) {
    const level = Math.min(255, Math.round((Math.abs(values[i]) / top) * 255));
    const [red, green, blue] = (values[i] < 0 ? down : up)[level];
    image.data.set([red, green, blue, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
}

// Return a heat map with its words, a cursor that follows pointer and arrow keys, the entropy of each row, windows and
// picks; its colour bar is below it.
function heat(table, { label, oncell = () => {}, width = 620, full = false } = {}) {
  const { rows, columns, n, m } = table,
    most = full ? Infinity : 16;
  const long = (units) => Math.min(most, Math.max(2, ...units.map((unit) => [...unit.text].length)));
  const left = Math.min(full ? Infinity : 150, long(rows) * 7.6 + 14),
    bars = table.entropy ? 74 : 8;
  const room = Math.max(full ? 9 : 0, Math.min(30, (width - left - bars) / m, 760 / n));
  // If cells are too small for words, leave the words out and fill the space.
  const cell = room >= 9 ? Math.floor(room) : Math.max(1, Math.min((width - 48 - bars) / m, 760 / n));
  const named = cell >= 9,
    above = named ? Math.min(full ? Infinity : 120, long(columns) * 6.1 + 18) : 26;
  const margin = named ? left : 40;
  const wide = margin + m * cell + bars + (named ? 46 : 0),
    high = above + n * cell + 6 + 12 * (wide - margin < 340 ? 2 : 1), // room for the colour bar and its note
    bar = scaleBar(() => tableScale(table));
  bar.node.style.setProperty("top", `${above + n * cell + 6}px`);
  bar.node.style.setProperty("left", `${margin}px`);
  bar.node.style.setProperty("width", `${Math.max(170, wide - margin)}px`);
  const canvas = el("canvas", {
    class: "cells",
    "aria-hidden": "true",
    style: { left: `${margin}px`, top: `${above}px`, width: `${m * cell}px`, height: `${n * cell}px` },
  });
  const cut = (text) => {
    const letters = [...shown(text)];
    return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : letters.join("");
  };
  const over = svg("svg", { class: "over", width: wide, height: high, "aria-hidden": "true" });
  const size = Math.max(9, Math.min(13, cell * 0.62 + 2));
  if (named) {
    rows.forEach((unit, i) =>
      over.append(
        svg(
          "text",
          {
            x: margin - 8,
            y: above + (i + 0.5) * cell,
            class: `name of-row${marksOf(unit)}`,
            "font-size": size,
            "data-row": i,
          },
          cut(unit.text),
          unit.unknown ? svg("title", {}, NOT_KNOWN) : null,
        ),
      ),
    );
    columns.forEach((unit, j) =>
      over.append(
        svg(
          "text",
          {
            x: 0,
            y: 0,
            transform: `translate(${margin + (j + 0.5) * cell + 2} ${above - 8}) rotate(-48)`,
            class: `name of-column${marksOf(unit)}`,
            "font-size": size,
            "data-column": j,
          },
          cut(unit.text),
          unit.unknown ? svg("title", {}, NOT_KNOWN) : null,
        ),
      ),
    );
    if (cell >= 5 && n * m < 6000) {
      const lines = svg("g", { class: "gaps" });
      for (let i = 1; i < n; i++) lines.append(svg("path", { d: `M${margin} ${above + i * cell}h${m * cell}` }));
      for (let j = 1; j < m; j++) lines.append(svg("path", { d: `M${margin + j * cell} ${above}v${n * cell}` }));
      over.append(lines);
    }
  }
  // Mark negative cells with a dash too, for readers who cannot see the hue and for grey prints.
  const dashes = svg("g");
  over.append(dashes);
  const dash = () => {
    dashes.replaceChildren();
    if (!table.signed || !named) return;
    for (let i = 0; i < n; i++)
      for (let j = 0; j < m; j++) {
        if (table.at(i, j) < -0.12 * table.top)
          dashes.append(
            svg("path", {
              d: `M${margin + (j + 0.32) * cell} ${above + (i + 0.5) * cell}h${cell * 0.36}`,
              class: "minus",
            }),
          );
      }
  };
  over.append(
    svg("rect", { x: margin - 0.5, y: above - 0.5, width: m * cell + 1, height: n * cell + 1, class: "frame" }),
  );
  if (table.entropy) {
    const x = margin + m * cell + 10;
    over.append(svg("text", { x, y: above - 8, class: "tiny" }, "entropy"));
    table.entropy.forEach(
      (value, i) =>
        value !== null &&
        over.append(
          svg("rect", {
            x,
            y: above + i * cell + cell * 0.22,
            width: Math.max(1, (value / (table.most || 1)) * (bars - 18)),
            height: Math.max(1, cell * 0.56),
            class: "spread",
          }),
        ),
    );
  }
  table.windows?.forEach((window, i) => {
    if (!window) return;
    const x = (place) => margin + (Math.min(m - 0.5, Math.max(-0.5, place)) + 0.5) * cell,
      y = above + (i + 0.5) * cell,
      k = Math.min(5, cell * 0.3);
    over.append(
      svg("path", {
        d: `M${x(window.from)} ${y - k}v${2 * k}m0 ${-k}H${x(window.to)}m0 ${-k}v${2 * k}`,
        class: "window",
      }),
      svg("path", { d: `M${x(window.centre) - k} ${y}l${k} ${-k}l${k} ${k}l${-k} ${k}z`, class: "centre" }),
    );
  });
  table.picked?.forEach((columns_, i) =>
    columns_.forEach((j) =>
      over.append(
        svg("circle", {
          cx: margin + (j + 0.5) * cell,
          cy: above + (i + 0.5) * cell,
          r: Math.max(2, cell * 0.3),
          class: "picked",
        }),
      ),
    ),
  );
  const cursor = svg("rect", { class: "cursor", width: cell, height: cell, visibility: "hidden" });
  over.append(cursor);
  const node = el(
    "div",
    {
      class: "heat",
      tabindex: "0",
      role: "img",
      "aria-label": `${label}: ${n} rows, ${m} columns; arrows move from cell to cell`,
      style: { width: `${wide}px`, height: `${high}px` },
    },
    canvas,
    over,
    bar.node,
  );
  const paint = () => {
    dots(canvas, table);
    dash();
    bar.paint();
  };
  paint();
  let at = null;
  const move = (i, j) => {
    at = i === null ? null : [Math.min(n - 1, Math.max(0, i)), Math.min(m - 1, Math.max(0, j))];
    cursor.setAttribute("visibility", at ? "visible" : "hidden");
    over.querySelectorAll(".lit").forEach((each) => each.classList.remove("lit"));
    if (at) {
      cursor.setAttribute("x", margin + at[1] * cell);
      cursor.setAttribute("y", above + at[0] * cell);
      over.querySelector(`[data-row="${at[0]}"]`)?.classList.add("lit");
      over.querySelector(`[data-column="${at[1]}"]`)?.classList.add("lit");
    }
    oncell(...(at ?? [null, null]));
  };
  node.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect(),
      j = Math.floor(((event.clientX - box.left) / box.width) * m),
      i = Math.floor(((event.clientY - box.top) / box.height) * n);
    if (i >= 0 && j >= 0 && i < n && j < m) move(i, j);
    else move(null);
  });
  node.addEventListener("pointerleave", () => move(null));
  node.addEventListener("blur", () => move(null));
  node.addEventListener("keydown", (event) => {
    const by = {
      ArrowRight: [0, 1],
      ArrowLeft: [0, -1],
      ArrowDown: [1, 0],
      ArrowUp: [-1, 0],
      Home: [0, -m],
      End: [0, m],
    }[event.key];
    if (!by) return;
    event.preventDefault();
    if (at) move(at[0] + by[0], at[1] + by[1]);
    else move(0, 0);
  });
  // Step from row to row, to the cell of the largest magnitude.
  const step = (by) => {
    const i = Math.min(n - 1, Math.max(0, at ? at[0] + by : by > 0 ? 0 : n - 1));
    let best = 0;
    for (let j = 1; j < m; j++) if (Math.abs(table.at(i, j)) > Math.abs(table.at(i, best))) best = j;
    move(i, best);
  };
  const made = { node, paint, move, step };
  let whole = node;
  // If words are cut off or left out, add a button that shows them in full.
  const cuts = [...rows, ...columns].some((unit) => [...unit.text].length > most);
  if (full || cuts || (!named && n * m < 60000)) {
    made.node = whole = el(
      "div",
      { class: "heat-box" },
      node,
      el(
        "button",
        {
          type: "button",
          class: "link small unfold",
          onclick: () => {
            const other = heat(table, { label, oncell, width, full: !full });
            painters.delete(made.paint);
            painters.add(other.paint);
            whole.replaceWith(other.node);
            Object.assign(made, other);
            other.node.querySelector("button")?.focus();
          },
        },
        full ? "fewer letters" : "words in full",
      ),
    );
  }
  return made;
}

// Describe a cell of a heat map.
function cellSaid(table, i, j) {
  if (i === null) return "";
  return [
    said(table.rows[i].text, { class: "who" }),
    " → ",
    said(table.columns[j].text, { class: "who" }),
    "  ",
    el("b", {}, share(table.at(i, j), 3)),
    table.entropy && table.entropy[i] !== null
      ? `   entropy of the row ${decimal(table.entropy[i])} of ${decimal(table.most)} nats`
      : "",
  ];
}
