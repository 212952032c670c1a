// Head ablation: the change in the output's log-probability without each head.

function ablationSection(exhibit, state) {
  const { ablation } = exhibit;
  if (!ablation) return null;
  const entries = Object.entries(ablation.changes).map(([name, changes]) => ({
    view: exhibit.views.find((view) => view.name === name) ?? {
      name,
      title: name,
      role: "",
      layer: 0,
      heads: changes.length,
    },
    changes,
  }));
  const all = entries
    .flatMap(({ view, changes }) => changes.map((change, head) => ({ view, head, change })))
    .filter((each) => each.change !== null);
  const most = Math.max(1e-9, ...all.map(({ change }) => Math.abs(change)));
  const heads = Math.max(1, ...entries.map(({ changes }) => changes.length));
  const node = section(
    "ablation",
    "Without a head",
    `How the output's log-probability, ${decimal(ablation.logProb)} with every head, changes when one head gives ` +
      "nothing. The darker, the more it was needed; ▲ marks those, at most five, that the output is better off without.",
  );
  const useless = new Set(
    all
      .filter(({ change }) => change > Math.max(0.005, 0.01 * most))
      .sort((a, b) => b.change - a.change)
      .slice(0, 5)
      .map(({ view, head }) => `${view.name} ${head}`),
  );
  const table = el(
    "table",
    { class: "ablation" },
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("td"),
        Array.from({ length: heads }, (_, h) => el("th", { scope: "col", class: "number" }, String(h + 1))),
      ),
    ),
  );
  const body = el("tbody", {});
  for (const { view, changes } of entries) {
    body.append(
      el(
        "tr",
        {},
        el("th", { scope: "row" }, capital(view.title)),
        changes.map((change, head) => {
          const cell = el(
            "td",
            { class: "number", title: `${view.title}, head ${head + 1}` },
            (useless.has(`${view.name} ${head}`) ? "▲ " : "") + plus(change),
          );
          painted(() => {
            const level = Math.min(1, Math.abs(change ?? 0) / most),
              ramp = change < 0 ? palette().up : palette().down;
            const colour = mixed(ramp, level);
            cell.style.backgroundColor = `rgb(${colour.join(" ")})`;
            cell.style.color = inkOn(colour);
          });
          return cell;
        }),
      ),
    );
  }
  table.append(body);
  const bar = scaleBar(() => ({ top: most, signed: true, colours: "change" }));
  painters.add(bar.paint);
  const figure = el("div", { class: "scaled" }, table, bar.node);
  node.figures = [["the table", () => figure]];
  all.sort((a, b) => a.change - b.change);
  const needed = all.filter(({ change }) => change < -0.005).slice(0, 5);
  node.append(
    el("div", { class: "scroll" }, figure),
    needed.length
      ? el(
          "p",
          { class: "readout" },
          "Needed most: ",
          needed.flatMap(({ view, head, change }, index) => [
            index ? ", " : "",
            el(
              "button",
              {
                type: "button",
                class: "link",
                onclick: () => {
                  state.choose({ view: view.name, head: view.heads > 1 ? head : state.head });
                  document.querySelector("[data-section=heads]")?.scrollIntoView();
                },
              },
              `${view.title}, head ${head + 1}`,
            ),
            " ",
            el("b", {}, plus(change)),
          ]),
        )
      : "",
  );
  return node;
}
