// Two models on one input, or one model on two inputs: their outputs and attentions, with the differences marked.

// Return the longest common subsequence of two lists of words, as pairs of indices.
function common(a, b) {
  const best = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  const pairs = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) {
      pairs.push([i, j]);
      i += 1;
      j += 1;
    } else if (best[i + 1][j] >= best[i][j + 1]) i += 1;
    else j += 1;
  }
  return pairs;
}

// Return the table to compare: the exhibit's alignment, between words, or between words and places.
function firstTable(exhibit) {
  const text = textViews(exhibit),
    views = text.length ? text : placedViews(exhibit);
  const view =
    views.find((each) => each.name === exhibit.aligned) ?? views.find((each) => each.role === "cross") ?? views[0];
  if (!view) return null;
  const head = view.heads === 1 ? 0 : view.name === exhibit.aligned ? exhibit.head : null;
  return { view, table: tableOf(exhibit, view, head, true) };
}

function mostOf(table, row) {
  let best = 0;
  for (let j = 1; j < table.m; j++) if (table.at(row, j) > table.at(row, best)) best = j;
  return best;
}

// Merge two lists of words into one order; give the index of each word in A and in B, -1 if it is missing there.
function mergedPlaces(a, b) {
  const merged = [];
  let i = 0,
    j = 0;
  for (const [p, q] of [...common(a, b), [a.length, b.length]]) {
    for (; i < p; i++) merged.push([i, -1]);
    for (; j < q; j++) merged.push([-1, j]);
    if (p < a.length) merged.push([i++, j++]);
  }
  return merged;
}

const textsOf = (units) => units.map((unit) => unit.text);

// Compare two tables: the rows are the words of both, the columns the words of either.
function comparison(x, y) {
  const rows = common(textsOf(x.rows), textsOf(y.rows)),
    columns = mergedPlaces(textsOf(x.columns), textsOf(y.columns));
  const at = (r, k) => [
    columns[k][0] < 0 ? 0 : x.at(rows[r][0], columns[k][0]),
    columns[k][1] < 0 ? 0 : y.at(rows[r][1], columns[k][1]),
  ];
  const unit = (k) => (columns[k][0] < 0 ? y.columns[columns[k][1]] : x.columns[columns[k][0]]);
  return { x, y, rows, columns, at, unit, alone: (k) => columns[k][0] < 0 || columns[k][1] < 0 };
}

// For two inputs, return the attention and the head with the largest weight from a shared word to an unshared one.
function tellingHead(a, b) {
  let best = null;
  for (const view of textViews(a)) {
    const other = b.views.find((each) => each.name === view.name);
    for (let head = 0; other && head < Math.min(view.heads, other.heads); head++) {
      const both = comparison(tableOf(a, view, head, true), tableOf(b, other, head, true));
      both.rows.forEach((_, r) =>
        both.columns.forEach((_, k) => {
          const most = both.alone(k) ? Math.max(...both.at(r, k)) : 0;
          if (most > (best?.most ?? 0)) best = { most, view: view.name, head };
        }),
      );
    }
  }
  return best;
}

// Split two texts into words, and mark the words that the other text lacks.
function markedWords(texts) {
  const lists = texts.map((text) => text.split(/\s+/u).filter(Boolean)),
    pairs = common(...lists);
  return lists.map((words, k) => {
    const both = new Set(pairs.map((pair) => pair[k]));
    return words.flatMap((word, at) => [both.has(at) ? word : el("mark", {}, word), " "]);
  });
}

function outputsOf(exhibits) {
  const outputs = markedWords(exhibits.map((each) => each.output));
  return el(
    "dl",
    { class: "outputs" },
    exhibits.flatMap((each, k) => [
      el(
        "dt",
        {},
        el("b", {}, "AB"[k]),
        ` ${[each.kind, each.run].filter(Boolean).join(" · ")}`,
        each.logProb !== null ? el("span", { class: "faint" }, ` · log-probability ${decimal(each.logProb)}`) : "",
      ),
      el("dd", { dir: "auto" }, outputs[k]),
    ]),
  );
}

// Return what two drawings side by side share: their orientation, and one line for each word that both have.
function sharedDrawing(exhibits) {
  const sections = new Map(); // section → whether it fits horizontally
  let standing = false,
    redrawing = false;
  return {
    isDown: () => standing,
    resized: () => {
      standing = false;
      sections.clear();
    },
    fitted: (node, fits) => {
      sections.set(node, fits);
      const stand = [...sections.values()].some((each) => !each);
      if (stand === standing || redrawing) return;
      standing = stand;
      redrawing = true;
      for (const each of sections.keys()) each.draw();
      redrawing = false;
    },
    slotsOf: (exhibit, table, view) => {
      const other = exhibits[1 - exhibits.indexOf(exhibit)],
        beside = other.views.find((each) => each.role === view.role);
      if (!beside) return null;
      const same = view.rows === view.columns,
        merged = table.n === unitsOf(exhibit.sides[view.rows], view.n, true, same).length;
      const lineOf = (units, name, whole) => {
        const others = unitsOf(other.sides[name], 0, merged, whole),
          first = exhibit === exhibits[0],
          places = mergedPlaces(...(first ? [textsOf(units), textsOf(others)] : [textsOf(others), textsOf(units)]));
        const line = Array(units.length).fill(null);
        places.forEach((place, k) => {
          const own = place[first ? 0 : 1];
          if (own >= 0) line[own] = k;
        });
        return line;
      };
      return { rows: lineOf(table.rows, view.rows, same), columns: lineOf(table.columns, view.columns, true) };
    },
  };
}

function compareSection(exhibits) {
  const [a, b] = exhibits,
    twoInputs = a.title !== b.title,
    node = section("compare", "Differences");
  node.append(outputsOf(exhibits));
  const telling = twoInputs && a.run === b.run ? tellingHead(a, b) : null;
  if (telling) for (const each of exhibits) each.first = telling;
  const counted = countedWords(a, b);
  if (counted) node.append(counted);
  const bar = el("div", { class: "bar-row" }),
    body = el("div");
  const choose = (name, head) => {
    const views = exhibits.map((each) => each.views.find((view) => view.name === name));
    bar.replaceChildren(
      menu(
        "Attention",
        textViews(a).map((view) => [view.name, capital(view.title)]),
        name,
        (other) => choose(other, head),
      ).node,
      views[0].heads > 1 ? headChoice(views[0], head, (other) => choose(name, other)).node : "",
    );
    const [x, y] = views.map((view, k) => tableOf(exhibits[k], view, view.heads > 1 ? head : 0, true));
    body.replaceChildren(...compared(exhibits, x, y, views[0]));
  };
  node.figures = [["A less B", () => node.querySelector(".heat")]];
  if (telling) {
    node.append(bar, body);
    choose(telling.view, telling.head);
    return node;
  }
  const first = exhibits.map(firstTable);
  if (!first[0] || !first[1]) return node;
  const [x, y] = first.map((each) => each.table);
  if (!twoInputs && textsOf(x.columns).join("\u0000") !== textsOf(y.columns).join("\u0000")) return node;
  node.append(...compared(exhibits, x, y, first[0].view));
  return node;
}

// Tabulate the weight of each word in two documents.
function countedWords(a, b) {
  const views = [a, b].map((each) => each.views.find((view) => view.role === "words"));
  if (!views[0] || !views[1]) return null;
  const [x, y] = views.map((view, k) => tableOf([a, b][k], view, view.heads > 1 ? null : 0, true));
  const columns = mergedPlaces(textsOf(x.columns), textsOf(y.columns)),
    top = 40;
  const weight = (table, at) => (at < 0 ? null : table.at(0, at));
  const rows = columns
    .map(([i, j]) => ({ unit: i < 0 ? y.columns[j] : x.columns[i], a: weight(x, i), b: weight(y, j) }))
    .filter(({ unit }) => !unit.special);
  const most = rows.length > top ? "; those that count most" : "",
    large = ({ a, b }) => Math.max(a ?? 0, b ?? 0),
    least = rows.map(large).sort((p, q) => q - p)[top] ?? -1;
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      {},
      el("caption", {}, `How much a word counts in its sentence${most}`),
      el("thead", {}, el("tr", {}, ["word", "in A", "in B"].map((name, k) => el("th", { scope: "col", class: k ? "number" : "" }, name)))),
      el(
        "tbody",
        {},
        rows
          .filter((row) => rows.length <= top || large(row) > least)
          .map(({ unit, a, b }) =>
            el("tr", {}, el("th", { scope: "row" }, said(unit.text)), [a, b].map((value) => el("td", { class: "number" }, share(value)))),
          ),
      ),
    ),
  );
}

// Return the sentence for two tables in which every word has its largest weight at the same place.
function agreement(count, who) {
  if (count === 0) return `There are no ${who}.`;
  return count === 1
    ? `The only one of the ${who} looks most at the same place in A and B.`
    : `Each of the ${count} ${who} looks most at the same place in A and B.`;
}

// List the shared words whose largest weights are at different places, and map the difference of the two tables.
function compared([a, b], x, y, view) {
  const both = comparison(x, y),
    { rows, columns, at } = both,
    apart = [],
    nodes = [];
  a.marked = new Set();
  b.marked = new Set();
  rows.forEach(([i, j], r) => {
    let distance = 0;
    columns.forEach((_, k) => {
      const [p, q] = at(r, k);
      distance += Math.abs(p - q) / 2;
    });
    const [p, q] = [mostOf(x, i), mostOf(y, j)];
    if (columns.some(([m, n]) => m === p && n === q)) return;
    apart.push({ i, j, p, q, distance });
    a.marked.add(x.rows[i].text + "\u0000" + i);
    b.marked.add(y.rows[j].text + "\u0000" + j);
  });
  const who = view.role === "cross" ? "words that both wrote" : "words of both",
    unit = (table, k) => said(table.columns[k].text, { class: "who" });
  nodes.push(
    apart.length
      ? el(
          "div",
          { class: "scroll" },
          el(
            "table",
            {},
            el("caption", {}, `${apart.length} of ${rows.length} ${who} look elsewhere`),
            el(
              "thead",
              {},
              el(
                "tr",
                {},
                ["word", "A looks most at", "B looks most at", "how far apart"].map((name, k) =>
                  el("th", { scope: "col", class: k === 3 ? "number" : "" }, name),
                ),
              ),
            ),
            el(
              "tbody",
              {},
              apart.map(({ i, p, j, q, distance }) =>
                el(
                  "tr",
                  {},
                  el("th", { scope: "row" }, said(x.rows[i].text)),
                  el("td", {}, unit(x, p), ` ${share(x.at(i, p))}`),
                  el("td", {}, unit(y, q), ` ${share(y.at(j, q))}`),
                  el("td", { class: "number" }, share(distance)),
                ),
              ),
            ),
          ),
        )
      : el("p", { class: "readout" }, agreement(rows.length, who)),
  );
  if (rows.length > 1 && !a.sides[view.columns]?.grid) {
    const m = columns.length,
      values = new Float32Array(rows.length * m);
    rows.forEach((_, r) =>
      columns.forEach((_, k) => {
        const [p, q] = at(r, k);
        values[r * m + k] = p - q;
      }),
    );
    const table = finished({
      rows: rows.map(([i]) => x.rows[i]),
      columns: columns.map((_, k) => both.unit(k)),
      n: rows.length,
      m,
      values,
    });
    table.signed = true;
    table.shares = false;
    table.note = `the largest difference here is ${share(table.largest)}`;
    // Weights have one scale on every page, so that a small difference is always faint.
    Object.defineProperty(table, "top", { get: () => topOf(table.largest) });
    const told = readout("Point at a cell, or focus the map and use the arrows.");
    const drawn = heat(table, {
      label: "A less B",
      oncell: (i, j) => told.say(cellSaid(table, i, j)),
      width: Math.min(760, innerWidth - 60),
    });
    painters.add(drawn.paint);
    const alone = columns.some((_, k) => both.alone(k)) ? "; a word that one of them lacks counts as 0 there" : "";
    nodes.push(
      el("h3", {}, "A less B"),
      el(
        "p",
        { class: "faint small" },
        `blue: A looks there more; orange with a dash: B does${alone}`,
      ),
      el("div", { class: "scroll" }, drawn.node),
      told.node,
    );
  }
  return nodes;
}
