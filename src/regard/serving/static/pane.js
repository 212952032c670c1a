// The translation by one model: its field, its fixed prefixes, and the notes below it.

class TargetPane {
  constructor(card, { letter = "", onchange, onpoint, onalter }) {
    Object.assign(this, {
      card,
      letter,
      onchange,
      onpoint,
      sentences: [],
      lineCount: 1,
      spans: [],
      editing: null,
      written: "",
    });
    this.fixed = new Map(); // the name of a sentence → the prefix of its translation
    this.translator = new Translator(card, () => this.render());
    const code = card.languages?.targets.length === 1 ? card.languages.targets[0] : null,
      language = code ? languageName(code) : "Translation";
    this.field = new Field({
      label: letter ? `${language}, by ${card.name}` : language,
      language: code,
      onedit: () => this.edit(),
    });
    this.field.area.setAttribute("aria-describedby", "how-to-alter");
    this.problem = el("div", { class: "notice", role: "alert", hidden: true });
    this.notes = new WordNotes(`words${letter && `-${letter}`}`);
    this.state = el("p", { class: "state" });
    this.forget = button("Undo my changes", () => this.undo(), { hidden: true });
    this.copyButton = button("Copy", () => copyText(this.field.text, this.copyButton));
    this.saveButton = button("Download", () => download(this.field.text, `${card.name}.txt`));
    this.node = el(
      "section",
      { class: "pane target", "aria-label": letter ? `Translation by ${card.name}` : "Translation" },
      el("h2", { class: "pane-title" }, language, letter ? el("span", { class: "by", dir: "auto" }, card.name) : ""),
      this.field.node,
      this.problem,
      this.notes.node,
      el(
        "div",
        { class: "foot" },
        this.state,
        el("div", { class: "tools" }, this.forget, this.copyButton, this.saveButton),
      ),
    );
    watchPointer(this.field, (place, how) => this.point(place, how));
    this.field.area.addEventListener("click", (event) => onalter(this, event));
    this.field.area.addEventListener("keydown", (event) => {
      if (event.altKey && event.key === "ArrowDown") {
        event.preventDefault();
        onalter(this, event);
      }
    });
  }

  // Take the new sentences of the source; `urgent` is the index of the sentence being typed, or null.
  follow(sentences, lineCount, urgent) {
    Object.assign(this, { sentences, lineCount, editing: null });
    this.ask(urgent);
    this.render();
  }

  ask(urgent = null) {
    const given = this.sentences.map((each) => ({ ...each, prefix: this.fixed.get(each.name) ?? "" }));
    this.translator.want(given, urgent === null ? null : given[urgent]);
  }

  outputOf(sentence) {
    const prefix = this.fixed.get(sentence.name) ?? "",
      output = this.translator.result({ text: sentence.text, prefix });
    return output && prefix ? beginWith(prefix, output) : output;
  }

  // Write the known translations; a sentence that awaits a new translation shows its old one.
  render() {
    const { problem } = this.translator;
    showProblem(this.problem, problem, () => this.translator.retry());
    const edited = this.editing && this.sentences.find((each) => each.name === this.editing.name);
    if (edited && !this.outputOf(edited)) return; // keep the typed text until its translation is known
    if (this.field.composing) return; // keep the text that an input method is composing
    const old = this.spans,
      all = this.sentences.length,
      [first, last] = sameEnds(old, this.sentences);
    // Return the old span of a sentence, or else the old span at its index.
    const before = (k) =>
      k >= all - last ? old[old.length - all + k] : k < Math.max(first, old.length - last) ? old[k] : null;
    let text = "",
      line = 0;
    this.spans = this.sentences.map((sentence, k) => {
      for (; line < sentence.line; line++) text += "\n";
      const output = this.outputOf(sentence),
        stale = output ? null : (before(k)?.output ?? null),
        shown = output ?? stale;
      if (shown?.text && text && !text.endsWith("\n")) text += " ";
      const start = text.length;
      text += shown?.text ?? "";
      return { name: sentence.name, sentence, output: shown, fresh: output !== null, start, end: text.length };
    });
    text += "\n".repeat(text || this.spans.length ? this.lineCount - 1 - line : 0);
    this.written = text;
    const here = edited && this.spans.find((span) => span.name === edited.name);
    this.field.write(text, here ? Math.min(here.end, here.start + this.editing.typed.length) : null);
    this.editing = null;
    this.paint();
    this.note();
    this.tell();
    this.onchange(this);
  }

  paint() {
    const shades = [[], [], []],
      fixed = [];
    for (const { output, start, name } of this.spans) {
      const prefix = this.fixed.get(name)?.trimEnd();
      if (prefix && output) fixed.push([start, start + Math.min(prefix.length, output.text.length)]);
      output?.places?.forEach((place, k) => {
        const doubt = place ? doubtOf(output.probabilities[k]) : 0;
        if (doubt && !(prefix && place[1] <= prefix.length))
          shades[doubt - 1].push([start + place[0], start + place[1]]);
      });
    }
    shades.forEach((parts, k) => mark(this.field, `doubt-${k + 1}`, parts));
    mark(this.field, "fixed", fixed);
  }

  // Return the parts of the source of a kind, for sentences whose translation is up to date.
  sourceParts(kind) {
    const partsOf = kind === "unknown" ? unknownParts : rowParts;
    return this.spans
      .filter((span) => span.fresh)
      .flatMap(({ sentence, output }) =>
        partsOf(sentence.text, output[kind]).map(([from, to]) => [sentence.start + from, sentence.start + to]),
      );
  }

  note() {
    const rows = (span) => rowParts(span.sentence.text, span.output.untranslated),
      fresh = this.spans.filter((span) => span.fresh);
    this.notes.show({
      untranslated: fresh.flatMap((span) => rows(span).map(([from, to]) => span.sentence.text.slice(from, to))),
      unknown: fresh.flatMap((span) => span.output.unknown),
    });
  }

  tell() {
    const all = this.spans.length,
      left = this.spans.filter((span) => !span.fresh).length;
    this.node.classList.toggle("waiting", left > 0);
    this.node.classList.toggle("gone", left > 0 && this.translator.problem !== null);
    this.node.dataset.left = left;
    const cut = this.spans.some((span) => span.output && !span.output.finished);
    this.state.textContent =
      left && this.translator.problem && this.field.text
        ? "In grey: the last translation."
        : left && all > 8
          ? `${count(all - left, "sentence")} of ${all.toLocaleString("en-GB")}`
          : left
            ? ""
            : cut
              ? "One output is as long as outputs may be, and breaks off."
              : "";
    this.forget.hidden = !this.spans.some((span) => this.fixed.has(span.name));
    if (!left && all && this.wasLeft > 8) announce("All sentences are translated.");
    this.wasLeft = left;
  }

  // Return the span of the sentence at a place of the target.
  spanAt(place) {
    return this.spans.find((span) => span.output && span.start <= place && place <= span.end) ?? null;
  }

  // Fix the text before the caret as the prefix of its sentence, and translate the rest again.
  edit() {
    const text = this.field.text,
      same = Math.min(this.field.caret, commonStart(this.written, text)),
      spans = this.spans.filter((span) => span.start <= same),
      span = spans.findLast((each) => same <= each.end && each.output) ?? spans.at(-1);
    if (!span) return;
    const typed = text.slice(span.start, Math.max(span.start, this.field.caret)).replaceAll("\n", " ");
    if (typed.trim()) this.fixed.set(span.name, typed);
    else this.fixed.delete(span.name);
    this.editing = { name: span.name, typed };
    unmark(this.field);
    this.ask(this.sentences.findIndex((each) => each.name === span.name));
    this.render();
  }

  // Fix the prefix of a sentence, and translate the rest again.
  fix(span, prefix) {
    this.fixed.set(span.name, prefix);
    this.editing = null;
    this.ask(this.sentences.findIndex((each) => each.name === span.name));
    this.render();
  }

  undo() {
    for (const span of this.spans) this.fixed.delete(span.name);
    this.editing = null;
    this.ask();
    this.render();
    this.field.area.focus();
  }

  // Report the word of the target under the pointer or the caret.
  point(place, how) {
    const span = place === null ? null : this.spanAt(place),
      word = span ? wordAt(span.output.words, place - span.start) : -1;
    this.onpoint(this, span, word, how);
  }

  close() {
    this.translator.close();
    unmark(this.field);
  }
}

// Count the sentences that two lists share at their beginning and at their end.
function sameEnds(old, fresh) {
  const most = Math.min(old.length, fresh.length);
  let first = 0,
    last = 0;
  while (first < most && old[first].name === fresh[first].name) first++;
  while (last < most - first && old[old.length - 1 - last].name === fresh[fresh.length - 1 - last].name) last++;
  return [first, last];
}

function commonStart(a, b) {
  let same = 0;
  while (same < a.length && same < b.length && a[same] === b[same]) same++;
  return same;
}

// Return an output that begins exactly with the typed text; a tokenizer may normalise spaces and letters.
function beginWith(typed, output) {
  if (output.text.startsWith(typed)) return output;
  const begun = typed.trimEnd(),
    rest = output.words[wordsOf(begun).length],
    text = rest ? `${begun} ${output.text.slice(rest.start)}` : begun;
  return { ...output, text, words: wordsOf(text), places: null };
}

// Report the place under the pointer or of the caret; report null when the pointer or the focus leaves the field.
function watchPointer(field, call) {
  let waiting = null;
  const area = field.area;
  area.addEventListener("pointermove", (event) => {
    const had = waiting;
    waiting = event;
    if (had) return;
    requestAnimationFrame(() => {
      const { clientX, clientY } = waiting;
      waiting = null;
      call(field.placeAt(clientX, clientY), { x: clientX, y: clientY });
    });
  });
  area.addEventListener("pointerleave", () => call(null, null));
  area.addEventListener("blur", () => call(null, null));
  for (const name of ["keyup", "click", "focus"])
    area.addEventListener(name, () => {
      if (area.selectionStart === area.selectionEnd) call(field.caret, "caret");
    });
}
