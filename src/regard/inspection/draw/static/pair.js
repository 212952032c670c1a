// Word by word: the section of words and lines, with the choice of layer and head.

function textViews(exhibit) {
  return exhibit.views.filter(
    (view) =>
      ["cross", "encoder", "decoder"].includes(view.role) &&
      !exhibit.sides[view.columns]?.grid &&
      !exhibit.sides[view.rows]?.grid,
  );
}

// Return the tables of an attention that the page shows: one, or one for each head that is not hidden.
function tablesOf(exhibit, view, head, merged, hidden) {
  if (head !== "all" || view.heads === 1)
    return [{ head: null, table: tableOf(exhibit, view, view.heads > 1 ? head : 0, merged) }];
  return Array.from({ length: view.heads }, (_, h) => h)
    .filter((h) => !hidden.has(h))
    .map((h) => ({ head: h, hue: hueOf(h, view.heads), table: tableOf(exhibit, view, h, merged) }));
}

const isLong = (exhibit, view, merged) =>
  [view.rows, view.columns].some((name, k) => unitsOf(exhibit.sides[name], k ? view.m : view.n, merged).length > MANY);

// `both` holds what two drawings side by side share: their orientation, and the line of each word.
function pairSection(exhibit, state, both = null) {
  const views = textViews(exhibit);
  if (!views.length) return null;
  const node = section("pair", "Word by word");
  const lead = el("p", { class: "lead" });
  const bar = el("div", { class: "bar-row" });
  const legend = el("div", { class: "legend", role: "group", "aria-label": "heads that are drawn" });
  const stage = el("div", { class: "pair" });
  const told = readout(
    "Point at a word, or Tab to one and use the arrows. H and L change head and layer, S stretches colours, Esc lets go.",
  );
  const matrix = matrixPicker(exhibit, state, views);
  node.append(lead, bar, legend, ...[matrix?.node].filter(Boolean), stage, told.node);
  let drawn = null,
    toward = false,
    added = null; // the colour scale of values that are not weights
  const bar_ = scaleBar(() => {
    if (!drawn?.table || (added === null && drawn.several)) return null; // each head has its own colour
    return added ?? tableScale(drawn.table);
  });
  const scale = {
    node: bar_.node,
    show: (other) => {
      added = other;
      bar_.paint();
    },
  };
  painters.add(bar_.paint);
  const hidden = new Set();

  const pick =
    views.length > 1 &&
    menu(
      "Attention",
      views.map((view) => [view.name, capital(view.title)]),
      null,
      (name) => state.choose({ view: name }),
    );
  const direction = choice(
    "Show",
    [
      [false, "where it looks"],
      [true, "what looks at it"],
    ],
    toward,
    (value) => {
      toward = value;
      render(true);
    },
  );
  const drawLegend = (view) => {
    legend.replaceChildren(
      ...Array.from({ length: view.heads }, (_, h) =>
        el(
          "button",
          {
            type: "button",
            class: "plain",
            "aria-pressed": String(!hidden.has(h)),
            onclick: () => {
              if (!hidden.delete(h) && hidden.size < view.heads - 1) hidden.add(h);
              render(true);
              legend.children[h].focus();
            },
          },
          el("span", { class: "swatch", style: { "--hue": hueOf(h, view.heads) } }),
          `head ${h + 1}`,
        ),
      ),
    );
  };
  const render = (anew = false) => {
    const view = views.find((each) => each.name === state.view) ?? drawn?.view ?? views[0];
    if (anew !== true && drawn && drawn.view === view && drawn.head === state.head && drawn.merged === state.merged)
      return;
    const focus = drawn?.words.findIndex((word) => word.node === document.activeElement) ?? -1;
    if (drawn?.view !== view) hidden.clear();
    const long = isLong(exhibit, view, state.merged),
      head = long && state.head === "all" ? null : state.head;
    pick && pick.set(view.name);
    const heads = view.heads > 1 ? headChoice(view, head, (each) => state.choose({ head: each }), !long) : null;
    const inside = bar.contains(document.activeElement) && document.activeElement.type === "radio";
    const turns = long && view.rows === view.columns;
    const active = document.activeElement;
    bar.replaceChildren(...[pick?.node, heads?.node, turns ? direction.node : null].filter(Boolean));
    if (inside) (direction.node.contains(active) ? active : bar.querySelector("input:checked"))?.focus();
    if (head === "all" && view.heads > 1) drawLegend(view);
    else legend.replaceChildren();
    const tables = tablesOf(exhibit, view, head, state.merged, hidden);
    const options = {
      marked: exhibit.marked,
      toward,
      slots: both?.slotsOf(exhibit, tables[0].table, view) ?? null,
      down: both?.isDown() ?? false,
      scale,
      onrow: (unit) => state.chooseRow(unit.pieces[0] ?? null),
    };
    drawn = lines(stage, tables, view, told, options);
    if (drawn.flow && tables.length > 1) {
      legend.replaceChildren();
      drawn = lines(stage, tablesOf(exhibit, view, null, state.merged, hidden), view, told, { ...options, long: true });
      drawn.meant = true;
    }
    if (drawn.flow && drawn.same && !turns) bar.append(direction.node);
    Object.assign(drawn, { view, head: state.head, merged: state.merged });
    bar_.paint();
    both?.fitted(node, drawn.fits || drawn.flow);
    lead.textContent = leadOf(drawn, view) + (drawn.meant ? " There is no room for lines of all heads: this is their mean." : "");
    if (focus >= 0) drawn.words[Math.min(focus, drawn.words.length - 1)].node.focus();
  };
  node.addEventListener("keydown", (event) => {
    if (event.target.matches("select") || event.altKey || event.ctrlKey || event.metaKey) return;
    const key = event.key.toLowerCase(),
      back = event.shiftKey ? -1 : 1;
    if (key === "h" && drawn.view.heads > 1) {
      const order = [null, ...(drawn.flow ? [] : ["all"]), ...Array(drawn.view.heads).keys()],
        at = order.indexOf(state.head);
      state.choose({ head: order[(at + back + order.length) % order.length] });
    } else if (key === "l") {
      const same = views.filter((view) => view.role === drawn.view.role),
        at = same.indexOf(drawn.view);
      state.choose({ view: same[(at + back + same.length) % same.length].name });
    } else if (event.key === "Escape") drawn.light(null, true);
  });
  state.on(render);
  onStretch(() => node.draw());
  let wide = 0;
  node.draw = () => render(true);
  node.ready = () => {
    render();
    wide = node.clientWidth;
    new ResizeObserver(() => {
      if (node.clientWidth !== wide && !printing) {
        wide = node.clientWidth;
        both?.resized();
        node.fit ? node.fit() : render(true);
      }
    }).observe(node);
  };
  node.figures = [["words and lines", () => stage]];
  // Step from row to row; the first step selects the first or the last word.
  node.step = (by, whole = false) => {
    const now = drawn.at(),
      count = drawn.below.length;
    const next = whole ? (by > 0 ? count - 1 : 0) : now === null ? (by > 0 ? 0 : count - 1) : now + by;
    drawn.below[Math.min(count - 1, Math.max(0, next))].node.focus();
  };
  node.showRow = (piece) => {
    const word = drawn.below.find((each) => each.unit.pieces.includes(piece));
    word?.node.click();
  };
  // Use the largest of a few font sizes that fits into the window; the lines then take the remaining height.
  node.enlarge = (room) => {
    const sizes = [3.4, 3, 2.6, 2.2, 1.9, 1.6, 1.35, 1.15, 1];
    const now = drawn.at();
    const drawAt = (size, gap) => {
      stage.style.fontSize = `${size}rem`;
      stage.style.setProperty("--gap", `${gap}px`);
      render(true);
    };
    const least = 96;
    for (const size of sizes) {
      drawAt(size, least);
      const wide = drawn.layout !== "across" && size > 1.6 && drawn.below.length <= 14; // prefer words side by side
      if (!wide && stage.scrollHeight <= room && stage.scrollWidth <= stage.clientWidth + 1) {
        if (drawn.layout === "across") drawAt(size, least + room - stage.scrollHeight);
        break;
      }
    }
    if (now !== null) drawn.below[now].node.focus();
  };
  node.shrink = () => {
    stage.style.fontSize = "";
    stage.style.removeProperty("--gap");
    render(true);
  };
  // Paper is narrower than the screen: shrink words and lines together, in the same layout.
  addEventListener("beforeprint", () => {
    stage.style.width = `${stage.clientWidth}px`;
    stage.style.zoom = Math.min(1, 680 / stage.clientWidth);
  });
  addEventListener("afterprint", () => {
    stage.style.width = stage.style.zoom = "";
  });
  return node;
}

function leadOf(drawn, view) {
  if (drawn.flow && drawn.same)
    return "The darker a word, the more it is looked at: by all, or by the word that you choose.";
  if (drawn.flow) return "The source and the output, each in a pane: the source scrolls to what a word looks at most.";
  const down = drawn.layout === "down";
  if (view.role === "cross")
    return `The source ${down ? "on the left, the output on the right" : "above, the output below"}: the thicker a line, the more a word looked there.`;
  return down
    ? "The same text twice: on the right, the words that look; on the left, what they look at."
    : "The same text twice: below, the words that look; above, what they look at.";
}

// Return small maps of every layer and head to pick one from; opening the picker draws them.
function matrixPicker(exhibit, state, views) {
  const count = views.reduce((sum, view) => sum + view.heads, 0);
  if (count < 2) return null;
  const buttons = [],
    body = el("div", { class: "matrix" });
  const press = () =>
    buttons.forEach(({ node, view, head }) =>
      node.setAttribute("aria-pressed", String(view.name === state.view && (view.heads === 1 || head === state.head))),
    );
  const draw = () => {
    if (!buttons.length)
      for (const [role, name] of Object.entries(ROLES)) {
        const own = views.filter((view) => view.role === role);
        if (own.length) body.append(multiples(exhibit, state, own, name, buttons));
      }
    if (!body.querySelector(".scale-row")) body.append(multiplesScale(views));
    buttons.forEach((button) => button.draw());
    press();
  };
  const node = el(
    "details",
    { class: "picker", ontoggle: () => node.open && draw() },
    el("summary", {}, "Pick from all layers and heads"),
    body,
  );
  painters.add(() => node.open && draw());
  state.on(press);
  return { node };
}
