// Two models on one input: what they said, and where they looked, with the differences marked.

// Pairs of words that both wrote, in order: the longest such.
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

// What an exhibit says first of all: its alignment, between words, or between words and places.
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

function compareSection(exhibits) {
  const [a, b] = exhibits,
    names = ["A", "B"],
    node = section("compare", "Differences");
  const said_ = exhibits.map((each) => each.output.split(/\s+/u).filter(Boolean)),
    pairs = common(...said_);
  const kept = [0, 1].map((k) => new Set(pairs.map((pair) => pair[k])));
  node.append(
    el(
      "dl",
      { class: "outputs" },
      exhibits.flatMap((each, k) => [
        el(
          "dt",
          {},
          el("b", {}, names[k]),
          ` ${[each.kind, each.run].filter(Boolean).join(" · ")}`,
          each.logProb !== null ? el("span", { class: "faint" }, ` · log-probability ${decimal(each.logProb)}`) : "",
        ),
        el(
          "dd",
          { dir: "auto" },
          said_[k].flatMap((word, at) => [kept[k].has(at) ? word : el("mark", {}, word), " "]),
        ),
      ]),
    ),
  );
  const first = exhibits.map(firstTable);
  if (!first[0] || !first[1]) return node;
  const [x, y] = first.map((each) => each.table),
    texts = (units) => units.map((unit) => unit.text);
  if (texts(x.columns).join("\u0000") !== texts(y.columns).join("\u0000")) return node;
  const rows = common(texts(x.rows), texts(y.rows)),
    apart = [];
  exhibits.forEach((each) => {
    each.marked = new Set();
  });
  for (const [i, j] of rows) {
    let distance = 0;
    for (let k = 0; k < x.m; k++) distance += Math.abs(x.at(i, k) - y.at(j, k)) / 2;
    const [p, q] = [mostOf(x, i), mostOf(y, j)];
    if (p === q) continue;
    apart.push({ i, j, p, q, distance });
    a.marked.add(x.rows[i].text + "\u0000" + i);
    b.marked.add(y.rows[j].text + "\u0000" + j);
  }
  const unit = (table, k) => said(table.columns[k].text, { class: "who" });
  node.append(
    apart.length
      ? el(
          "div",
          { class: "scroll" },
          el(
            "table",
            {},
            el("caption", {}, `${apart.length} of ${rows.length} words that both wrote look elsewhere`),
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
      : el("p", { class: "readout" }, `All ${rows.length} words that both wrote look most at the same.`),
  );
  if (rows.length > 1 && !a.sides[first[0].view.columns]?.grid) {
    const values = new Float32Array(rows.length * x.m);
    rows.forEach(([i, j], r) => {
      for (let k = 0; k < x.m; k++) values[r * x.m + k] = x.at(i, k) - y.at(j, k);
    });
    const table = finished({ rows: rows.map(([i]) => x.rows[i]), columns: x.columns, n: rows.length, m: x.m, values });
    table.signed = true;
    const told = readout("Point at a cell, or focus the map and use the arrows.");
    const drawn = heat(table, {
      label: "A less B",
      oncell: (i, j) => told.say(cellSaid(table, i, j)),
      width: Math.min(760, innerWidth - 60),
    });
    painters.add(drawn.paint);
    node.append(
      el("h3", {}, "A less B"),
      el(
        "p",
        { class: "faint small" },
        `blue: A looks there more; orange with a dash: B does; darkest ${share(table.top)}`,
      ),
      el("div", { class: "scroll" }, drawn.node),
      told.node,
    );
  }
  return node;
}
