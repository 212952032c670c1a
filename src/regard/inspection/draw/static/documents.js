// Documents: the weight of each word in its sentence, and of each sentence in the document.

function documentSection(exhibit, state) {
  const view = exhibit.views.find((each) => each.role === "words");
  if (!view) return null;
  const whole = exhibit.views.find((each) => each.role === "sentences");
  const side = exhibit.sides[view.columns];
  const node = section(
    "document",
    "What counted",
    whole
      ? "The bar before a sentence is its share of the document, from 0 at the left; the colour of a word is √(sentence) × word."
      : "The darker a word, the more it counted.",
  );
  const bar = el("div", { class: "bar-row" }),
    list = el("ol", { class: `document${whole ? "" : " plain"}` });
  const axis = el("div", { class: "axis faint small", "aria-hidden": "true" }),
    spread = el("p", { class: "faint small" });
  let most_ = 0;
  const scale = scaleBar(() => ({ top: topOf(most_), note: stretchedTo(most_) }));
  painters.add(scale.paint);
  const told = readout("Point at a word or a sentence, or Tab to the first word and use the arrows.");
  let head = view.heads > 1 ? null : 0;
  if (view.heads > 1)
    bar.append(
      headChoice(view, head, (h) => {
        head = h;
        render();
      }).node,
    );
  const render = () => {
    const table = tableOf(exhibit, view, head, state.merged),
      sums = whole ? weightsOf(whole, whole.heads > 1 ? null : 0) : null;
    const of = (unit) => (side?.sentences && unit.pieces.length ? side.sentences[unit.pieces[0]] : 0);
    const groups = new Map();
    table.columns.forEach((unit, at) => {
      if (!unit.pieces.length) return;
      const number = of(unit);
      if (!groups.has(number)) groups.set(number, []);
      groups.get(number).push({ unit, at, value: table.at(0, at) });
    });
    const strong = (word, number) => (sums ? Math.sqrt(sums[number] ?? 0) * word.value : word.value);
    let strongest_ = 1e-9,
      most = 0;
    groups.forEach((words, number) => {
      words.forEach((word) => {
        strongest_ = Math.max(strongest_, strong(word, number));
      });
      most = Math.max(most, sums?.[number] ?? 0);
    });
    most_ = strongest_;
    scale.paint();
    const buttons = [],
      top = topOf(strongest_),
      end = [0.1, 0.2, 0.25, 0.5].find((each) => stretching.on && most <= each) ?? 1; // the end of the bars' scale
    axis.replaceChildren(
      ...(sums
        ? [el("span", { class: "what" }, "share of the document"), el("span", {}, "0"), el("span", {}, String(end).replace(/^0/, ""))]
        : []),
    );
    const spreads = [...groups].map(([number, words]) => entropyOf(words.map((word) => word.value)));
    spread.textContent = [
      `entropy of the words: ${decimal(mean(spreads))} nats, the mean over sentences`,
      whole?.entropy ? `of the sentences: ${decimal(whole.entropy[0][0])} of ${decimal(Math.log(whole.m))}` : null,
    ]
      .filter(Boolean)
      .join(" · ");
    list.replaceChildren(
      ...[...groups].map(([number, words], k) => {
        const line = el("p", { dir: "auto" });
        for (const word of words) {
          const button = el(
            "button",
            {
              type: "button",
              class: `word${marksOf(word.unit)}`,
            },
            said(word.unit.text, { class: "text" }),
          );
          shade(button, strong(word, number) / top);
          if (word.unit.unknown) button.title = NOT_KNOWN;
          const tell = () =>
            told.say(
              said(word.unit.text, { class: "who" }),
              " counts ",
              el("b", {}, share(word.value, 3)),
              sums
                ? [
                    " in its sentence, which counts ",
                    el("b", {}, share(sums[number], 3)),
                    " in the document: together ",
                    el("b", {}, share(sums[number] * word.value, 4)),
                  ]
                : "",
            );
          button.addEventListener("pointerenter", tell);
          button.addEventListener("focus", tell);
          buttons.push(button);
          line.append(button, " ");
        }
        return el(
          "li",
          {},
          sums
            ? el(
                "div",
                {
                  class: "weight",
                  onpointerenter: () =>
                    told.say(
                      `Sentence ${number + 1} counts `,
                      el("b", {}, share(sums[number], 3)),
                      ` in the document; entropy of its words ${decimal(spreads[k])} of ${decimal(Math.log(words.length))} nats`,
                    ),
                },
                el(
                  "span",
                  { class: "meter", "aria-hidden": "true" },
                  el("span", { style: { width: `${((100 * sums[number]) / end).toFixed(1)}%` } }),
                ),
                el("span", { class: "value" }, share(sums[number])),
              )
            : "",
          line,
        );
      }),
    );
    roving(buttons);
  };
  let merged = state.merged;
  state.on(() => {
    if (merged !== state.merged) {
      merged = state.merged;
      render();
    }
  });
  onStretch(render);
  const figure = el("div", {}, scale.node, axis, list); // the scales are part of the figure
  node.figures = [["the document", () => figure]];
  node.step = (by) => {
    const words = [...list.querySelectorAll(".word")],
      at = words.indexOf(document.activeElement);
    words[Math.min(words.length - 1, Math.max(0, at + by))]?.focus();
  };
  node.append(bar, spread, figure, told.node);
  render();
  return node;
}

// Return the entropy of shares in nats; normalise them first, as their sum may be less than one.
function entropyOf(shares) {
  const sum = shares.reduce((total, each) => total + each, 0) || 1;
  return -shares.reduce((total, each) => total + (each > 0 ? (each / sum) * Math.log(each / sum) : 0), 0);
}
