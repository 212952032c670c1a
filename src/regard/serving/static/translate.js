// Translation as the user types: the source, one model's translation or two, and the links between words.

class TranslateMode {
  constructor(card, against) {
    this.card = card;
    this.sentences = [];
    this.here = null; // the sentence under the caret, and the word of its translation
    const reverse = reverseOf(card),
      language = card.languages ? languageName(card.languages.source) : "Text";
    this.field = new Field({
      label: `${language}, to translate`,
      hint: "Type or paste a text",
      language: card.languages?.source,
      onedit: () => this.edit(),
    });
    this.size = el("p", { class: "state" });
    this.readout = el("p", { class: "readout", role: "status" });
    this.shareButton = button("Share", () => shareLink(card.name, this.text, this.shareButton), {
      title: "Copy a link that holds this text behind its #, which is never sent to a server",
    });
    this.lookButton = insideButton(() => this.look());
    this.panes = [card, against].filter(Boolean).map(
      (each, k) =>
        new TargetPane(each, {
          letter: against ? "AB"[k] : "",
          onchange: (pane) => this.changed(pane),
          onpoint: (pane, span, word, how) => this.pointTarget(pane, span, word, how),
          onalter: openAlternatives,
        }),
    );
    this.field.area.setAttribute("aria-describedby", this.panes.map((pane) => pane.notes.node.id).join(" "));
    this.node = el(
      "div",
      { class: `panes ${against ? "three" : ""}` },
      el(
        "section",
        { class: "pane source", "aria-label": "Source" },
        el("h2", { class: "pane-title" }, language),
        this.field.node,
        el(
          "div",
          { class: "foot" },
          this.size,
          el(
            "div",
            { class: "tools" },
            reverse &&
              button("Swap", () => use(reverse, this.panes[0].field.text), {
                title: `Translate back, with ${reverse.name}`,
              }),
            button("Clear", () => this.clear()),
            this.shareButton,
            this.lookButton,
          ),
        ),
      ),
      this.panes.map((pane) => pane.node),
      this.readout,
      el(
        "p",
        { class: "hint", id: "how-to-alter" },
        "Point at a word to see what it was made from. Edit the translation, and the rest follows; click a word, or ",
        "press Alt and the down arrow, for other words. Shaded words are those that the model is less sure of. ",
        "A wavy line is below words of the source that were perhaps not translated, a dotted one below words that the ",
        "model never saw in training.",
        against ? " Words that only one of the two translations has are green." : "",
      ),
    );
    watchPointer(this.field, (place, how) => this.pointSource(place, how));
    this.follow = settled(350, () => this.look());
    this.readOut = settled(1200, () => {
      const [pane] = this.panes;
      if (this.field.focused && !pane.translator.left && pane.field.text)
        announce([pane.field.text.slice(0, 400), pane.notes.text].filter(Boolean).join(" "));
    });
  }

  get text() {
    return this.field.text;
  }

  open(text) {
    this.field.write(text);
    this.edit();
    this.field.area.focus();
    this.field.area.setSelectionRange(text.length, text.length);
  }

  clear() {
    emptyField(this.field);
  }

  edit() {
    const text = this.text,
      before = new Set(this.sentences.map((each) => each.name));
    this.sentences = nameSentences(cutText(text, this.card.split), this.sentences, this.field.caret);
    // Translate a typed sentence first, and pasted ones in their order.
    const typed = this.field.focused && this.sentences.filter((each) => !before.has(each.name)).length <= FIRST,
      urgent = typed ? this.sentences.findIndex((each) => this.field.caret <= each.end + 1) : -1;
    this.light(null);
    for (const pane of this.panes) pane.follow(this.sentences, text.split("\n").length, urgent < 0 ? null : urgent);
    this.size.textContent = text.length > 200 ? count([...text].length, "character") : "";
    saveDraft(this.card.name, text);
    if (location.hash) history.replaceState(null, "", location.pathname);
  }

  // Update the page after a translation has changed.
  changed(pane) {
    if (!this.panes) return;
    if (this.panes.length === 2) this.compare();
    for (const kind of Object.keys(KINDS))
      mark(
        this.field,
        kind,
        this.panes.flatMap((each) => each.sourceParts(kind)),
      );
    if (pane === this.panes[0] && !pane.translator.left) remember(this.card.name, this.text, pane.field.text);
    if (this.field.focused) this.pointSource(this.field.caret, "caret"); // its word may have another translation now
    this.follow();
    this.readOut();
  }

  // Mark the words that only one of the two translations has.
  compare() {
    const parts = [[], []],
      [a, b] = this.panes;
    a.spans.forEach((span, k) => {
      const other = b.spans[k];
      if (!span.fresh || !other?.fresh) return;
      differing(span.output.words, other.output.words).forEach((words, side) => {
        const own = [span, other][side];
        for (const word of words)
          parts[side].push([own.start + own.output.words[word].start, own.start + own.output.words[word].end]);
      });
    });
    this.panes.forEach((pane, side) => mark(pane.field, "differs", parts[side]));
  }

  sentenceAt(place) {
    return this.sentences.findIndex((each) => each.start <= place && place <= each.end);
  }

  pointSource(place, how) {
    const number = place === null ? -1 : this.sentenceAt(place);
    if (number < 0) {
      this.light(null);
      return;
    }
    const sentence = this.sentences[number],
      words = wordsOf(sentence.text),
      word = wordAt(words, place - sentence.start);
    const over =
      word >= 0 &&
      (how === "caret" ||
        this.field.covers(sentence.start + words[word].start, sentence.start + words[word].end, how.x, how.y));
    this.light(number, over ? [word] : [], null, how);
  }

  pointTarget(pane, span, word, how) {
    if (!span) {
      this.light(null);
      return;
    }
    const number = pane.spans.indexOf(span),
      box = word >= 0 ? span.output.words[word] : null,
      over = box && (how === "caret" || pane.field.covers(span.start + box.start, span.start + box.end, how.x, how.y)),
      linked = over ? span.output.links.filter(([, target]) => target === word).map(([source]) => source) : [];
    this.light(number, linked, over ? { pane, word } : { pane, word: null }, how);
  }

  // Highlight a sentence on both sides, and in it the given source words with their linked target words.
  light(number, sources = [], from = null, how = null) {
    const sentence = this.sentences[number];
    if (!sentence) {
      for (const { field } of [this, ...this.panes]) for (const name of ["lit", "sentence"]) mark(field, name, []);
      this.readout.replaceChildren();
      return;
    }
    const words = wordsOf(sentence.text),
      place = (word) => [sentence.start + word.start, sentence.start + word.end];
    mark(this.field, "sentence", this.sentences.length > 1 ? [[sentence.start, sentence.end]] : []);
    mark(
      this.field,
      "lit",
      sources.filter((each) => words[each]).map((each) => place(words[each])),
    );
    const targets = this.panes.map((pane) => {
      const span = pane.spans[number],
        output = span?.fresh ? span.output : null; // an old output translates another text
      if (!output) {
        mark(pane.field, "lit", []);
        return [];
      }
      const own =
        from?.pane === pane && from.word !== null
          ? [from.word]
          : [...new Set(output.links.filter(([source]) => sources.includes(source)).map(([, target]) => target))];
      mark(pane.field, "sentence", this.sentences.length > 1 ? [[span.start, span.end]] : []);
      mark(
        pane.field,
        "lit",
        own
          .filter((each) => output.words[each])
          .map((each) => [span.start + output.words[each].start, span.start + output.words[each].end]),
      );
      return own.sort((a, b) => a - b);
    });
    const pane = from?.pane ?? this.panes[0],
      side = this.panes.indexOf(pane);
    this.say(words, sources, pane.spans[number]?.fresh ? pane.spans[number].output : null, targets[side], from);
    if (how === "caret") {
      this.here = { number, pane, word: targets[side][0] ?? null };
      this.follow();
    }
  }

  say(words, sources, output, targets, from) {
    if (!output || (!sources.length && !targets.length)) {
      this.readout.replaceChildren();
      return;
    }
    const named = (all, list) =>
        list
          .map((each) => all[each]?.text)
          .filter(Boolean)
          .join(" "),
      source = named(words, sources),
      target = named(output.words, targets),
      chance = targets.length === 1 ? probabilityOf(output, targets[0]) : null,
      [first, second] = from?.word != null ? [target, source] : [source, target];
    this.readout.replaceChildren(
      el("b", { dir: "auto" }, first),
      ...(second ? [" ↔ ", el("b", { dir: "auto" }, second)] : [" is linked to no word"]),
      ...(chance === null ? [] : [el("span", { class: "chance" }, ` probability ${percent(chance)}`)]),
    );
  }

  // Show the inside of the model for the sentence under the caret.
  look() {
    if (!inside.open) return;
    const { number, pane, word } = this.here ?? { number: 0, pane: this.panes[0], word: null },
      sentence = this.sentences[number];
    if (!sentence) {
      byId("inside-state").textContent = "Type a text, and look into what the model does with it.";
      return;
    }
    const span = pane.spans[number];
    if (!span?.fresh) return; // still in translation
    const target = span.output.text,
      model = pane.card.name;
    if (sentence.text.split(/\s+/).length + target.split(/\s+/).length > LIMITS.look_words) {
      byId("inside-state").textContent =
        `This sentence is too long to look into: ${LIMITS.look_words} words on both sides are the most.`;
      return;
    }
    const name = `${model}\n${sentence.text}\n${target}`,
      title = this.panes.length > 1 ? `${model}: ${sentence.text}` : sentence.text;
    lookInside(
      name,
      title,
      (signal) => ask("look", { model, text: sentence.text, target: target || null }, signal),
      word,
    );
  }

  close() {
    for (const pane of this.panes) pane.close();
    unmark(this.field);
  }
}

// Return the probability of a word: the product over its tokens.
function probabilityOf(output, word) {
  const { start, end } = output.words[word] ?? {},
    own = (output.places ?? []).flatMap((place, k) =>
      place && place[0] >= start && place[1] <= end ? [output.probabilities[k]] : [],
    );
  return own.length ? own.reduce((product, each) => product * each, 1) : null;
}
