// A text field with marks: a textarea, and behind it the same text line by line, on which marks are painted.

class Field {
  constructor({ label, hint = "", language = null, onedit }) {
    this.under = el("div", { class: "under", "aria-hidden": "true" });
    this.area = el("textarea", {
      "aria-label": label,
      placeholder: hint,
      dir: "auto",
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      rows: "1",
      lang: spokenCode(language),
    });
    this.node = el("div", { class: "field" }, this.under, this.area);
    this.lines = [];
    this.composing = false;
    this.area.addEventListener("compositionstart", () => (this.composing = true));
    this.area.addEventListener("compositionend", () => {
      this.composing = false;
      this.edited(onedit);
    });
    this.area.addEventListener("input", () => this.edited(onedit));
    this.refresh();
  }

  edited(onedit) {
    this.refresh();
    if (!this.composing) onedit?.();
  }

  get text() {
    return this.area.value;
  }

  get caret() {
    return this.area.selectionEnd;
  }

  get focused() {
    return document.activeElement === this.area;
  }

  // Set the text; if the field has the focus, keep the selection or move the caret to `caret`.
  write(text, caret = null) {
    if (text === this.text && caret === null) return;
    const { selectionStart, selectionEnd, selectionDirection } = this.area;
    if (text !== this.text) this.area.value = text;
    if (this.focused)
      if (caret !== null) this.area.setSelectionRange(caret, caret);
      else this.area.setSelectionRange(selectionStart, selectionEnd, selectionDirection);
    this.refresh();
  }

  // Update the lines behind the text; unchanged lines keep their elements.
  refresh() {
    const texts = this.text.split("\n"),
      old = this.lines;
    let first = 0,
      last = 0;
    while (first < old.length && first < texts.length && old[first].text === texts[first]) first++;
    while (
      last < old.length - first &&
      last < texts.length - first &&
      old[old.length - 1 - last].text === texts[texts.length - 1 - last]
    )
      last++;
    const fresh = texts.slice(first, texts.length - last).map((text) => {
      const node = document.createTextNode(text);
      return { text, node, box: el("div", {}, node) };
    });
    old.slice(first, old.length - last).forEach((line) => line.box.remove());
    const after = last ? old[old.length - last].box : null;
    this.under.insertBefore(
      fresh.reduce((all, line) => (all.append(line.box), all), document.createDocumentFragment()),
      after,
    );
    this.lines = [...old.slice(0, first), ...fresh, ...old.slice(old.length - last)];
    let start = 0;
    for (const line of this.lines) {
      line.start = start;
      start += line.text.length + 1;
    }
  }

  // Return the line that contains a place of the text.
  lineAt(place) {
    let low = 0,
      high = this.lines.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.lines[middle].start <= place) low = middle;
      else high = middle - 1;
    }
    return this.lines[low];
  }

  // Return the range of a mark on a part of one line.
  rangeOf(start, end) {
    const line = this.lineAt(start),
      most = line.text.length,
      at = (place) => Math.max(0, Math.min(most, place - line.start));
    return { startContainer: line.node, startOffset: at(start), endContainer: line.node, endOffset: at(end) };
  }

  boxOf(start, end) {
    const given = this.rangeOf(start, end),
      range = document.createRange();
    range.setStart(given.startContainer, given.startOffset);
    range.setEnd(given.endContainer, given.endOffset);
    return range;
  }

  // Return the place in the text under the pointer, or null.
  placeAt(x, y) {
    const found = document.caretPositionFromPoint?.(x, y);
    return found?.offsetNode === this.area ? found.offset : null;
  }

  // Tell whether the pointer is over a part of the text, with a margin of a few pixels.
  covers(start, end, x, y) {
    return [...this.boxOf(start, end).getClientRects()].some(
      (box) => box.left - 2 <= x && x <= box.right + 2 && box.top - 4 <= y && y <= box.bottom + 4,
    );
  }
}

// Empty the field by an editing command, so that the browser's undo restores the text.
function emptyField(field) {
  field.area.focus();
  field.area.select();
  document.execCommand("delete");
}
