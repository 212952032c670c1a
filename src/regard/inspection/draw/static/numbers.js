// Any word of any head in numbers, computed here from q, k and v: scores, mask, weights, and the weighted sum.

// ---- half precision

function halfOf(bits) {
  const sign = bits & 0x8000 ? -1 : 1,
    power = (bits >> 10) & 0x1f,
    rest = bits & 0x3ff;
  if (power === 0) return sign * rest * 2 ** -24;
  return sign * (1024 + rest) * 2 ** (power - 25);
}

// Decode a part of a view's numbers, [heads, rows, width]: all high bytes, then all low bytes; a mask has one each.
function partOf(view, name) {
  const part = view.numbers?.parts[name];
  if (!part) return null;
  if (!part.values) {
    const [heads, rows, width] = part.shape,
      size = heads * rows * width,
      bytes = view.numbers.bytes;
    if (name === "mask") part.values = bytes.subarray(part.at, part.at + size);
    else
      part.values = Float32Array.from({ length: size }, (_, i) =>
        halfOf((bytes[part.at + i] << 8) | bytes[part.at + size + i]),
      );
  }
  return part;
}

// Return a row of a part in a head; all heads share a part that has only one.
function rowOf(part, head, row) {
  if (!part) return null;
  const [heads, rows, width] = part.shape,
    start = ((heads > 1 ? head : 0) * rows + row) * width;
  return part.values.subarray(start, start + width);
}

// ---- the attention of one row, by its definition

function computedRow(view, head, row) {
  const { score, scale, temperature, groups } = view.numbers,
    part = (name, at = row) => rowOf(partOf(view, name), head, at);
  const query = part("query"),
    vector = part("vector", 0),
    stored = part("scores"),
    bias = part("bias"),
    gate = part("gate"),
    mask = part("mask"),
    given = part("weights");
  const keys = Array.from({ length: view.m }, (_, j) => {
    const key = part("keys", j),
      each = { key, value: part("values", j), allowed: !mask || mask[j] > 0 };
    if (score === "stored") each.raw = each.score = stored[j];
    else {
      each.raw = 0;
      for (let d = 0; d < query.length; d++)
        each.raw += score === "additive" ? vector[d] * Math.tanh(query[d] + key[d]) : query[d] * key[d];
      each.score = score === "additive" ? each.raw : each.raw * scale;
    }
    each.biased = each.score + (bias ? bias[j] : 0);
    return each;
  });
  const group = (j) => groups?.[j] ?? 0,
    most = new Map(),
    sums = new Map();
  keys.forEach((each, j) => {
    if (each.allowed) most.set(group(j), Math.max(most.get(group(j)) ?? -Infinity, each.biased));
  });
  const grown = (each, j) => (each.allowed ? Math.exp((each.biased - most.get(group(j))) / temperature) : 0);
  keys.forEach((each, j) => sums.set(group(j), (sums.get(group(j)) ?? 0) + grown(each, j)));
  keys.forEach((each, j) => {
    each.share = grown(each, j) / (sums.get(group(j)) || 1);
    each.weight = given ? given[j] : each.share * (gate ? gate[j] : 1);
  });
  const contexts = new Map();
  keys.forEach((each, j) => {
    if (!each.value) return;
    if (!contexts.has(group(j))) contexts.set(group(j), new Float32Array(each.value.length));
    const context = contexts.get(group(j));
    for (let d = 0; d < context.length; d++) context[d] += each.weight * each.value[d];
  });
  return { query, keys, contexts, bias: !!bias, gate: !!gate, mask: !!mask, given: !!given };
}

// ---- drawing

const MANY_KEYS = 32, // with more keys, show only the FEW_KEYS largest weights at first
  FEW_KEYS = 12;

// Draw a vector as bars above and below a line, so that the sign does not depend on colour.
function bars(values, reach, name) {
  const step = Math.max(1.5, Math.min(9, 150 / values.length)),
    half = 13,
    wide = values.length * step;
  const path = (below) =>
    Array.from(values, (value, k) => {
      const tall = Math.min(half, (Math.abs(value) / reach) * half);
      if (value < 0 !== below || tall < 0.05) return "";
      const y = below ? half : half - tall;
      return `M${(k * step).toFixed(1)} ${y.toFixed(2)}h${(step * 0.86).toFixed(2)}v${tall.toFixed(2)}H${(k * step).toFixed(1)}z`;
    }).join("");
  const node = svg(
    "svg",
    {
      class: "bars",
      width: wide.toFixed(0),
      preserveAspectRatio: "none",
      height: 2 * half,
      viewBox: `0 0 ${wide} ${2 * half}`,
      role: "img",
      "aria-label": `${name}: ${values.length} numbers from ${share(Math.min(...values))} to ${share(Math.max(...values))}`,
    },
    svg("path", { class: "up", d: path(false) }),
    svg("path", { class: "down", d: path(true) }),
    svg("path", { class: "zero", d: `M0 ${half}H${wide}` }),
  );
  node.dataset.values = Array.from(values, (value) => share(value, 3)).join(" ");
  node.dataset.name = name;
  return node;
}

const NOTHING_STORED = {
  size: "Left out of this page, which would be larger than 4 MB: q, k and v of this attention.",
  range: "Left out of this page: q, k and v of this attention, as a number in them is too large for half precision.",
  none: "This attention is not computed from queries and keys that the page could hold.",
};

function formulaOf(numbers, view, row) {
  const width = partOf(view, "query")?.shape[2];
  const root = numbers.score === "dot" && numbers.scale !== 1;
  const scored = {
    dot: root ? `e = q·k / √${width}` : "e = q·k",
    additive: "e = w · tanh(q + k)",
    stored: "e as the model gave it",
  }[numbers.score];
  const weighed = row.given
    ? "a as the model gave it"
    : `a = softmax(${row.bias ? "e + b" : "e"}${numbers.temperature !== 1 ? ` / ${numbers.temperature}` : ""})${row.gate ? " · g" : ""}`;
  return [scored, weighed, "c = Σ a v"];
}

function numbersSection(exhibit, state) {
  const views = exhibit.views.filter((view) => view.numbers);
  if (!views.length) return null;
  const thing = views.every((view) => view.rows === "places") ? "place" : "word";
  const node = section(
    "numbers",
    "In numbers",
    (views.every((view) => view.numbers.score === "memory")
      ? "Any step of any head: how it found its places in the memory, in half precision. "
      : `Any ${thing} in any layer and head, computed here from q, k and v in half precision. `) +
      `H and L change head and layer, arrows the ${thing}.`,
  );
  const bar = el("div", { class: "bar-row" }),
    row = el("div", { class: "rows-row", role: "group", "aria-label": `the ${thing} that looks` }),
    body = el("div", { class: "in-numbers" }),
    told = readout("Point at a bar for its number.");
  node.append(bar, row, body, told.node);
  let view = null,
    head = 0,
    at = 0,
    all = false, // whether to show all keys
    buttons = [];
  const pick =
    views.length > 1 &&
    menu(
      "Attention",
      views.map((each) => [each.name, capital(each.title)]),
      null,
      (name) => state.choose({ view: name }),
    );
  const rowUnits = () => {
    const read = exhibit.offset === 1 && view.name === exhibit.aligned && view.rows === "written";
    return namedPieces((read && exhibit.sides.read) || exhibit.sides[view.rows], view.n);
  };
  const show = () => {
    const units = rowUnits(),
      columns = namedPieces(exhibit.sides[view.columns], view.m);
    at = Math.min(at, view.n - 1);
    buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(k === at)));
    const shown = view.numbers.score === "memory" ? addressingOf : numbersOf;
    body.replaceChildren(...shown(view, head, at, units[at], columns, all));
    const fold = body.querySelector("button.fold");
    if (fold)
      fold.onclick = () => {
        all = !all;
        show();
        body.querySelector("button.fold").focus();
      };
    told.say();
  };
  const draw = () => {
    const next = views.find((each) => each.name === state.view) ?? view ?? views[0],
      other = next !== view;
    view = next;
    head = view.heads === 1 ? 0 : typeof state.head === "number" ? state.head : Math.min(head, view.heads - 1);
    pick && pick.set(view.name);
    const inside = bar.contains(document.activeElement) && document.activeElement.type === "radio";
    const options = Array.from({ length: view.heads }, (_, h) => [h, String(h + 1)]);
    const choose = (h) => state.choose({ head: h });
    const heads =
      view.heads > 1 ? (view.heads > 16 ? menu : choice)("Head", options, head, choose) : null;
    bar.replaceChildren(...[pick?.node, heads?.node].filter(Boolean));
    if (inside) bar.querySelector("input:checked")?.focus();
    if (other) {
      const units = rowUnits(),
        focused = buttons.includes(document.activeElement);
      at = Math.min(state.row ?? 0, view.n - 1);
      buttons = units.map((unit, k) =>
        el(
          "button",
          {
            type: "button",
            class: `word${marksOf(unit)}`,
            ...(unit.unknown ? { title: NOT_KNOWN } : {}),
            "aria-pressed": "false",
            // Not pointerenter, which fires when new buttons appear under a pointer at rest.
            onpointermove: (event) => event.pointerType !== "touch" && go(k),
            onclick: () => go(k),
          },
          said(unit.text, { class: "text" }),
        ),
      );
      row.dir = directionOf(units.map((unit) => unit.text));
      row.replaceChildren(...(view.n > 1 ? buttons : []));
      roving(buttons, { onfocus: (k) => go(k) });
      if (focused) buttons[at]?.focus();
    }
    show();
  };
  const go = (k) => {
    if (k === at || k < 0 || k >= view.n) return;
    at = k;
    show();
    state.chooseRow(k);
  };
  state.onRow(() => {
    if (state.row === null || state.row === at || state.row >= view.n) return;
    at = state.row;
    show();
  });
  state.on(draw);
  onStretch(() => view && show());
  node.addEventListener("keydown", (event) => {
    if (event.target.matches("select") || event.altKey || event.ctrlKey || event.metaKey) return;
    const key = event.key.toLowerCase(),
      back = event.shiftKey ? -1 : 1;
    if (key === "h" && view.heads > 1) state.choose({ head: (head + back + view.heads) % view.heads });
    else if (key === "l") {
      const same = views.filter((each) => each.role === view.role);
      state.choose({ view: same[(same.indexOf(view) + back + same.length) % same.length].name });
    }
  });
  body.addEventListener("pointermove", (event) => {
    const strip = event.target.closest?.(".bars");
    if (!strip) return;
    const values = strip.dataset.values.split(" "),
      box = strip.getBoundingClientRect(),
      k = Math.min(values.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * values.length)));
    told.say(said(strip.dataset.name, { class: "who" }), `, number ${k + 1} of ${values.length}: `, el("b", {}, values[k]));
  });
  node.figures = [["numbers", () => body]];
  node.step = (by) => go(at + by);
  node.ready = draw;
  return node;
}

// Return the keys to show: all of them in their order, or the few with the largest weights, the largest first.
function keysShown(row, all) {
  const order = row.keys.map((_, j) => j);
  if (all || order.length <= MANY_KEYS) return order;
  return largestOf(
    row.keys.map((each) => each.weight),
    FEW_KEYS,
  );
}

// Return the indices of the largest values, the largest first.
function largestOf(values, count) {
  return [...values.keys()].sort((i, j) => values[j] - values[i] || i - j).slice(0, count);
}

// Say which keys are shown, with a button that shows all of them or few.
function foldLine(row, order) {
  const few = order.length < row.keys.length,
    sum = order.reduce((total, j) => total + row.keys[j].weight, 0),
    whole = row.contexts.size > 1 ? "those of a sentence sum to 1" : `they sum to ${share(sum, 3)}`;
  return el(
    "p",
    { class: "small" },
    few ? `The ${order.length} largest of ${row.keys.length} weights; ${whole}. ` : "",
    el("button", { type: "button", class: "plain fold" }, few ? `Show all ${row.keys.length}` : `Show the ${FEW_KEYS} largest`),
  );
}

function numbersOf(view, head, at, unit, columns, all) {
  const { numbers } = view;
  if (numbers.left === "size" || numbers.left === "range")
    return [el("p", { class: "note" }, NOTHING_STORED[numbers.left])];
  const row = computedRow(view, head, at),
    order = keysShown(row, all),
    [scored, weighed, summed] = formulaOf(numbers, view, row);
  const reach = (list) => largest(list.flatMap((each) => (each ? [...each] : [])).map(Math.abs));
  const keys = row.keys[0]?.key ? reach([row.query, ...row.keys.map((each) => each.key)]) : 1,
    values = reach(row.keys.map((each) => each.value)),
    top = largest(row.keys.map((each) => Math.abs(each.weight)));
  const bilinear = numbers.score === "dot" && numbers.scale !== 1;
  const name = (unit) => said(unit.text, unit.unknown ? { class: "name unknown", title: NOT_KNOWN } : { class: "name" });
  const heads = [
    ["", "looked at"],
    row.keys[0]?.key && ["", "k"],
    bilinear && ["number", "q·k"],
    ["number", "e"],
    row.bias && ["number", "e + b"],
    row.gate && ["number", "softmax"],
    ["number", "a"],
    ["", unseen("a as a bar")],
    row.keys[0]?.value && ["", "v"],
  ].filter(Boolean);
  const number = (value, allowed = true) => el("td", { class: "number" }, allowed ? share(value, 3) : "−∞");
  const table = el(
    "table",
    { class: "each-key" },
    el("thead", {}, el("tr", {}, heads.map(([kind, text]) => el("th", { scope: "col", class: kind }, text)))),
    el(
      "tbody",
      {},
      order.map((j) => [row.keys[j], j]).map(([each, j]) =>
        el(
          "tr",
          { class: each.allowed ? "" : "shut" },
          el("th", { scope: "row" }, name(columns[j])),
          each.key ? el("td", {}, bars(each.key, keys, `k of ${columns[j].text}`)) : null,
          bilinear ? number(each.raw) : null,
          number(each.score, each.allowed || row.bias),
          row.bias ? number(each.biased, each.allowed) : null,
          row.gate ? number(each.share) : null,
          el("td", { class: `number${each.weight === top ? " most" : ""}` }, share(each.weight, 3)),
          el("td", {}, barOf(each.weight, topOf(top), false)),
          each.value ? el("td", {}, bars(each.value, values, `v of ${columns[j].text}`)) : null,
        ),
      ),
    ),
  );
  const shut = row.keys.filter((each) => !each.allowed).length;
  const paper = [numbers.formulas.q, numbers.formulas.e, numbers.formulas.a, numbers.formulas["Σ a v"]].filter(Boolean);
  const line = (symbol, values_, reach_, words) =>
    el(
      "div",
      { class: "vector" },
      el("span", { class: "symbol" }, symbol),
      bars(values_, reach_, words),
      el("span", { class: "faint small" }, words),
    );
  return [
    el("p", { class: "formulas symbol" }, [scored, weighed, summed].map((text) => el("span", {}, ...scripted(text)))),
    paper.length
      ? el("p", { class: "faint small" }, "In the model’s paper: ", paper.flatMap((text, k) => [k ? ",  " : "", ...scripted(text)]))
      : "",
    row.query ? line("q", row.query, keys, view.n > 1 ? `the query of ${unit.text}` : "the query") : "",
    el("div", { class: "scroll" }, table),
    row.keys.length > MANY_KEYS ? foldLine(row, order) : "",
    shut ? el("p", { class: "faint small" }, `${shut} of ${view.m} may not be looked at: −∞, and weight 0.`) : "",
    ...[...row.contexts].map(([k, context]) =>
      line("c", context, largest([...context].map(Math.abs)), row.contexts.size > 1 ? `the sum of sentence ${k + 1}` : "the sum of a v"),
    ),
    numbers.left === "values"
      ? el("p", { class: "faint small" }, "v was left out of this page, which would be larger than 4 MB.")
      : "",
  ].filter(Boolean);
}
