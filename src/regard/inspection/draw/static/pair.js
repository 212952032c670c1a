// Words, and lines between those that look and those that are looked at.

const MANY = 90; // words of a side past which a text is shaded in place, without lines

function textViews(exhibit) {
  return exhibit.views.filter(
    (view) =>
      ["cross", "encoder", "decoder"].includes(view.role) &&
      !exhibit.sides[view.columns]?.grid &&
      !exhibit.sides[view.rows]?.grid,
  );
}

function pairSection(exhibit, state) {
  const views = textViews(exhibit);
  if (!views.length) return null;
  const node = section("pair", "Word by word");
  const lead = el("p", { class: "lead" });
  const bar = el("div", { class: "bar-row" });
  const stage = el("div", { class: "pair" });
  const told = readout(
    "Point at a word, or Tab to one and use the arrows. H and L change head and layer, Esc lets go.",
  );
  node.append(lead, bar, stage, told.node);
  let drawn = null;

  const pick =
    views.length > 1 &&
    menu(
      "Attention",
      views.map((view) => [view.name, capital(view.title)]),
      null,
      (name) => state.choose({ view: name }),
    );
  let heads = null;
  const render = (anew = false) => {
    const view = views.find((each) => each.name === state.view) ?? drawn?.view ?? views[0];
    if (anew !== true && drawn && drawn.view === view && drawn.head === state.head && drawn.merged === state.merged)
      return;
    const focus = drawn?.words.findIndex((word) => word.node === document.activeElement) ?? -1;
    pick && pick.set(view.name);
    heads = view.heads > 1 ? headChoice(view, state.head, (head) => state.choose({ head })) : null;
    const inside = bar.contains(document.activeElement) && document.activeElement.type === "radio";
    bar.replaceChildren(...[pick?.node, heads?.node].filter(Boolean));
    if (inside) bar.querySelector("input:checked")?.focus();
    const table = tableOf(exhibit, view, view.heads > 1 ? state.head : 0, state.merged);
    drawn = lines(stage, table, view, told, exhibit.marked, (unit) => state.chooseRow(unit.pieces[0] ?? null));
    Object.assign(drawn, { view, head: state.head, merged: state.merged });
    lead.textContent =
      view.role === "cross"
        ? "The source above, the output below: the thicker a line, the more a word looked there."
        : "The same text twice: below, the words that look; above, what they look at.";
    if (drawn.flow)
      lead.textContent = "The darker a word, the more it is looked at: by all, or by the word that you choose.";
    if (drawn.layout === "down")
      lead.textContent = lead.textContent
        .replace("above, the output below", "on the left, the output on the right")
        .replace(
          "below, the words that look; above, what they look at",
          "on the right, the words that look; on the left, what they look at",
        );
    if (focus >= 0) drawn.words[Math.min(focus, drawn.words.length - 1)].node.focus();
  };
  node.addEventListener("keydown", (event) => {
    if (event.target.matches("select") || event.altKey || event.ctrlKey || event.metaKey) return;
    const key = event.key.toLowerCase(),
      back = event.shiftKey ? -1 : 1;
    if (key === "h" && drawn.view.heads > 1) {
      const order = [null, ...Array(drawn.view.heads).keys()],
        at = order.indexOf(state.head);
      state.choose({ head: order[(at + back + order.length) % order.length] });
    } else if (key === "l") {
      const same = views.filter((view) => view.role === drawn.view.role),
        at = same.indexOf(drawn.view);
      state.choose({ view: same[(at + back + same.length) % same.length].name });
    } else if (event.key === "Escape") drawn.light(null, true);
  });
  state.on(render);
  let wide = 0;
  node.ready = () => {
    render();
    wide = node.clientWidth;
    new ResizeObserver(() => {
      if (node.clientWidth !== wide && !printing) {
        wide = node.clientWidth;
        render(true);
      }
    }).observe(node);
  };
  // Paper is narrower than the screen: words and lines shrink together, as they stand.
  addEventListener("beforeprint", () => {
    stage.style.width = `${stage.clientWidth}px`;
    stage.style.zoom = Math.min(1, 680 / stage.clientWidth);
  });
  addEventListener("afterprint", () => {
    stage.style.width = stage.style.zoom = "";
  });
  return node;
}

// Draws a table as words and lines; says which words there are, and lights one of them.
function lines(stage, table, view, told, marked, onrow = () => {}) {
  const same = view.rows === view.columns;
  const make = (unit, at, edge) => ({ unit, at, edge, number: el("span", { class: "number" }), node: null });
  const above = table.columns.map((unit, at) => make(unit, at, "columns")),
    below = table.rows.map((unit, at) => make(unit, at, "rows"));
  const words = [...above, ...below];
  const flow = Math.max(table.n, table.m) > MANY;
  for (const word of words) {
    const differs = word.edge === "rows" && marked?.has(word.unit.text + "\u0000" + word.at) && view.role === "cross";
    word.node = el(
      "button",
      {
        type: "button",
        class: `word${marksOf(word.unit)}${differs ? " differs" : ""}`,
        "data-edge": word.edge,
        "data-at": word.at,
      },
      said(word.unit.text, { class: "text" }),
      word.number,
    );
    if (word.unit.unknown) word.node.title = NOT_KNOWN;
    if (differs) word.node.title = "looks elsewhere in the other";
  }
  const row = (list, name, label) =>
    el(
      "div",
      {
        class: `words ${name}`,
        role: "group",
        "aria-label": label,
        dir: directionOf(list.map((word) => word.unit.text)),
      },
      list.map((word) => word.node),
    );
  const top = row(above, "above", same ? "looked at" : "the source"),
    bottom = row(below, "below", same ? "looking" : "the output");
  const drawing = svg("svg", { class: "lines", "aria-hidden": "true" });
  stage.className = "pair across";
  if (flow) {
    stage.className = "pair flow";
    stage.replaceChildren(...(same ? [bottom] : [top, bottom]));
  } else {
    stage.replaceChildren(top, drawing, bottom);
    const fits = (list) => [...list].reduce((sum, each) => sum + each.offsetWidth + 8, 0) <= stage.clientWidth;
    if (!(fits(top.children) && fits(bottom.children)) || !stage.clientWidth) stage.className = "pair down";
  }
  const down = stage.classList.contains("down");
  const weight = (i, j) => table.at(i, j),
    strength = (i, j) => Math.abs(weight(i, j)) / (table.signed ? table.top : 1);

  const box = stage.getBoundingClientRect();
  const spot = (word) => {
    const own = word.node.getBoundingClientRect();
    const x = (own.left + own.right) / 2 - box.left,
      y = (own.top + own.bottom) / 2 - box.top;
    if (!down) return [x, word.edge === "columns" ? own.bottom - box.top + 2 : own.top - box.top - 2];
    return [word.edge === "columns" ? own.right - box.left + 4 : own.left - box.left - 4, y];
  };
  const places = flow ? [] : words.map(spot);
  const curve = (i, j) => {
    const [x1, y1] = places[j],
      [x2, y2] = places[table.m + i];
    const bend = down ? (x2 - x1) / 2 : (y2 - y1) / 2;
    return down
      ? `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`
      : `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
  };
  // At rest, what a word looks at most and whatever comes near it; lines grow with their weight, in width and in ink.
  const path = (i, j, active) => {
    const w = strength(i, j);
    const node = svg("path", {
      d: curve(i, j),
      "stroke-width": (0.5 + 6 * w).toFixed(2),
      "stroke-opacity": (active ? 0.25 + 0.75 * w : 0.12 + 0.6 * w).toFixed(2),
      class: weight(i, j) < 0 ? "negative" : "",
    });
    return node;
  };
  const ring = (i, j) => {
    const [x, y] = places[j];
    return svg("circle", { cx: down ? x + 3 : x, cy: down ? y : y + 3, r: 4, class: "picked" });
  };
  const rest = svg("g", { class: "rest" }),
    live = svg("g", { class: "live" });
  if (!flow) {
    for (let i = 0; i < table.n; i++) {
      let most = 0;
      for (let j = 0; j < table.m; j++) most = Math.max(most, strength(i, j));
      for (let j = 0; j < table.m; j++)
        if (strength(i, j) > 0.004 && (strength(i, j) >= 0.12 || strength(i, j) >= 0.85 * most))
          rest.append(path(i, j, false));
      table.picked?.[i].forEach((j) => rest.append(ring(i, j)));
    }
    drawing.append(rest, live);
  }
  let active = null,
    pinned = false;
  const wash = (word, w) => word.node.style.setProperty("--w", Math.min(1, w).toFixed(3));
  const shadow = flow && same ? (at) => below[at] : (at) => above[at];

  // Of a long text, how much each word is looked at by all.
  const sums =
    flow && same
      ? Float32Array.from(below, (_, j) => {
          let sum = 0;
          for (let i = 0; i < table.n; i++) sum += strength(i, j);
          return sum;
        })
      : null;
  const resting = () => {
    if (sums) below.forEach((word, j) => wash(word, (0.8 * sums[j]) / largest(sums)));
  };
  resting();

  function light(word, force = false) {
    if (pinned && !force) return;
    if (force && word === null) pinned = false;
    if (word === active && !force) return;
    active = word;
    for (const each of words) {
      wash(each, 0);
      each.number.textContent = "";
      each.node.classList.remove("active", "lit", "picked");
    }
    live.replaceChildren();
    stage.classList.toggle("lighted", !!word);
    if (!word) {
      resting();
      told.say();
      return;
    }
    word.node.classList.add("active");
    const looking = word.edge === "rows";
    const others = Array.from({ length: looking ? table.m : table.n }, (_, k) => ({
      k,
      value: looking ? weight(word.at, k) : weight(k, word.at),
      strong: looking ? strength(word.at, k) : strength(k, word.at),
    }));
    for (const { k, value, strong } of others) {
      if (strong < 0.01) continue;
      const other = looking ? shadow(k) : below[k];
      wash(other, Math.sqrt(strong));
      other.node.classList.add("lit");
      if (other !== word) other.number.textContent = share(value);
      if (!flow) live.append(looking ? path(word.at, k, true) : path(k, word.at, true));
    }
    if (looking && table.picked)
      table.picked[word.at].forEach((j) => {
        shadow(j).node.classList.add("picked");
        if (!flow) live.append(ring(word.at, j));
      });
    if (looking && table.windows?.[word.at] && !flow)
      live.append(...windowOver(table.windows[word.at], above, down, stage.getBoundingClientRect()));
    const best = others
      .filter((each) => each.strong >= 0.005)
      .sort((a, b) => b.strong - a.strong)
      .slice(0, 4);
    told.say(
      said(word.unit.text, { class: "who" }),
      looking ? " looks at " : " is looked at by ",
      best.flatMap(({ k, value }, index) => [
        index ? ", " : "",
        said((looking ? table.columns : table.rows)[k].text, { class: "who" }),
        " ",
        el("b", {}, share(value)),
      ]),
      best.length ? "" : "nothing",
      looking && table.entropy && table.entropy[word.at] !== null
        ? `; entropy ${decimal(table.entropy[word.at])} nats`
        : "",
      looking && table.windows?.[word.at] ? "; ◆ is the centre of its window" : "",
      looking && table.picked?.[word.at].size ? "; ringed is what was taken" : "",
    );
  }

  for (const word of words) {
    word.node.addEventListener("pointerenter", (event) => event.pointerType !== "touch" && light(word));
    word.node.addEventListener("focus", () => {
      light(word, true);
      if (word.edge === "rows") onrow(word.unit);
    });
    word.node.addEventListener("click", () => {
      const held = pinned && active === word;
      pinned = false;
      light(word, true);
      pinned = !held;
    });
    word.node.addEventListener("keydown", (event) => {
      const across = { ArrowUp: "columns", ArrowDown: "rows" },
        aside = { ArrowLeft: "columns", ArrowRight: "rows" };
      const edge = (down ? aside : flow ? {} : across)[event.key];
      if (!edge || edge === word.edge) return;
      event.preventDefault();
      // To the word of the other side that this one has most to do with.
      const count = edge === "columns" ? table.m : table.n,
        mine = (k) => (edge === "columns" ? strength(word.at, k) : strength(k, word.at));
      let best = 0;
      for (let k = 1; k < count; k++) if (mine(k) > mine(best)) best = k;
      (edge === "columns" ? above : below)[best].node.focus();
    });
  }
  roving(
    (flow && same ? [] : above).map((word) => word.node),
    { columns: () => (down ? 1 : Infinity) },
  );
  roving(
    below.map((word) => word.node),
    { columns: () => (down ? 1 : Infinity) },
  );
  stage.onpointerleave = () => light(null);
  stage.onfocusout = (event) => {
    if (!stage.contains(event.relatedTarget)) {
      pinned = false;
      light(null, true);
    }
  };
  return { words: flow && same ? below : words, light, flow, layout: flow ? "flow" : down ? "down" : "across" };
}

// A bracket over the words of a window, and a diamond where it is centred.
function windowOver(window, above, down, box) {
  const boxes = above.map((word) => word.node.getBoundingClientRect());
  const at = (place) => {
    const k = Math.min(above.length - 1, Math.max(0, Math.round(place))),
      own = boxes[k],
      part = Math.min(0.5, Math.max(-0.5, place - k)) + 0.5;
    const forward = above[0].node.parentElement.dir === "rtl" ? 1 - part : part;
    return down ? own.top + own.height * part - box.top : own.left + own.width * forward - box.left;
  };
  const edge = down
    ? Math.min(...boxes.map((each) => each.left)) - box.left - 36
    : Math.min(...boxes.map((each) => each.top)) - box.top - 19;
  const [from, to, middle] = [window.from, window.to, window.centre].map(at);
  return down
    ? [
        svg("path", { d: `M${edge + 5} ${from}h-5V${to}h5`, class: "window" }),
        svg("path", { d: `M${edge - 5} ${middle}l5 -5l5 5l-5 5z`, class: "centre" }),
      ]
    : [
        svg("path", { d: `M${from} ${edge + 5}v-5H${to}v5`, class: "window" }),
        svg("path", { d: `M${middle - 5} ${edge}l5 -5l5 5l-5 5z`, class: "centre" }),
      ];
}
