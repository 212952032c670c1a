// Attention between the places of a picture, inside a ConvNet.

function placesSection(exhibit, state, image) {
  const views = exhibit.views.filter((view) => exhibit.sides[view.columns]?.grid && exhibit.sides[view.rows]?.grid);
  if (!views.length) return null;
  const node = section(
    "places",
    "Where a place looks",
    "Choose a place of the picture, framed in white: what it looks at stays bright.",
  );
  let view = views.at(-1),
    head = view.heads > 1 ? null : 0,
    at = 0;
  const grid = () => exhibit.sides[view.rows].grid;
  const canvas = el("canvas", { class: "picture", tabindex: "0", role: "img" }),
    told = readout("Point at the picture, or focus it and use the arrows.");
  const bar_ = veilScale(() => mapOf(view, head, [at])),
    framed = el("div", { class: "framed" }, canvas, bar_.node);
  const maps = headMaps(
    views,
    (small, each, h) => spotlight(small, image, mapOf(each, h, [at]), exhibit.sides[each.columns].grid, { size: 72 }),
    (each, h) => {
      view = each;
      head = view.heads > 1 ? h : 0;
      controls();
      show(at);
    },
  );
  const show = (place) => {
    const [height, width] = grid(),
      map = mapOf(view, head, [place]);
    at = place;
    spotlight(canvas, image, map, grid(), { size: 560, place });
    let best = 0;
    map.forEach((value, k) => {
      if (value > map[best]) best = k;
    });
    const name = (k) => `row ${Math.floor(k / width) + 1}, column ${(k % width) + 1}`,
      entropy = besideRows(view.entropy, head)?.[place];
    canvas.setAttribute(
      "aria-label",
      `where ${name(place)} of ${height} by ${width} looks; arrows choose another place`,
    );
    told.say(
      el("span", { class: "who" }, capital(name(place))),
      ` looks most at ${name(best)}: `,
      el("b", {}, share(map[best], 3)),
      ` (${share(1 / view.m, 3)} if it looked everywhere alike)`,
      entropy !== undefined && entropy !== null
        ? `; entropy ${decimal(entropy)} of ${decimal(Math.log(view.m))} nats`
        : "",
    );
    maps?.draw(view, head);
    bar_.paint();
    shown_.forEach(({ small, place: own }) => small.parentElement.classList.toggle("active", own === place));
  };
  const place = (event) => {
    const box = canvas.getBoundingClientRect(),
      [height, width] = grid();
    return (
      Math.min(height - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * height))) * width +
      Math.min(width - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * width)))
    );
  };
  canvas.addEventListener("pointermove", (event) => show(place(event)));
  canvas.addEventListener("pointerdown", (event) => show(place(event)));
  canvas.addEventListener("keydown", (event) => {
    const [height, width] = grid(),
      by = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!by) return;
    event.preventDefault();
    const y = Math.min(height - 1, Math.max(0, Math.floor(at / width) + by[0])),
      x = Math.min(width - 1, Math.max(0, (at % width) + by[1]));
    show(y * width + x);
  });
  const film = el("div", { class: "film" }),
    shown_ = [];
  const spread = () => {
    const [height, width] = grid();
    return [
      [0.25, 0.25],
      [0.25, 0.75],
      [0.5, 0.5],
      [0.75, 0.25],
      [0.75, 0.75],
    ].map(([y, x]) => Math.floor(y * height) * width + Math.floor(x * width));
  };
  const strip = () => {
    shown_.length = 0;
    film.replaceChildren(
      ...[...new Set(spread())].map((own) => {
        const small = el("canvas", { "aria-hidden": "true" }),
          [, width] = grid();
        const map = mapOf(view, head, [own]);
        spotlight(small, image, map, grid(), { size: 150, place: own });
        const frame = el(
          "figure",
          { class: "frame", onclick: () => show(own) },
          small,
          el("figcaption", {}, `${Math.floor(own / width) + 1}, ${(own % width) + 1}`, largestNamed(map)),
        );
        shown_.push({ small, place: own });
        return frame;
      }),
    );
  };
  const bar = el("div", { class: "bar-row" });
  const controls = () => {
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
                strip();
                show(at);
              },
            ).node
          : null,
        view.heads > 1
          ? headChoice(view, head, (h) => {
              head = h;
              strip();
              show(at);
            }).node
          : null,
      ].filter(Boolean),
    );
  };
  controls();
  node.append(
    bar,
    el(
      "div",
      { class: "seen" },
      framed,
      el("div", { class: "beside" }, told.node, el("p", { class: "faint small" }, view.how), maps?.node, film),
    ),
  );
  node.figures = [
    ["the picture", () => framed],
    ["five places", () => film],
  ];
  onStretch(() => {
    strip();
    show(at);
  });
  node.step = (by) => show(Math.min(view.n - 1, Math.max(0, at + by)));
  node.ready = () => {
    strip();
    show(spread()[0]);
  };
  return node;
}
