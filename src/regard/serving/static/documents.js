// Documents: their labels as the user types, and their words coloured by weight.

class DocumentMode {
  constructor(card) {
    this.card = card;
    this.control = null;
    this.field = new Field({
      label: "Document, to label",
      hint: "Type or paste a document",
      onedit: () => this.edit(),
    });
    this.size = el("p", { class: "state" });
    this.problem = el("div", { class: "notice", role: "alert", hidden: true });
    this.labels = el("div", { class: "labels", role: "status" });
    this.notes = new WordNotes("words");
    this.field.area.setAttribute("aria-describedby", "words");
    this.shareButton = button("Share", () => shareLink(card.name, this.text, this.shareButton));
    this.node = el(
      "div",
      { class: "panes" },
      el(
        "section",
        { class: "pane source", "aria-label": "Document" },
        el("h2", { class: "pane-title" }, "Document"),
        this.field.node,
        el(
          "div",
          { class: "foot" },
          this.size,
          el(
            "div",
            { class: "tools" },
            button("Clear", () => emptyField(this.field)),
            this.shareButton,
            insideButton(() => this.look()),
          ),
        ),
      ),
      el(
        "section",
        { class: "pane", "aria-label": "Label" },
        el("h2", { class: "pane-title" }, "Label"),
        this.labels,
        this.notes.node,
        this.problem,
      ),
      countScale(() => this.paint()),
      el("p", { class: "hint" }, "A dotted line is below words that the model never saw in training."),
    );
    this.colour = settled(150, () => this.paint());
    this.follow = settled(350, () => this.look());
  }

  get text() {
    return this.field.text;
  }

  open(text) {
    this.field.write(text);
    this.edit();
    this.field.area.focus();
  }

  async edit() {
    this.control?.abort();
    const control = (this.control = new AbortController()),
      text = this.text;
    saveDraft(this.card.name, text);
    unmark(this.field);
    this.size.textContent = text.length > 200 ? count([...text].length, "character") : "";
    if (!text.trim()) {
      this.labels.replaceChildren();
      this.notes.show({});
      showProblem(this.problem, null);
      return;
    }
    try {
      const { results } = await ask("classify", { model: this.card.name, texts: [text] }, control.signal);
      showProblem(this.problem, null);
      this.labels.replaceChildren(labelBars(results[0]));
      mark(this.field, "unknown", unknownParts(text, results[0].unknown));
      this.notes.show({ unknown: results[0].unknown });
      if (results[0].label !== null) remember(this.card.name, text, results[0].label);
      this.colour();
      this.follow();
    } catch (error) {
      if (control.signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      retryLater(this.problem, error, () => this.edit(), control);
    }
  }

  get question() {
    return { model: this.card.name, text: this.text };
  }

  // Colour the words of a document by weight, in twelve shades of a scale from 0 to 1.
  async paint() {
    const text = this.text,
      control = this.control;
    if (!text.trim() || text.split(/\s+/).length > LIMITS.look_words) return;
    try {
      const { page } = await ask("look", this.question, control.signal);
      const { shades, most } = await countedWords(page, text);
      if (text !== this.text) return;
      shades.forEach((parts, k) => mark(this.field, `count-${k + 1}`, parts));
      showScale(this.node, most);
    } catch (error) {
      if (!(error instanceof Problem) && !control.signal.aborted) throw error; // the label is useful without colours
    }
  }

  look() {
    if (!inside.open || !this.text.trim()) return;
    if (this.text.split(/\s+/).length > LIMITS.look_words) {
      byId("inside-state").textContent = `A document of more than ${LIMITS.look_words} words is too long to look into.`;
      return;
    }
    const question = this.question;
    lookInside(JSON.stringify(question), "", (signal) => ask("look", question, signal));
  }

  close() {
    this.control?.abort();
    unmark(this.field);
  }
}

const SHADES = 12;

// Return the colour scale: a bar from 0 to 1, and the switch that colours relative to the largest weight. The frame has
// the same switch, which starts in the same position.
function countScale(repaint) {
  const input = el("input", {
    type: "checkbox",
    onchange: () => {
      stretching.on = input.checked;
      writeStore(passing, STRETCH, stretching.on);
      repaint();
    },
  });
  input.checked = stretching.on = readStore(passing, STRETCH) === true;
  return el(
    "p",
    { class: "hint count-scale" },
    "The darker a word, the more it counted: ",
    el("span", {}, "0"),
    el("span", { class: "count-bar", role: "img", "aria-label": "from faint to dark" }),
    el("span", { class: "count-end" }, "1"),
    el("span", { class: "count-note" }),
    el("label", {}, input, " Stretch colours"),
  );
}

const STRETCH = "regard.stretch";

function showScale(node, most) {
  const end = most >= 0.1 ? share(most) : share(most, 3);
  node.querySelector(".count-end").textContent = stretching.on ? end : "1";
  node.querySelector(".count-note").textContent = stretching.on ? `stretched: the largest is ${end}` : "";
}

// Return the words of each shade, from faint to dark, as parts of the text; and the largest weight.
async function countedWords(page, text) {
  const exhibit = page.exhibits[0],
    view = exhibit.views.find((each) => each.role === "words"),
    whole = exhibit.views.find((each) => each.role === "sentences"),
    shades = Array.from({ length: SHADES }, () => []);
  if (!view) return { shades, most: 1 };
  const bytes = await unpacked(page.bytes);
  for (const each of [view, whole].filter(Boolean))
    each.levels = bytes.subarray(each.at, each.at + each.heads * each.n * each.m);
  const table = tableOf(exhibit, view, view.heads > 1 ? null : 0, true),
    sums = whole ? weightsOf(whole, whole.heads > 1 ? null : 0) : null,
    side = exhibit.sides[view.columns];
  const strengths = table.columns.map((unit, at) => {
    const sentence = side?.sentences && unit.pieces.length ? side.sentences[unit.pieces[0]] : 0;
    return unit.pieces.length ? table.at(0, at) * (sums ? Math.sqrt(sums[sentence] ?? 0) : 1) : 0;
  });
  const most = largest(strengths),
    top = stretching.on ? most : 1,
    lower = text.toLowerCase();
  let at = 0;
  table.columns.forEach((unit, k) => {
    const start = lower.indexOf(unit.text.toLowerCase(), at);
    if (!unit.text || start < 0 || start > at + 80) return; // the text does not have the word in this form
    at = start + unit.text.length;
    const shade = Math.min(SHADES, Math.round((SHADES * strengths[k]) / top));
    if (shade) shades[shade - 1].push([start, at]);
  });
  return { shades, most };
}

// Draw labels with their probabilities, the likeliest first.
function labelBars(result) {
  if (result.label === null) return el("p", { class: "about" }, "There is no word here that the model could read.");
  const sorted = Object.entries(result.probabilities).sort((a, b) => b[1] - a[1]);
  return el(
    "dl",
    { class: "bars" },
    sorted
      .slice(0, 12)
      .flatMap(([label, share]) => [
        el("dt", { dir: "auto", class: label === result.label ? "named" : "" }, label),
        el(
          "dd",
          {},
          el(
            "span",
            { class: "meter", "aria-hidden": "true" },
            el("span", { style: { width: `${(100 * share).toFixed(1)}%` } }),
          ),
          el("span", { class: "value" }, percent(share)),
        ),
      ]),
    sorted.length > 12
      ? [el("dt", {}, "and"), el("dd", { class: "about" }, count(sorted.length - 12, "other label"))]
      : "",
  );
}

// Show a problem, and retry after its waiting time unless a newer request has cancelled this one.
function retryLater(place, problem, retry, control) {
  const again = () => {
    clearTimeout(timer);
    if (!control.signal.aborted) retry();
  };
  let timer = null;
  if (problem.wait) {
    problem.until = Date.now() + 1000 * problem.wait;
    timer = setTimeout(again, 1000 * problem.wait);
  }
  showProblem(place, problem, again);
}
