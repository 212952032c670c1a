// Words of a source that training never saw, and rows of words that a translation leaves out: a line below each, of one
// form or the other, and the words themselves in a sentence that says what the line means.

const NAMED = 5, // words, or rows of them, that a sentence names
  KINDS = {
    untranslated: ["Perhaps not translated", "The model hardly looked at these words while it translated."],
    unknown: ["Never seen in training", "The model can only guess at what these words mean."],
  };

// A word without the marks around it, as the server names it (regard.data.unknown_words.strip_marks).
function bareWord(word) {
  if (/[<>&]/.test(word)) return word;
  return /[\p{L}\p{N}_](?:.*[\p{L}\p{N}_])?/u.exec(word)?.[0] ?? word;
}

// Where words of a text that are unknown stand in it.
function unknownParts(text, unknown) {
  const names = new Set(unknown);
  if (!names.size) return [];
  return wordsOf(text)
    .filter((word) => names.has(bareWord(word.text)))
    .map(({ start, end }) => [start, end]);
}

// Where rows of words stand: from the first to the one before the last, as an answer counts them.
function rowParts(text, rows) {
  if (!rows.length) return [];
  const words = wordsOf(text);
  return rows
    .filter(([from, to]) => words[from] && words[to - 1])
    .map(([from, to]) => [words[from].start, words[to - 1].end]);
}

// What is said of a text's words, below what came of it; it is hidden where there is nothing to say.
class WordNotes {
  constructor(name) {
    this.node = el("div", { class: "word-notes", id: name, hidden: true });
    this.shown = "";
  }

  // Texts by kind: of each the words to name.
  show(named) {
    const kinds = Object.keys(KINDS).filter((kind) => named[kind]?.length),
      shown = JSON.stringify(kinds.map((kind) => [kind, named[kind]]));
    if (shown === this.shown) return;
    this.shown = shown;
    this.node.hidden = !kinds.length;
    this.node.replaceChildren(...kinds.map((kind) => this.line(kind, [...new Set(named[kind])])));
  }

  line(kind, texts) {
    const [title, meaning] = KINDS[kind],
      more = texts.length - NAMED;
    return el(
      "p",
      { title: meaning },
      `${title}: `,
      texts.slice(0, NAMED).flatMap((text, k) => [k ? ", " : "", el("span", { class: kind, dir: "auto" }, text)]),
      more > 0 ? ` and ${more.toLocaleString("en-GB")} more` : "",
    );
  }

  // For those who listen.
  get text() {
    return [...this.node.children].map((line) => `${line.textContent}.`).join(" ");
  }
}
