// Captions: the places of the picture that each word attends to, word by word.

// Return the attentions from words to places of a picture.
function placedViews(exhibit) {
  return exhibit.views.filter((view) => exhibit.sides[view.columns]?.grid && !exhibit.sides[view.rows]?.grid);
}

function captionSection(exhibit, state, image) {
  const views = placedViews(exhibit);
  if (!views.length) return null;
  const node = section("caption", "Where each word looked", "What a word looked at stays bright; the rest is dimmed.");
  let view = views.find((each) => each.name === exhibit.aligned) ?? views.at(-1),
    head = view.heads > 1 ? exhibit.head : 0,
    at = null,
    words = [],
    frames = [];
  const grid = () => exhibit.sides[view.columns].grid;
  const canvas = el("canvas", { class: "picture", role: "img" });
  const bar_ = veilScale(() => (at === null ? null : mapOf(view, head, words[at].pieces))),
    framed = el("div", { class: "framed" }, canvas, bar_.node);
  const list = el("div", { class: "caption", role: "group", "aria-label": "the caption" }),
    film = el("div", { class: "film" });
  const told = readout("Point at a word, or Tab to one and use the arrows.");
  const bar = el("div", { class: "bar-row" });
  const maps = headMaps(
    views,
    (small, each, h) =>
      spotlight(small, image, at === null ? null : mapOf(each, h, words[at].pieces), exhibit.sides[each.columns].grid, {
        size: 72,
      }),
    (each, h) => {
      view = each;
      head = view.heads > 1 ? h : 0;
      controls();
      all();
    },
  );
  const draw = () => {
    const unit = at === null ? null : words[at],
      map = unit && mapOf(view, head, unit.pieces);
    const picked = unit && view.picked ? view.picked[head ?? 0][unit.pieces[0]] : null;
    spotlight(canvas, image, map, grid(), { size: 560, picked });
    canvas.setAttribute("aria-label", unit ? `the picture as ${unit.text} looked at it` : "the picture");
    list.querySelectorAll(".word").forEach((each, k) => {
      each.classList.toggle("active", k === at);
    });
    film.querySelectorAll(".frame").forEach((each, k) => each.classList.toggle("active", k === at));
    maps?.draw(view, head);
    bar_.paint();
    if (!unit) {
      told.say();
      return;
    }
    let best = 0;
    map.forEach((value, k) => {
      if (value > map[best]) best = k;
    });
    const [, width] = grid(),
      entropy = view.entropy && mean(unit.pieces.map((piece) => besideRows(view.entropy, head)[piece]));
    told.say(
      said(unit.text, { class: "who" }),
      ` looked most at row ${Math.floor(best / width) + 1}, column ${(best % width) + 1}: `,
      el("b", {}, share(map[best])),
      entropy !== null ? `; entropy ${decimal(entropy)} of ${decimal(Math.log(view.m))} nats` : "",
      picked !== null ? "; ringed is the place that was taken" : "",
    );
  };
  const show = (k) => {
    at = k;
    draw();
  };
  const all = () => {
    words = unitsOf(exhibit.sides[view.rows], view.n, state.merged);
    if (at !== null && at >= words.length) at = null;
    const buttons = words.map((unit, k) =>
      el(
        "button",
        {
          type: "button",
          class: `word${unit.special ? " special" : ""}`,
          onpointerenter: (event) => event.pointerType !== "touch" && show(k),
          onclick: () => {
            play.stop();
            show(k);
          },
        },
        said(unit.text, { class: "text" }),
      ),
    );
    list.dir = directionOf(words.map((unit) => unit.text));
    list.replaceChildren(...buttons);
    roving(buttons, { onfocus: (k) => show(k) });
    frames = words.map((unit, k) => {
      const small = el("canvas", { "aria-hidden": "true" });
      const map = mapOf(view, head, unit.pieces);
      spotlight(small, image, map, grid(), {
        size: 150,
        picked: view.picked ? view.picked[head ?? 0][unit.pieces[0]] : null,
      });
      return el("figure", { class: "frame", onclick: () => show(k) }, small, el("figcaption", {}, said(unit.text), largestNamed(map)));
    });
    film.dir = list.dir;
    film.replaceChildren(...frames);
    draw();
  };
  const controls = () =>
    bar.replaceChildren(
      ...[
        views.length > 1
          ? menu(
              "Attention",
              views.map((each) => [each, capital(each.title)]),
              view,
              (each) => {
                view = each;
                head = view.heads > 1 ? head : 0;
                controls();
                all();
              },
            ).node
          : null,
        view.heads > 1
          ? headChoice(view, head, (h) => {
              head = h;
              all();
            }).node
          : null,
        play.node,
      ].filter(Boolean),
    );
  const play = player((begun) => {
    show(at === null || (begun && at === words.length - 1) ? 0 : at + 1);
    return at < words.length - 1;
  }, "Play the words");
  controls();
  node.append(
    bar,
    el("div", { class: "seen" }, framed, el("div", { class: "beside" }, list, told.node, maps?.node)),
    film,
  );
  let merged = state.merged;
  state.on(() => {
    if (merged !== state.merged) {
      merged = state.merged;
      all();
    }
  });
  node.figures = [
    ["the picture", () => framed],
    ["every word", () => film],
  ];
  onStretch(all);
  node.step = (by) => show(Math.min(words.length - 1, Math.max(0, (at ?? -by) + by)));
  node.showRow = (piece) => {
    const word = words.findIndex((unit) => unit.pieces.includes(piece));
    if (word >= 0) show(word);
  };
  node.ready = () => {
    all();
    // Show first the word with the lowest entropy; skip special pieces and words of one or two characters.
    const entropy = besideRows(view.entropy, head);
    const unsure = (unit) =>
      unit.special || [...unit.text].length < 3 ? Infinity : mean(unit.pieces.map((piece) => entropy?.[piece] ?? 0));
    show(words.reduce((best, unit, k) => (unsure(unit) < unsure(words[best]) ? k : best), 0));
  };
  return node;
}
