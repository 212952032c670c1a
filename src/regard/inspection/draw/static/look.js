// The page: reads the exhibits, and adds a section for each kind of data in them.

// Return the selection that the sections share, and its listeners.
function stateOf(exhibit) {
  const listeners = [],
    rowListeners = [];
  const first =
    exhibit.first?.view ??
    exhibit.aligned ??
    matrixViews(exhibit).find((view) => view.role === "cross")?.name ??
    matrixViews(exhibit)[0]?.name ??
    null;
  const state = {
    view: first,
    head: exhibit.first ? exhibit.first.head : exhibit.head,
    merged: true,
    row: null, // the piece of the selected row, or null
    onRow: (listener) => rowListeners.push(listener),
    chooseRow: (row) => {
      state.row = row;
      rowListeners.forEach((listener) => listener());
    },
    on: (listener) => listeners.push(listener),
    choose: (changes) => {
      Object.assign(state, changes);
      const view = exhibit.views.find((each) => each.name === state.view);
      if (view && view.heads > 1 && state.head !== null && state.head >= view.heads) state.head = null;
      listeners.forEach((listener) => listener());
    },
  };
  return state;
}

// Show the first lines of a long text, with a button that shows all of it.
function folded(text, long, content = null) {
  const node = content ?? said(text);
  if (!long) return node;
  node.classList.add("long");
  const button = el(
    "button",
    {
      type: "button",
      class: "link small",
      "aria-expanded": "false",
      onclick: () => {
        const open = !node.classList.toggle("long");
        button.textContent = open ? "Show less" : "Show all of it";
        button.setAttribute("aria-expanded", String(open));
      },
    },
    "Show all of it",
  );
  // Hide the button if the whole text fits.
  new ResizeObserver(() => {
    if (node.classList.contains("long")) button.hidden = node.scrollHeight <= node.clientHeight + 1;
  }).observe(node);
  return el("div", {}, node, button);
}

function headerOf(exhibit, letter) {
  const lines = [];
  const long = exhibit.title.length > 420 || (exhibit.labels.length > 0 && exhibit.title.length > 160);
  if (exhibit.picture && exhibit.title && !letter) lines.push(["picture", said(exhibit.title)]);
  else if (exhibit.title && !letter) lines.push(["in", folded(exhibit.title, long)]);
  if (exhibit.output && exhibit.output !== exhibit.title)
    lines.push([exhibit.labels.length ? "label" : "out", said(exhibit.output, { class: "output" })]);
  const pieces = exhibit.sides.written?.pieces.length;
  const facts = [
    exhibit.logProb !== null && ["log-probability", decimal(exhibit.logProb)],
    exhibit.logProb !== null && pieces && ["probability per piece", chance(exhibit.logProb / pieces)],
    exhibit.views.length > 0 && ["attentions", String(exhibit.views.length)],
    exhibit.views.length > 0 && ["heads in all", String(exhibit.views.reduce((sum, view) => sum + view.heads, 0))],
  ].filter(Boolean);
  const quietly = facts.length > 2 ? facts : facts.filter(([name]) => name === "log-probability");
  const top = Math.max(1e-9, ...exhibit.labels.map(([, value]) => value ?? 0));
  const sorted = [...exhibit.labels].sort((p, q) => (q[1] ?? 0) - (p[1] ?? 0)),
    labels = sorted.slice(0, 12);
  const heading = `What was looked at${exhibit.title ? `: ${exhibit.title.slice(0, 80)}` : ""}`;
  return el(
    "header",
    {},
    letter ? "" : unseen(heading, "h1"),
    el(
      "p",
      { class: "eyebrow" },
      letter ? el("b", { class: "letter" }, letter) : "",
      [exhibit.kind, exhibit.task, exhibit.run].filter(Boolean).join("  ·  ") || "a look",
    ),
    lines.length
      ? el(
          "dl",
          { class: "said" },
          lines.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
        )
      : "",
    labels.length
      ? el(
          "dl",
          { class: "labels" },
          labels.flatMap(([label, value]) => [
            said(label, { class: label === exhibit.output ? "named" : "" }, "dt"),
            el(
              "dd",
              {},
              el(
                "span",
                { class: "meter", "aria-hidden": "true" },
                el("span", { style: { width: `${((100 * (value ?? 0)) / Math.max(top, 1)).toFixed(1)}%` } }),
              ),
              el("span", { class: "value" }, share(value, 3)),
            ),
          ]),
        )
      : "",
    sorted.length > 12
      ? el(
          "details",
          {},
          el("summary", {}, `${sorted.length - 12} labels more`),
          el("p", { class: "small" }, sorted.slice(12).map(([label, value]) => `${label} ${share(value, 3)}`).join(", ")),
        )
      : "",
    el(
      "dl",
      { class: "facts" },
      quietly.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
    ),
  );
}

function unitsChoice(exhibit, state) {
  if (!hasPieces(exhibit) || !exhibit.views.length) return null;
  return choice(
    "Show",
    [
      [true, "words"],
      [false, "pieces"],
    ],
    state.merged,
    (merged) => state.choose({ merged }),
  ).node;
}

async function shownIn(column, exhibit, letter, both) {
  const state = stateOf(exhibit),
    image = await loaded(exhibit.picture),
    header = headerOf(exhibit, letter);
  const sections = [
    captionSection(exhibit, state, image),
    placesSection(exhibit, state, image),
    documentSection(exhibit, state),
  ].filter(Boolean);
  column.append(header);
  const bar = el("nav", { class: "contents", "aria-label": "sections" });
  column.append(bar);
  if (image && !sections.length)
    column.append(el("section", {}, el("canvas", { class: "picture", role: "img", "aria-label": exhibit.title })));
  for (const each of sections) {
    column.append(each);
    each.ready?.();
  }
  const first = [pairSection, headsSection, dependenciesSection, searchSection];
  const further = [numbersSection, walkSection, gatesSection, statesSection, ablationSection, graphSection];
  for (const make of [...first, ...further]) {
    const each = make(exhibit, state, both);
    if (!each) continue;
    sections.push(each);
    column.append(each);
    each.ready?.();
  }
  if (letter)
    for (const each of [bar, ...sections]) each.setAttribute("aria-label", `${letter}: ${each.getAttribute("aria-label")}`);
  for (const each of sections)
    if (each.figures) addTools(each, exhibit.title);
  openLink(exhibit, state, sections);
  addEventListener("hashchange", () => openLink(exhibit, state, sections));
  const link = () => writeLink(exhibit, state);
  state.on(link);
  state.on(() => lecturing?.node.fit()); // enlarge the new drawing in lecture mode
  state.onRow(link);
  onStretch(link);
  if (image && !exhibit.views.length)
    spotlight(column.querySelector("canvas.picture"), image, null, [1, 1], { size: 420 });
  if (!exhibit.views.length)
    header.after(el("p", { class: "note" }, "This model has no attention: it looked at nothing in particular."));
  const links = sections.map((each) => el("a", { href: `#${each.id}` }, each.title_));
  bar.append(
    el("div", { class: "links" }, sections.length > 1 ? links : []),
    el("div", { class: "switches" }, ...[unitsChoice(exhibit, state), !letter && exhibit.views.length ? stretchSwitch() : null].filter(Boolean)),
  );
  if (!bar.textContent) bar.remove();
}

// Make scrolling boxes focusable if nothing inside them is, so that keys can scroll them.
function reachScrolls() {
  for (const each of document.querySelectorAll(".scroll:not(.beam)")) {
    const needed =
      each.scrollWidth > each.clientWidth + 1 && !each.querySelector("a, button, input, select, summary, [tabindex]");
    if (!needed && each.getAttribute("role") !== "group") continue;
    if (needed) {
      each.tabIndex = 0;
      each.setAttribute("role", "group");
      each.setAttribute("aria-label", each.closest("section")?.title_ ?? "more to the side");
    } else for (const name of ["tabindex", "role", "aria-label"]) each.removeAttribute(name);
  }
}

async function begin(data, alone) {
  const bytes = await unpacked(data.bytes),
    main = document.getElementById("look");
  for (const exhibit of data.exhibits) {
    for (const view of exhibit.views) {
      view.levels = bytes.subarray(view.at, view.at + view.heads * view.n * view.m);
      if (view.numbers) view.numbers.bytes = bytes;
    }
    for (const gates of exhibit.walk?.gates ?? [])
      for (const part of gates.parts)
        part.levels = bytes.subarray(part.at, part.at + gates.pieces.length * part.width);
  }
  stretching.on = stretching.first = data.stretch === true;
  main.replaceChildren();
  if (data.exhibits.length === 1) await shownIn(main, data.exhibits[0], "");
  else {
    main.classList.add("two");
    const [a, b] = data.exhibits,
      twoInputs = a.title !== b.title,
      models = twoInputs && a.run && a.run === b.run ? "one model" : "two models";
    main.append(
      el(
        "header",
        { class: "both" },
        el("p", { class: "eyebrow" }, `${models} on ${twoInputs ? "two inputs" : "one input"}`),
        twoInputs
          ? markedWords([a.title, b.title]).map((words, k) =>
              el(
                "h1",
                { class: "input" },
                el("b", { class: "letter" }, "AB"[k]),
                folded("", [a, b][k].title.length > 420, el("span", { dir: "auto" }, words)),
              ),
            )
          : a.title
            ? el("h1", {}, folded(a.title, a.title.length > 420))
            : "",
        [a, b].some((each) => each.views.length) ? stretchSwitch() : "",
      ),
    );
    const compare = compareSection(data.exhibits);
    main.append(compare);
    if (compare.querySelector(".heat")) addTools(compare, a.title);
    const columns = el("div", { class: "columns" }),
      both = sharedDrawing(data.exhibits);
    main.append(columns);
    const each = data.exhibits.map((_, k) =>
      columns.appendChild(el("div", { class: "column", "aria-label": "AB"[k] })),
    );
    for (let k = 0; k < 2; k++) await shownIn(each[k], data.exhibits[k], "AB"[k], both);
  }
  const rounding = "Weights are rounded to 256 steps per head, and q, k and v to half precision";
  main.append(
    el("footer", {}, alone ? `Made by Regard. ${rounding}; everything on this page is in this file.` : `${rounding}.`),
  );
  reachScrolls();
  addEventListener("resize", reachScrolls);
  addEventListener("toggle", reachScrolls, true);
  document.documentElement.dataset.ready = "true";
}

// A page contains its data; a frame in the page of `regard serve` receives them as a message from that page.
const carried = document.getElementById("data");
if (carried) begin(JSON.parse(carried.textContent), true);
else
  addEventListener("message", (event) => {
    if (event.source === parent && event.origin === location.origin && event.data?.exhibits) begin(event.data, false);
  });
