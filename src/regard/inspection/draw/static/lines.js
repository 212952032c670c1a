// Words of two sides with lines for the weights between them: one table, or one for each head.

const MANY = 90; // with more words on a side, shade the text in place, without lines

// Return the hue of a head; neighbouring heads have distant hues.
function hueOf(head, heads) {
  return Math.round((360 * ((head * (heads > 4 ? 3 : 1)) % heads)) / heads + 207 + (heads > 4 && heads % 3 === 0 ? head * 7 : 0)) % 360;
}

// Draw tables as words and lines; return the words, and a function that highlights one of them. `tables` has one entry,
// or one for each head: {head, table}. `slots` gives each word its line if two drawings are side by side.
function lines(stage, tables, view, told, options = {}) {
  const { marked, onrow = () => {}, slots = null, down: forced = false, toward = false, long = false, scale } = options;
  const table = tables[0].table,
    several = tables.length > 1;
  const same = view.rows === view.columns;
  const make = (unit, at, edge) => ({ unit, at, edge, number: el("span", { class: "number" }), node: null });
  const above = table.columns.map((unit, at) => make(unit, at, "columns")),
    below = table.rows.map((unit, at) => make(unit, at, "rows"));
  const words = [...above, ...below];
  let flow = long || Math.max(table.n, table.m) > MANY;
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
    const slot = slots && (word.edge === "rows" ? slots.rows : slots.columns)[word.at];
    if (slot !== null && slot !== undefined) word.node.style.setProperty("grid-row", slot + 1);
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
  let fits = true;
  if (flow) {
    stage.className = same ? "pair flow" : "pair flow panes";
    stage.replaceChildren(...(same ? [bottom] : [top, bottom]));
  } else {
    stage.replaceChildren(top, drawing, bottom);
    const fit = (list) => [...list].reduce((sum, each) => sum + each.offsetWidth + 8, 0) <= stage.clientWidth;
    fits = fit(top.children) && fit(bottom.children) && stage.clientWidth > 0;
    if (!fits || forced) stage.className = `pair down${slots ? " slotted" : ""}`;
    // If the two sides do not fit into the window together, give each its own pane; self-attention needs only one.
    if (stage.classList.contains("down") && stage.scrollHeight > 1.6 * innerHeight && !stage.closest(".lecture")) {
      if (several) return { flow: true };
      flow = true;
      stage.className = same ? "pair flow" : "pair flow panes";
      stage.replaceChildren(...(same ? [bottom] : [top, bottom]));
    }
  }
  const down = stage.classList.contains("down");
  if (scale) stage.append(scale.node);
  const weight = (i, j, which = 0) => tables[which].table.at(i, j),
    strength = (i, j, which = 0) => Math.abs(weight(i, j, which)) / tables[which].table.top,
    strongest = (i, j) => Math.max(...tables.map((_, which) => strength(i, j, which)));

  const box = stage.getBoundingClientRect();
  const spot = (word) => {
    const own = word.node.getBoundingClientRect();
    const x = (own.left + own.right) / 2 - box.left,
      y = (own.top + own.bottom) / 2 - box.top;
    if (!down) return [x, word.edge === "columns" ? own.bottom - box.top + 2 : own.top - box.top - 2];
    return [word.edge === "columns" ? own.right - box.left + 4 : own.left - box.left - 4, y];
  };
  const places = flow ? [] : words.map(spot);
  const curve = (i, j, which) => {
    // Draw the lines of several heads side by side.
    const beside = several ? (which - (tables.length - 1) / 2) * Math.min(2.4, 14 / tables.length) : 0;
    const [x1, y1] = places[j].map((value, k) => value + (k === (down ? 1 : 0) ? beside : 0)),
      [x2, y2] = places[table.m + i].map((value, k) => value + (k === (down ? 1 : 0) ? beside : 0));
    const bend = down ? (x2 - x1) / 2 : (y2 - y1) / 2;
    return down
      ? `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`
      : `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
  };
  // Width and opacity of a line grow with its weight. At rest, show each word's largest weights and all large ones.
  const path = (i, j, active, which = 0) => {
    const w = strength(i, j, which);
    return svg("path", {
      d: curve(i, j, which),
      "stroke-width": (0.5 + (several ? 3 : 6) * w).toFixed(2),
      "stroke-opacity": (active ? 0.25 + 0.75 * w : 0.12 + 0.6 * w).toFixed(2),
      class: [weight(i, j, which) < 0 ? "negative" : "", several ? "of-head" : ""].join(" ").trim(),
      style: several ? { "--hue": tables[which].hue } : {},
    });
  };
  const ring = (i, j) => {
    const [x, y] = places[j];
    return svg("circle", { cx: down ? x + 3 : x, cy: down ? y : y + 3, r: 4, class: "picked" });
  };
  const rest = svg("g", { class: "rest" }),
    live = svg("g", { class: "live" });
  if (!flow) {
    const least = several ? 0.3 : 0.12;
    for (let which = 0; which < tables.length; which++)
      for (let i = 0; i < table.n; i++) {
        let most = 0;
        for (let j = 0; j < table.m; j++) most = Math.max(most, strength(i, j, which));
        for (let j = 0; j < table.m; j++) {
          const own = strength(i, j, which);
          if (own > 0.004 && (own >= least || own >= 0.85 * most)) rest.append(path(i, j, false, which));
        }
      }
    table.picked?.forEach((picks, i) => picks.forEach((j) => rest.append(ring(i, j))));
    drawing.append(rest, live);
  }
  let active = null,
    pinned = false;
  const wash = (word, part) => shade(word.node, part);
  const shadow = flow && same ? (at) => below[at] : (at) => above[at];

  // In a long text, sum the attention that each word receives.
  const sums =
    flow && same
      ? Float32Array.from(below, (_, j) => {
          let sum = 0;
          for (let i = 0; i < table.n; i++) sum += Math.abs(weight(i, j));
          return sum;
        })
      : null;
  const resting = () => {
    if (sums) below.forEach((word, j) => wash(word, sums[j] / largest(sums)));
    scale?.show(sums ? { top: largest(sums), note: "all weights that a word gets, added up" } : null);
  };
  resting();

  function light(word, force = false) {
    if (pinned && !force) return;
    if (force && word === null) pinned = false;
    if (word === active && !force) return;
    active = word;
    if (word) scale?.show(null);
    for (const each of words) {
      wash(each, 0);
      each.number.textContent = "";
      each.node.classList.remove("active", "lit", "picked");
      each.node.querySelector(".chips")?.remove();
    }
    live.replaceChildren();
    stage.classList.toggle("lighted", !!word);
    if (!word) {
      resting();
      told.say();
      return;
    }
    word.node.classList.add("active");
    const looking = word.edge === "rows" && !(flow && same && toward);
    const value = (k, which = 0) => (looking ? weight(word.at, k, which) : weight(k, word.at, which));
    const strong = (k, which = 0) => (looking ? strength(word.at, k, which) : strength(k, word.at, which));
    const count = looking ? table.m : table.n;
    let nearest = null;
    for (let k = 0; k < count; k++) {
      const most = looking ? strongest(word.at, k) : strongest(k, word.at);
      if (most < 0.01) continue;
      const other = looking ? shadow(k) : below[k];
      if (!nearest || most > nearest.most) nearest = { most, other };
      other.node.classList.add("lit");
      if (several) other.node.append(chips(tables, (which) => strong(k, which)));
      else {
        wash(other, most);
        if (other !== word) other.number.textContent = share(value(k));
      }
      if (flow) continue;
      tables.forEach((_, which) => {
        if (strong(k, which) >= (several ? 0.03 : 0.01))
          live.append(looking ? path(word.at, k, true, which) : path(k, word.at, true, which));
      });
    }
    if (looking && table.picked)
      table.picked[word.at].forEach((j) => {
        shadow(j).node.classList.add("picked");
        if (!flow) live.append(ring(word.at, j));
      });
    if (looking && table.windows?.[word.at] && !flow)
      live.append(...windowOver(table.windows[word.at], above, down, stage.getBoundingClientRect()));
    // Two long texts have a pane each: scroll the other pane to the word with the largest weight.
    if (flow && !same && nearest) {
      scrollInside(nearest.other.node);
      if (force) stage.scrollIntoView({ block: "nearest" });
    }
    const units = looking ? table.columns : table.rows;
    const best = (which, most) =>
      Array.from({ length: count }, (_, k) => k)
        .filter((k) => strong(k, which) >= 0.005)
        .sort((a, b) => strong(b, which) - strong(a, which))
        .slice(0, most);
    const names = (which, most) =>
      best(which, most).flatMap((k, index) => [
        index ? ", " : "",
        said(units[k].text, { class: "who" }),
        " ",
        el("b", {}, share(value(k, which))),
      ]);
    const verb = looking ? " looks at " : " is looked at by ";
    if (several)
      told.say(
        said(word.unit.text, { class: "who" }),
        `${verb}most: `,
        tables.flatMap(({ head, hue }, which) => [
          which ? ";  " : "",
          el("span", { class: "swatch", style: { "--hue": hue } }),
          `head ${head + 1} `,
          ...(names(which, 1).length ? names(which, 1) : ["nothing"]),
        ]),
      );
    else
      told.say(
        said(word.unit.text, { class: "who" }),
        verb,
        best(0, 4).length ? names(0, 4) : "nothing",
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
      if (word.edge === "rows") onrow(word.unit, word.at);
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
      // Move to the word of the other side with the largest weight between the two.
      const count = edge === "columns" ? table.m : table.n,
        mine = (k) => (edge === "columns" ? strongest(word.at, k) : strongest(k, word.at));
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
  return {
    words: flow && same ? below : words,
    table,
    several,
    below,
    light,
    flow,
    fits,
    same,
    at: () => (active?.edge === "rows" ? active.at : null),
    layout: flow ? "flow" : down ? "down" : "across",
  };
}

// Draw a small block for each head, with the weight to or from a word as its opacity.
function chips(tables, strong) {
  return el(
    "span",
    { class: "chips", "aria-hidden": "true" },
    tables.map(({ hue }, which) =>
      el("span", { style: { "--hue": hue, opacity: Math.min(1, strong(which)).toFixed(2) } }),
    ),
  );
}

function scrollInside(node) {
  const pane = node.parentElement,
    own = node.offsetTop - pane.offsetTop;
  if (own < pane.scrollTop || own + node.offsetHeight > pane.scrollTop + pane.clientHeight)
    pane.scrollTo({ top: own - pane.clientHeight / 2, behavior: quiet.matches ? "auto" : "smooth" });
}

// Draw a bracket over the words of a local attention's window, and a diamond at its centre.
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
