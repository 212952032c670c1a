// The search step by step: the candidates it considered, those it kept, and the path to the output.

const SIGNS = { kept: "●", finished: "■", dropped: "×" };
const DROPPED = 4; // dropped candidates drawn per step; the table lists all of them

function searchSection(exhibit) {
  const { tree } = exhibit;
  if (!tree?.steps.length) return null;
  const steps = tree.steps.map((step, t) =>
    step.map(([parent, piece, logProb, total, fate, row, best]) => ({
      t,
      parent,
      piece,
      logProb,
      total,
      fate,
      row,
      best,
    })),
  );
  steps.forEach((step, t) =>
    step.forEach((each) => {
      each.from = t ? steps[t - 1].find((other) => other.row === each.parent) : null;
    }),
  );
  const node = section(
    "search",
    "Step by step",
    tree.beam > 1
      ? `A beam of ${tree.beam}: the best continuations are kept at every step. The thick line leads to the output.`
      : "One hypothesis, and what else could have been written at every step.",
  );
  const list = el("div", { class: "step" }),
    told = el("p", { class: "readout", "aria-live": "polite" });
  const range = el("input", {
    type: "range",
    min: 1,
    max: steps.length,
    value: 1,
    "aria-label": "Step",
    oninput: () => go(Number(range.value) - 1),
  });
  const go = (to) => {
    at = Math.min(steps.length - 1, Math.max(0, to));
    range.value = at + 1;
    range.setAttribute("aria-valuetext", `step ${at + 1} of ${steps.length}`);
    number.textContent = `step ${at + 1} of ${steps.length}`;
    drawing.mark(at);
    table(at);
  };
  const number = el("span", { class: "faint small counter" });
  const button = (text, label, by) =>
    el("button", { type: "button", class: "plain", "aria-label": label, onclick: () => go(at + by) }, text);
  const play = player((begun) => {
    if (begun && at === steps.length - 1) go(0);
    else go(at + 1);
    return at < steps.length - 1;
  });
  let at = 0;
  const drawing = beam(steps, (t) => go(t));
  const way = (each) => {
    const pieces = [];
    for (let one = each.from; one; one = one.from) pieces.unshift(one.piece);
    return pieces;
  };
  const table = (t) => {
    const order = [...steps[t]].sort((a, b) => b.total - a.total);
    const top = Math.max(...order.map((each) => Math.exp(each.logProb ?? -Infinity)), 1e-9);
    list.replaceChildren(
      el(
        "table",
        { class: "candidates" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            [unseen("mark"), "so far", "piece", "probability", "total", "fate"].map((name, k) =>
              el("th", { scope: "col", class: k === 4 ? "number" : "" }, name),
            ),
          ),
        ),
        el(
          "tbody",
          {},
          order.map((each) =>
            el(
              "tr",
              { class: `${each.fate}${each.best ? " best" : ""}` },
              el("td", { class: "sign", "aria-hidden": "true" }, SIGNS[each.fate]),
              el("td", { class: "sofar" }, said(way(each).join(" ") || "–")),
              el("td", {}, said(each.piece, { class: "piece" })),
              el(
                "td",
                {},
                el(
                  "span",
                  { class: "meter", "aria-hidden": "true" },
                  el("span", {
                    style: { width: `${((100 * Math.exp(each.logProb)) / Math.max(1, top)).toFixed(1)}%` },
                  }),
                ),
                el("span", { class: "value" }, chance(each.logProb, 3)),
              ),
              el("td", { class: "number" }, decimal(each.total)),
              el("td", {}, each.fate, each.best ? el("b", {}, " · output") : ""),
            ),
          ),
        ),
      ),
    );
    const best = steps[t].find((each) => each.best);
    told.replaceChildren(
      ...(best ? ["Written: ", said(best.piece, { class: "who" }), " ", el("b", {}, chance(best.logProb, 3))] : []),
    );
  };
  node.append(
    el(
      "div",
      { class: "bar-row" },
      button("←", "step before", -1),
      range,
      button("→", "next step", 1),
      play.node,
      number,
    ),
    drawing.node,
    el(
      "p",
      { class: "key small faint" },
      el("span", {}, "● kept"),
      el("span", {}, "■ finished"),
      el("span", {}, "× dropped"),
      el("span", {}, "━ the way to the output"),
    ),
    told,
    el("div", { class: "scroll" }, list),
  );
  node.figures = [["the tree", () => drawing.node.querySelector("svg")]];
  node.step = (by) => go(at + by);
  node.ready = () => go(0);
  return node;
}

// Draw the steps from left to right; each candidate has a mark, its piece and its probability.
function beam(steps, onstep) {
  const HIGH = 25,
    TOP = 28,
    measure = document.createElement("canvas").getContext("2d");
  measure.font = "650 13px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
  const drawn = steps.map((step) => {
    const kept = step.filter((each) => each.fate === "kept").sort((a, b) => a.row - b.row),
      ended = step.filter((each) => each.fate === "finished");
    const dropped = step.filter((each) => each.fate === "dropped").sort((a, b) => b.total - a.total);
    return {
      shown: [...kept, ...ended, ...dropped.slice(0, DROPPED)].sort((a, b) => b.best - a.best),
      more: Math.max(0, dropped.length - DROPPED),
    };
  });
  const most = Math.max(...drawn.map(({ shown: each }) => each.length));
  // The longest piece sets the width of a step; the probability follows it.
  const room = drawn.map(({ shown: list }) =>
      Math.max(44, ...list.map((each) => Math.ceil(measure.measureText(shown(each.piece)).width * 1.06))),
    ),
    lefts = room.map((_, t) => room.slice(0, t).reduce((sum, each) => sum + each + 80, 0));
  const wide = lefts.at(-1) + room.at(-1) + 110,
    high = TOP + (most + 1) * HIGH;
  const picture = svg("svg", {
    width: wide,
    height: high,
    viewBox: `0 0 ${wide} ${high}`,
    role: "img",
    "aria-label": `the search, ${steps.length} steps`,
  });
  const wash = svg("rect", { class: "wash", y: 0, height: high, rx: 6 });
  const edges = svg("g", { class: "edges" }),
    nodes = svg("g", { class: "nodes" });
  picture.append(wash, edges, nodes);
  const marks = {
    kept: (x, y) => svg("circle", { cx: x, cy: y, r: 4.5, class: "mark" }),
    finished: (x, y) => svg("rect", { x: x - 4.5, y: y - 4.5, width: 9, height: 9, class: "mark" }),
    dropped: (x, y) => svg("path", { d: `M${x - 3} ${y - 3}l6 6m0 -6l-6 6`, class: "mark" }),
  };
  drawn.forEach(({ shown: list, more }, t) => {
    nodes.append(svg("text", { x: lefts[t] + 14, y: 16, class: "tiny" }, String(t + 1)));
    list.forEach((each, k) => {
      const x = lefts[t] + 16,
        y = TOP + (k + 0.6) * HIGH,
        end = x + room[t] + 46;
      Object.assign(each, { x, y, end });
      const group = svg(
        "g",
        { class: `${each.fate}${each.best ? " best" : ""}`, onclick: () => onstep(t) },
        marks[each.fate](x, y),
        svg("text", { x: x + 10, y: y + 4, class: "piece" }, shown(each.piece)),
        svg("text", { x: end, y: y + 4, class: "p" }, chance(each.logProb)),
        svg("title", {}, `${each.piece} ${chance(each.logProb, 3)}, ${each.fate}`),
      );
      nodes.append(group);
      const from = each.from?.x === undefined ? (t ? null : { x: 0, y: TOP + 0.6 * HIGH }) : each.from;
      if (from && t)
        edges.append(
          svg("path", {
            d: `M${from.end + 4} ${from.y}C${from.end + 14} ${from.y} ${x - 17} ${y} ${x - 7} ${y}`,
            class: `${each.fate}${each.best ? " best" : ""}`,
          }),
        );
    });
    if (more)
      nodes.append(
        svg("text", { x: lefts[t] + 26, y: TOP + (list.length + 0.6) * HIGH + 4, class: "tiny" }, `and ${more} more`),
      );
  });
  edges.querySelectorAll(".best").forEach((each) => edges.append(each)); // draw the best path above the others
  const node = el(
    "div",
    { class: "scroll beam", tabindex: "0", role: "group", "aria-label": "the tree of the search" },
    picture,
  );
  let scrolled = false;
  const mark = (t) => {
    wash.setAttribute("x", lefts[t] + 3);
    wash.setAttribute("width", room[t] + 66);
    if (scrolled || t)
      node.scrollTo({
        left: Math.max(0, lefts[t] + room[t] / 2 - node.clientWidth / 2),
        behavior: quiet.matches ? "auto" : "smooth",
      });
    scrolled = true;
  };
  return { node, mark };
}
