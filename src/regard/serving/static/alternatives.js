// Alternatives to a word, from the n-best lists of searches with a fixed prefix.

// A beam finds likely outputs; a diverse beam in groups finds others that a beam leaves out.
const SEARCHES = [
    { beam: 10, nbest: 10 },
    { beam: 6, nbest: 6, groups: 6, diversity: 4 },
  ],
  OTHERS = 6,
  UNLIKELY = 16; // of log-probability: drop outputs this far below the best

// Open the menu for the word at the caret of a target; a choice fixes the new word and the text before it.
async function openAlternatives(pane, event) {
  closeAlternatives();
  const { field } = pane,
    place = field.caret,
    span = pane.spanAt(place),
    number = span?.fresh && field.area.selectionStart === place ? wordAt(span.output.words, place - span.start) : -1;
  if (number < 0) return;
  const word = span.output.words[number];
  if (
    event.type === "click" &&
    event.detail &&
    !field.covers(span.start + word.start, span.start + word.end, event.clientX, event.clientY)
  )
    return;
  const menu = new AlternativesMenu(pane, span, word);
  menu.place();
  if (event.type === "keydown") menu.node.focus();
  openMenu = menu;
  try {
    const question = {
        model: pane.card.name,
        texts: [span.sentence.text],
        scores: true,
        prefixes: [span.output.text.slice(0, word.start).trimEnd()],
      },
      searches = SEARCHES.filter(({ beam }) => beam <= LIMITS.beam);
    const answers = await Promise.all(
      searches.map((search) => ask("translate", { ...question, ...search }, menu.control.signal)),
    );
    menu.fill(
      alternativesOf(
        span.output,
        number,
        answers.flatMap(({ results }) => results[0].outputs),
      ),
    );
  } catch (error) {
    if (!(error instanceof Problem)) {
      if (menu.control.signal.aborted) return;
      throw error;
    }
    menu.say(`${error.message} Please try again.`);
  }
}

// Return the words that outputs with the same beginning have in place of this one: each once, the likeliest first.
function alternativesOf(output, number, others) {
  const before = output.words.slice(0, number).map((word) => word.text),
    seen = new Set([output.words[number].text]),
    found = [];
  const chance = (other) => other.log_prob ?? -Infinity,
    best = Math.max(...others.map(chance));
  for (const other of [...others].sort((a, b) => chance(b) - chance(a))) {
    if (chance(other) < best - UNLIKELY || found.length === OTHERS) break;
    const words = wordsOf(other.text.replaceAll("\n", " "));
    if (words.length <= number || before.some((text, k) => words[k].text !== text)) continue;
    const { text } = words[number];
    if (seen.has(text)) continue;
    seen.add(text);
    found.push({ text, rest: words.slice(number + 1).map((word) => word.text), chance: chanceOf(other, number) });
  }
  // Sort by the displayed probabilities; if any is unknown, keep the order of the outputs.
  return found.every(({ chance }) => chance !== null) ? found.sort((a, b) => b.chance - a.chance) : found;
}

// Return the probability of a word of an output, given the words before it; null if its tokens cannot be located.
function chanceOf(output, number) {
  return probabilityOf(outputOf({ outputs: [output] }), number);
}

// Format like `percent`, but below 1 % with one significant digit, because most alternatives are that rare.
function smallPercent(share) {
  if (share >= 0.01) return percent(share);
  return share < 0.0001 ? "<0.01 %" : `${Number((100 * share).toPrecision(1))} %`;
}

let openMenu = null;

function closeAlternatives() {
  const menu = openMenu;
  openMenu = null; // first: removing the menu moves the focus, which calls this function again
  menu?.close();
}

class AlternativesMenu {
  constructor(pane, span, word) {
    Object.assign(this, { pane, span, word, control: new AbortController() });
    this.node = el("div", {
      class: "menu",
      role: "menu",
      tabindex: "-1",
      "aria-label": `Alternatives to ${word.text}`,
      onkeydown: (event) => this.key(event),
      onfocusout: (event) => {
        if (!this.node.contains(event.relatedTarget) && event.relatedTarget !== this.pane.field.area)
          closeAlternatives();
      },
    });
    this.say("Looking for others …");
    pane.field.node.append(this.node);
  }

  // Place the menu below its word, inside the pane.
  place() {
    const box = this.pane.field
        .boxOf(this.span.start + this.word.start, this.span.start + this.word.end)
        .getBoundingClientRect(),
      around = this.pane.field.node.getBoundingClientRect(),
      left = Math.min(box.left - around.left, around.width - this.node.offsetWidth - 4);
    this.node.style.setProperty("left", `${Math.max(0, left)}px`);
    this.node.style.setProperty("top", `${box.bottom - around.top + 6}px`);
  }

  say(text) {
    this.node.replaceChildren(el("p", { class: "about", role: "presentation" }, text));
    announce(text);
  }

  fill(found) {
    if (!found.length) {
      this.say("The search found no other word here.");
      return;
    }
    const focused = document.activeElement === this.node;
    this.items = found.map(({ text, rest, chance }) =>
      el(
        "button",
        { type: "button", role: "menuitem", tabindex: "-1", dir: "auto", onclick: () => this.pick(text) },
        el(
          "span",
          { class: "other" },
          el("b", {}, text),
          rest.length
            ? el("span", { class: "rest" }, ` ${rest.slice(0, 4).join(" ")}${rest.length > 4 ? " …" : ""}`)
            : "",
        ),
        chance === null ? "" : el("span", { class: "value", dir: "ltr" }, ` ${smallPercent(chance)}`),
      ),
    );
    this.node.replaceChildren(...this.items);
    this.place();
    announce(`${count(found.length, "alternative")} to ${this.word.text}.`);
    if (focused) this.items[0].focus();
  }

  pick(text) {
    const { pane, span, word } = this,
      prefix = [span.output.text.slice(0, word.start).trimEnd(), text].filter(Boolean).join(" ");
    closeAlternatives();
    pane.fix(span, prefix);
    pane.field.area.focus();
    pane.field.area.setSelectionRange(span.start + prefix.length, span.start + prefix.length);
    announce(`${text} is fixed, and the rest is translated anew.`);
  }

  key(event) {
    const at = this.items?.indexOf(document.activeElement) ?? -1,
      by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      closeAlternatives();
      this.pane.field.area.focus();
    } else if ((event.key === "Enter" || event.key === " ") && at >= 0) {
      event.preventDefault(); // otherwise the field, which then has the focus, takes the key too
      this.items[at].click();
    } else if (by && this.items) {
      event.preventDefault();
      this.items[(at + by + this.items.length) % this.items.length].focus();
    }
  }

  close() {
    this.control.abort();
    this.node.remove();
  }
}

document.addEventListener("pointerdown", (event) => {
  if (openMenu && !openMenu.node.contains(event.target)) closeAlternatives();
});
document.addEventListener("input", () => closeAlternatives(), true);
document.addEventListener("keydown", (event) => {
  if (!openMenu || openMenu.node.contains(event.target)) return;
  if (event.key === "Escape") closeAlternatives();
  else if (event.key === "ArrowDown" && openMenu.items) {
    event.preventDefault();
    openMenu.items[0].focus();
  }
});
