// Words of a source that training never saw, and runs of words that a translation leaves out: each is underlined in the
// style of its kind, and a sentence names the words and says what the line means.

const NAMED = 5, // the most words, or runs of them, that a sentence names
  KINDS = {
    untranslated: ["Perhaps not translated", "The model hardly looked at these words while it translated."],
    unknown: ["Never seen in training", "The model can only guess at what these words mean."],
  };

// Return a word without surrounding punctuation, as the server names it (regard.data.unknown_words.strip_marks).
function bareWord(word) {
  if (/[<>&]/.test(word)) return word;
  return /[\p{L}\p{N}_](?:.*[\p{L}\p{N}_])?/u.exec(word)?.[0] ?? word;
}

// Return the places of unknown words in a text.
function unknownParts(text, unknown) {
  const names = new Set(unknown);
  if (!names.size) return [];
  return wordsOf(text)
    .filter((word) => names.has(bareWord(word.text)))
    .map(({ start, end }) => [start, end]);
}

// Return the places of runs of words; an answer gives each run as its first word and the word after its last.
function rowParts(text, rows) {
  if (!rows.length) return [];
  const words = wordsOf(text);
  return rows
    .filter(([from, to]) => words[from] && words[to - 1])
    .map(([from, to]) => [words[from].start, words[to - 1].end]);
}

// Notes on a text's words, below its output; hidden if there are none.
class WordNotes {
  constructor(name) {
    this.node = el("div", { class: "word-notes", id: name, hidden: true });
    this.shown = "";
  }

  // Show the notes; `named` maps each kind to the words to name.
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

  // The notes as text for screen readers.
  get text() {
    return [...this.node.children].map((line) => `${line.textContent}.`).join(" ");
  }
}
