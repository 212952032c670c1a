// All layers and heads as small maps, and one of them large.

const ROLES = {
  cross: "Output to source",
  encoder: "Source to itself",
  decoder: "Output to itself",
  memory: "Memory",
};

function matrixViews(exhibit) {
  return exhibit.views.filter(
    (view) => ROLES[view.role] && !exhibit.sides[view.columns]?.grid && !exhibit.sides[view.rows]?.grid,
  );
}

function headsSection(exhibit, state) {
  const views = matrixViews(exhibit);
  if (!views.length) return null;
  const count = views.reduce((sum, view) => sum + view.heads, 0);
  const node =
    count > 1
      ? section(
          "heads",
          "Every layer and head",
          "A row looks at its columns. The bar below a head is its entropy: the longer, the wider it looks.",
        )
      : section("heads", "The whole of it", "A row looks at its columns: the stronger the colour, the more.");
  const large = el("div", { class: "large" });
  const body = el("div", { class: count > 1 ? "heads" : "heads one" });
  const buttons = [];
  if (count > 1) {
    const small = el("div", { class: "multiples" });
    for (const [role, name] of Object.entries(ROLES)) {
      const own = views.filter((view) => view.role === role);
      if (own.length) small.append(multiples(exhibit, state, own, name, buttons));
    }
    small.append(multiplesScale(views));
    body.append(small);
  }
  body.append(large);
  node.append(body);
  let drawn = null;
  const enlarge = () => {
    const view = views.find((each) => each.name === state.view) ?? views[0],
      head = view.heads > 1 ? (state.head === "all" ? null : state.head) : 0;
    for (const button of buttons)
      button.node.setAttribute("aria-pressed", String(button.view === view && button.head === head));
    const table = tableOf(exhibit, view, head, state.merged),
      told = readout("Point at a cell, or focus the map and use the arrows.");
    const entropy = table.entropy && mean(besideRows(view.entropy, head));
    if (drawn) painters.delete(drawn.paint);
    const room = Math.max(260, Math.min(large.clientWidth || 620, 900));
    drawn = heat(table, {
      label: `${view.title}, ${headName(head)}`,
      oncell: (i, j) => told.say(cellSaid(table, i, j)),
      width: room,
    });
    painters.add(drawn.paint);
    large.replaceChildren(
      el("h3", {}, capital(view.title), view.heads > 1 ? el("span", { class: "faint" }, ` · ${headName(head)}`) : ""),
      el(
        "p",
        { class: "faint small" },
        [
          view.how,
          entropy !== null ? `entropy ${decimal(entropy)} of ${decimal(table.most)} nats` : null,
          `largest ${share(table.largest)}`,
          table.windows ? "◆ centre and ⊢⊣ window" : null,
          table.picked ? "○ what was taken" : null,
        ]
          .filter(Boolean)
          .join(" · "),
      ),
      el("div", { class: "scroll" }, drawn.node),
      told.node,
    );
  };
  const small = () => buttons.forEach((button) => button.draw());
  let merged = state.merged;
  state.on(() => {
    if (state.merged !== merged) {
      merged = state.merged;
      small();
    }
    enlarge();
  });
  painters.add(small);
  node.figures = [
    ["one head", () => large.querySelector(".heat")],
    ...(count > 1 ? [["all layers and heads", () => body.querySelector(".multiples")]] : []),
  ];
  node.step = (by) => drawn.step(by);
  node.ready = () => {
    small();
    enlarge();
  };
  return node;
}

function multiples(exhibit, state, views, name, buttons) {
  const heads = Math.max(...views.map((view) => view.heads));
  const grid = el("div", {
    class: "grid",
    role: "group",
    "aria-label": `${name}: layers and heads`,
    style: { "--heads": heads, "--small": heads < 4 ? "6.5rem" : "4.2rem" },
  });
  grid.append(
    el("span", { class: "corner" }),
    ...Array.from({ length: heads }, (_, h) =>
      el("span", { class: "faint small head", "aria-hidden": "true" }, heads > 1 ? String(h + 1) : ""),
    ),
  );
  const made = [];
  for (const view of views) {
    grid.append(
      el(
        "span",
        { class: "faint small layer" },
        views.length > 1 ? (view.role === "memory" ? view.title : String(view.layer + 1)) : "",
      ),
    );
    for (let head = 0; head < heads; head++) {
      if (head >= view.heads) {
        grid.append(el("span"));
        continue;
      }
      const canvas = el("canvas", { "aria-hidden": "true" });
      const entropy = view.entropy && mean(view.entropy[head]),
        most = Math.log(view.m) || 1;
      const node = el(
        "button",
        {
          type: "button",
          class: "multiple",
          "aria-pressed": "false",
          "aria-label": `${view.title}, head ${head + 1}${view.entropy ? `, entropy ${decimal(entropy)} nats` : ""}`,
          onclick: () => {
            state.choose({ view: view.name, head: view.heads > 1 ? head : state.head });
            if (innerWidth < 900) node.closest(".heads")?.querySelector(".large").scrollIntoView({ block: "nearest" });
          },
        },
        canvas,
        view.entropy && el("span", { class: "entropy", style: { width: `${((100 * entropy) / most).toFixed(1)}%` } }),
      );
      const draw = () => {
        const table = tableOf(exhibit, view, head, state.merged && view.n * view.m < 20000),
          spread = view.entropy ? `entropy ${decimal(entropy)} nats, ` : "";
        dots(canvas, table);
        node.title = `${view.title}, head ${head + 1}: ${spread}largest ${share(table.largest)}`;
      };
      made.push(node);
      buttons.push({ node, view, head, draw });
      grid.append(node);
    }
  }
  roving(made, { columns: () => heads });
  const layers = views.length > 1 && views[0].role !== "memory" ? `${views.length} layers` : "";
  const size = [layers, heads > 1 ? `${heads} heads` : ""].filter(Boolean).join(", ");
  const title = el("h3", {}, name, size ? el("span", { class: "faint" }, ` · ${size}`) : "");
  return el("div", { class: "role" }, title, grid);
}

// Return one colour bar for all small maps of weights; scores have scales of their own, which the large map shows.
function multiplesScale(views) {
  const others = views.some((view) =>
    view.low.some((low, head) => low < -1e-6 || low + 255 * view.step[head] > 1.02),
  );
  const bar = scaleBar(() => ({
    top: 1,
    note: [stretching.on ? STRETCHED_EACH : "", others ? "scores: each on its own scale" : ""].filter(Boolean).join("; "),
  }));
  painters.add(bar.paint);
  return bar.node;
}
