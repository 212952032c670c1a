// The dependency tree of a text above its words, and below them the largest weight of each word in a head.

const LEVEL = 19; // pixels between the levels of arcs

function dependenciesSection(exhibit) {
  const tree = exhibit.dependencies;
  if (!tree) return null;
  const side = exhibit.sides[tree.side],
    words = side.texts.map((text, i) => ({
      text,
      head: tree.heads[i],
      relation: tree.relations[i],
      unknown: side.unknown.includes(i),
    }));
  const follows = tree.follows.map(([view, head, hits, back]) => ({
    view: exhibit.views.find((each) => each.name === view),
    head,
    hits,
    back,
  }));
  const node = section(
    "dependencies",
    "Heads and dependencies",
    follows.length
      ? "Above the words their dependency tree, from each word to its head. Below, where a head of attention looks " +
          "most: a full line where one of the two is the other’s head in the tree."
      : "The dependency tree, from each word to its head.",
  );
  const figure = el("div", { class: "scroll" });
  node.figures = [["arcs", () => figure.querySelector("svg")]];
  if (!follows.length) {
    node.append(figure);
    figure.append(arcs(words, null));
    return node;
  }
  let chosen = follows.reduce((best, each) => (each.hits[""] > best.hits[""] ? each : best));
  const views = [...new Set(follows.map((each) => each.view))];
  const title = el("p", { class: "readout", "aria-live": "polite" });
  const pick = (view, head) => {
    chosen = follows.find((each) => each.view === view && each.head === head) ?? chosen;
    draw();
  };
  const bar = el("div", { class: "bar-row" });
  const rows = relationRows(tree, follows, (each) => {
    chosen = each;
    draw();
  });
  const draw = () => {
    const layer = menu(
      "Layer",
      views.map((view) => [view, view.title]),
      chosen.view,
      (view) => pick(view, Math.min(chosen.head, view.heads - 1)),
    );
    const options = Array.from({ length: chosen.view.heads }, (_, h) => [h, String(h + 1)]);
    const heads = (options.length > 16 ? menu : choice)("Head", options, chosen.head, (h) => pick(chosen.view, h));
    bar.replaceChildren(layer.node, options.length > 1 ? heads.node : "");
    figure.replaceChildren(arcs(words, strongest(exhibit, chosen)));
    const total = tree.words[""];
    title.replaceChildren(
      el("b", {}, `${chosen.hits[""]} of ${total}`),
      ` words look most at their head${tree.side === "read" ? ", of those whose head was read before them" : ""}; `,
      el("b", {}, `${chosen.back[""]} of ${tree.back[""]}`),
      " are what their head looks at most.",
    );
  };
  draw();
  node.append(bar, figure, title, rows);
  return node;
}

// For each word, return the word with its largest weight in a head, and that weight.
function strongest(exhibit, { view, head }) {
  const words = withoutParts(exhibit.sides[view.rows]),
    table = tableOf({ ...exhibit, offset: 0, sides: { [view.rows]: words } }, view, head, true),
    own = [...table.rows.keys()].filter((i) => !table.rows[i].special); // without START, END and the like
  return own.map((i) => {
    let best = -1;
    own.forEach((j, at) => {
      if (table.at(i, j) > (best < 0 ? 0 : table.at(i, own[best]))) best = at;
    });
    return { at: best, weight: best < 0 ? 0 : table.at(i, own[best]) };
  });
}

function arcs(words, looks) {
  const measure = document.createElement("canvas").getContext("2d");
  measure.font = "15px system-ui, sans-serif";
  const places = [];
  let x = 10;
  for (const word of words) {
    const label = 6.2 * word.relation.length + 6,
      width = Math.max(measure.measureText(shown(word.text)).width + 16, Math.min(label, 64));
    places.push(x + width / 2);
    x += width + 6;
  }
  const above = words.map((word, i) => [i, word.head]).filter(([, head]) => head >= 0),
    below = looks ? looks.map((look, i) => [i, look.at]).filter(([i, at]) => at >= 0 && at !== i) : [];
  const levels = [levelsOf(above), levelsOf(below)],
    deep = levels.map((each) => largest(each, 0));
  const top = 26 + LEVEL * deep[0] + 8,
    bottom = top + 30,
    high = bottom + (looks ? LEVEL * deep[1] + 26 : 8);
  const arc = (from, to, base, level, sign) => {
    const a = places[from],
      b = places[to] + (from < to ? -5 : 5),
      y = base - sign * (10 + LEVEL * level);
    const bend = Math.min(14, Math.abs(b - a) / 2) * (a < b ? 1 : -1);
    return `M${a} ${base} C${a} ${(base + y) / 2} ${a} ${y} ${a + bend} ${y} L${b - bend} ${y} C${b} ${y} ${b} ${(base + y) / 2} ${b} ${base}`;
  };
  const picture = svg("svg", {
    class: "arcs",
    width: x,
    height: high,
    viewBox: `0 0 ${x} ${high}`,
    role: "img",
    "aria-label": `dependency tree of ${words.map((word) => word.text).join(" ")}`,
  });
  above.forEach(([i, head], k) => {
    const follows = looks && (looks[i].at === head || looks[head].at === i);
    const y = top - 10 - LEVEL * levels[0][k];
    picture.append(
      svg("path", { class: follows ? "gold met" : "gold", d: arc(i, head, top, levels[0][k], 1) }),
      svg("circle", { class: follows ? "tip met" : "tip", cx: places[head] + (i < head ? -5 : 5), cy: top, r: 2.4 }),
    );
    if (words[i].relation)
      picture.append(
        svg("text", { class: "relation", x: (places[i] + places[head]) / 2, y: y - 3 }, words[i].relation),
      );
  });
  words.forEach((word, i) => {
    if (word.head < 0)
      picture.append(
        svg("path", { class: "gold root", d: `M${places[i]} 4 L${places[i]} ${top - 3}` }),
        svg("text", { class: "relation", x: places[i], y: 12, dx: 5, "text-anchor": "start" }, "root"),
      );
    picture.append(svg("text", { class: `text${marksOf(word)}`, x: places[i], y: top + 20 }, shown(word.text)));
  });
  below.forEach(([i, at], k) => {
    const met = words[i].head === at || words[at].head === i,
      path = svg("path", {
        class: met ? "look met" : "look",
        d: arc(i, at, bottom, levels[1][k], -1),
        "stroke-width": (1 + 2.2 * looks[i].weight).toFixed(2),
      });
    path.append(svg("title", {}, `${words[i].text} looks at ${words[at].text}: ${share(looks[i].weight)}`));
    picture.append(
      path,
      svg("circle", { class: met ? "point met" : "point", cx: places[at] + (i < at ? -5 : 5), cy: bottom, r: 2.4 }),
    );
  });
  if (looks)
    looks.forEach((look, i) => {
      if (look.at === i) picture.append(svg("circle", { class: "itself", cx: places[i], cy: bottom + 6, r: 4 }));
    });
  return picture;
}

// Return the level of each arc: an arc is above the shorter arcs that it overlaps.
function levelsOf(pairs) {
  const ends = pairs.map(([a, b]) => [Math.min(a, b), Math.max(a, b)]),
    order = ends.map((_, k) => k).sort((p, q) => ends[p][1] - ends[p][0] - (ends[q][1] - ends[q][0]));
  const levels = Array(pairs.length).fill(0);
  order.forEach((k, n) => {
    const taken = order
      .slice(0, n)
      .filter((other) => ends[other][0] < ends[k][1] && ends[k][0] < ends[other][1])
      .map((other) => levels[other]);
    while (taken.includes(levels[k])) levels[k] += 1;
  });
  return levels;
}

// Tabulate the head that follows each relation best, beside the best fixed distance; a click draws the head above.
function relationRows(tree, follows, onpick) {
  const names = Object.keys(tree.words).filter((name) => tree.words[name] > 0);
  names.sort((p, q) => (p === "" ? -1 : q === "" ? 1 : tree.words[q] - tree.words[p]));
  const cell = (value) => [
    el(
      "span",
      { class: "meter", "aria-hidden": "true" },
      el("span", { style: { width: `${(100 * value).toFixed(1)}%` } }),
    ),
    el("span", { class: "value" }, share(value)),
  ];
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      { class: "relations" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ["relation", "words", "head that follows it most", "share", "best fixed distance", "share"].map((text) =>
            el("th", { scope: "col" }, text),
          ),
        ),
      ),
      el(
        "tbody",
        {},
        names.map((name) => {
          // Score each attention head from dependent to head and in reverse; the first of equal scores wins.
          const best = follows
              .flatMap((each) => [
                { each, back: false, value: each.hits[name] / tree.words[name] },
                { each, back: true, value: tree.back[name] ? each.back[name] / tree.back[name] : 0 },
              ])
              .sort((p, q) => q.value - p.value || p.back - q.back)[0],
            total = tree.words[name];
          const [distance, count] = Object.entries(tree.distances[name])
            .map(([by, times]) => [Number(by), times])
            .reduce((top, each) =>
              each[1] > top[1] || (each[1] === top[1] && Math.abs(each[0]) < Math.abs(top[0])) ? each : top,
            );
          const { view, head } = best.each,
            label = `${view.title}${view.heads > 1 ? `, head ${head + 1}` : ""}${best.back ? ", from the head" : ""}`;
          return el(
            "tr",
            {},
            el("th", { scope: "row" }, name || "all"),
            el("td", { class: "number" }, String(total)),
            el(
              "td",
              {},
              best.value
                ? el("button", { type: "button", class: "link", onclick: () => onpick(best.each) }, label)
                : el("span", { class: "faint" }, "none"),
            ),
            el("td", { class: "measure" }, cell(best.value)),
            el("td", {}, distanceText(distance)),
            el("td", { class: "measure" }, cell(count / total)),
          );
        }),
      ),
    ),
  );
}

function distanceText(by) {
  const far = Math.abs(by);
  return far === 1
    ? `the word ${by < 0 ? "before" : "after"}`
    : `${far} words ${by < 0 ? "before" : "after"}`;
}
