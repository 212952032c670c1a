// Requests to one model: cache translations, send the typed sentence first, abort requests that are no longer needed.

const FIRST = 8, // sentences in the first of many requests: the server answers up to eight before longer requests
  NEXT_ONES = 24,
  KEPT = 6000;

class Translator {
  constructor(card, onchange) {
    Object.assign(this, {
      card,
      onchange,
      known: new Map(),
      running: new Set(),
      wanted: [],
      problem: null,
      timer: null,
    });
    this.tries = 0;
  }

  static keyOf({ text, prefix }) {
    return `${prefix}\n${text}`;
  }

  result(sentence) {
    return this.known.get(Translator.keyOf(sentence)) ?? null;
  }

  // Set the sentences to translate, with their prefixes, in the order of the text; `urgent` is the one being typed.
  want(sentences, urgent = null) {
    this.wanted = sentences;
    const keys = new Set(sentences.map(Translator.keyOf));
    for (const request of [...this.running])
      if (![...request.keys].some((key) => keys.has(key) && !this.known.has(key))) this.stop(request);
    if (this.problem && !["busy", "gone", "stopping", "loading", "key"].includes(this.problem.kind)) this.settle(null);
    if (this.problem) return;
    if (urgent && !this.known.has(Translator.keyOf(urgent)) && !this.isRunning(Translator.keyOf(urgent)))
      this.start([urgent], true);
    this.next();
  }

  get left() {
    return new Set(this.wanted.map(Translator.keyOf).filter((key) => !this.known.has(key))).size;
  }

  isRunning(key) {
    return [...this.running].some((request) => request.keys.has(key));
  }

  stop(request) {
    this.running.delete(request);
    request.control.abort();
  }

  // Request the next sentences that no request contains yet, up to a limit of sentences and characters.
  next() {
    if (this.problem || [...this.running].some((request) => !request.alone)) return;
    const some = [],
      keys = new Set();
    let characters = 0;
    const most = Math.min(LIMITS.texts, this.began ? NEXT_ONES : FIRST);
    for (const each of this.wanted) {
      const key = Translator.keyOf(each),
        size = each.text.length + each.prefix.length;
      if (this.known.has(key) || keys.has(key) || this.isRunning(key)) continue;
      if (some.length === most || (some.length && characters + size > LIMITS.characters)) break;
      some.push(each);
      keys.add(key);
      characters += size;
    }
    this.began = some.length > 0;
    if (some.length) this.start(some, false);
  }

  async start(sentences, alone) {
    const request = { control: new AbortController(), keys: new Set(sentences.map(Translator.keyOf)), alone };
    this.running.add(request);
    try {
      const question = {
        model: this.card.name,
        texts: sentences.map((each) => each.text),
        alignment: this.card.actions.includes("align"),
        scores: true,
      };
      if (sentences.some((each) => each.prefix)) question.prefixes = sentences.map((each) => each.prefix);
      const { results } = await ask("translate", question, request.control.signal);
      results.forEach((result, k) => this.keep(Translator.keyOf(sentences[k]), outputOf(result)));
      this.tries = 0;
    } catch (error) {
      if (request.control.signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      this.running.delete(request);
      this.settle(error);
      return;
    }
    this.running.delete(request);
    this.next();
    this.onchange();
  }

  keep(key, output) {
    this.known.delete(key);
    this.known.set(key, output);
    for (const old of this.known.keys()) {
      if (this.known.size <= KEPT) break;
      this.known.delete(old);
    }
  }

  // Set the problem or clear it, and retry after its waiting time; repeated tries wait longer, up to 15 s.
  settle(problem) {
    clearTimeout(this.timer);
    this.problem = problem;
    if (problem?.wait) {
      problem.wait = Math.min(15, problem.wait * 2 ** Math.min(3, this.tries));
      problem.until = Date.now() + 1000 * problem.wait;
      this.timer = setTimeout(() => this.retry(), 1000 * problem.wait);
    }
    this.onchange();
  }

  retry() {
    this.tries += 1;
    this.settle(null);
    this.next();
  }

  close() {
    clearTimeout(this.timer);
    for (const request of [...this.running]) this.stop(request);
  }
}

// Return the displayed form of an answer: words, places and probabilities of tokens, links between words.
function outputOf(result) {
  const best = result.outputs[0],
    text = best.text.replaceAll("\n", " ");
  return {
    text,
    words: wordsOf(text),
    places: best.scores ? placeTokens(text, best.tokens) : null,
    probabilities: (best.scores ?? []).map((score) => Math.exp(score ?? -Infinity)),
    links: best.alignment ?? [],
    untranslated: best.untranslated ?? [],
    unknown: result.unknown ?? [],
    finished: best.finished,
  };
}
