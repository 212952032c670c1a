// Split text into sentences and words as regard.data.sentence_split does, to send only changed sentences.

// White space as Python defines it; JavaScript's \s differs in a few characters.
const BLANK = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000",
  CLOSING = SETTINGS.sentences.closing,
  OPENING = SETTINGS.sentences.opening;
const END = new RegExp(
    `[。！？]+[${CLOSING}]*[${BLANK}]*|[.!?…।؟۔]+[${CLOSING}]*(?<alone>[${BLANK}]+["'](?=[${BLANK}]|$))?(?:[${BLANK}]+|$)`,
    "gu",
  ),
  NEXT = new RegExp(`[${BLANK}${OPENING}]*([^${BLANK}])`, "uy"),
  SHORT = new RegExp(`^(?:${SETTINGS.sentences.short})$`, "u"),
  SHORTENED = new RegExp(`^(?:${SETTINGS.sentences.short}|${SETTINGS.sentences.shortened})$`, "u"),
  OPENERS = new RegExp(`^[${OPENING}]+`, "u"),
  AROUND = new RegExp(`^[${CLOSING}${OPENING}]+|[${CLOSING}${OPENING}]+$`, "gu"),
  // Matches the beginning of a text without capitals.
  SMALL = new RegExp(`^[^\\p{L}]*(?=\\p{L})(?:I(?=['’${BLANK}])|\\p{Lowercase})`, "u"),
  DIGITS = /^[\p{Nd}\u00b2\u00b3\u00b9\u2070-\u2079\u2080-\u2089]+$/u,
  WORD = new RegExp(`[^${BLANK}]+`, "gu"),
  LONGEST = Math.min(4000, Math.floor(LIMITS.characters / 2)); // the most characters of one sentence in a request

function trimmed(text, start, end) {
  const blank = (at) => new RegExp(`[${BLANK}]`, "u").test(text[at]);
  while (start < end && blank(start)) start++;
  while (end > start && blank(end - 1)) end--;
  return { start, end, text: text.slice(start, end) };
}

function ends(text, start, match) {
  const mark = match[0];
  if ("。！？".includes(mark[0])) return true;
  NEXT.lastIndex = match.index + mark.length;
  const following = NEXT.exec(text)?.[1];
  if (following === undefined || /^\p{Lowercase}/u.test(following) || ",;:.!?…".includes(following)) return false;
  if (mark[0] !== "." || mark.startsWith("..")) return true;
  const before = text.slice(Math.max(start, match.index - 40), match.index),
    words = before.match(WORD);
  if (!words || new RegExp(`[${BLANK}]`, "u").test(text[match.index - 1])) return true; // the full stop stands alone
  const word = words.at(-1).replace(OPENERS, ""),
    last = word.split(".").at(-1);
  if (DIGITS.test(last)) return last.length > 2 || last !== word;
  if (word.toLowerCase() === "no" && DIGITS.test(following)) return false;
  const initial = [...last].length === 1 && /^\p{L}$/u.test(last) && last !== "I";
  return !initial && !SHORT.test(word.toLowerCase());
}

// Tell whether a sentence ends here although the next one begins in lower case.
function endsInLowercase(text, start, match) {
  const mark = match[0],
    stop = match.index + mark.length;
  NEXT.lastIndex = stop;
  const following = NEXT.exec(text)?.[1];
  if (!".!?".includes(mark[0]) || mark.startsWith("..") || !/^\p{Lowercase}/u.test(following ?? "")) return false;
  if (text.startsWith(following, stop) && [...mark].some((each) => SETTINGS.sentences.quotes.includes(each)))
    return false; // "Stop!" he said
  const words = text.slice(Math.max(start, match.index - 40), match.index).match(WORD),
    word = (words?.at(-1) ?? "").replace(AROUND, "").toLowerCase();
  return !SHORTENED.test(word) && (word.split(".").at(-1).match(/\p{L}/gu) ?? []).length >= 3;
}

// Split a part of a line wherever `isEnd` finds the end of a sentence.
function splitWhere(whole, isEnd) {
  const found = [],
    line = whole.text;
  let start = 0;
  const add = (from, to) => found.push(trimmed(line, from, to));
  for (const match of line.matchAll(END)) {
    const stop = match.index + match[0].length;
    if (stop >= line.length || !isEnd(line, start, match)) continue;
    const alone = match.groups.alone;
    let to = stop;
    if (alone) {
      const quote = alone.at(-1),
        before = line.slice(start, match.index).split(quote).length - 1;
      if (before % 2 === 0) to = match.index + match[0].indexOf(alone);
    }
    add(start, to);
    start = to;
  }
  add(start, line.length);
  return found
    .filter((each) => each.text)
    .map((each) => ({ start: whole.start + each.start, end: whole.start + each.end, text: each.text }));
}

// Return the sentences of a line with their places; without `split`, the whole line.
function sentencesOf(line, split = true) {
  const whole = trimmed(line, 0, line.length);
  if (!split) return whole.text ? fitting(line, whole) : [];
  return splitWhere(whole, ends)
    .flatMap((each) => (SMALL.test(each.text) ? splitWhere(each, endsInLowercase) : [each]))
    .flatMap((each) => fitting(line, each));
}

// Cut a sentence into parts of at most LONGEST characters.
function fitting(line, { start, end }) {
  const parts = [];
  while (end - start > LONGEST) {
    const space = line.lastIndexOf(" ", start + LONGEST),
      cut = space > start + LONGEST / 2 ? space : start + LONGEST;
    parts.push(trimmed(line, start, cut));
    start = cut;
  }
  return [...parts, trimmed(line, start, end)].filter((each) => each.text);
}

// Return the words of a text, as alignments count them.
function wordsOf(text) {
  return [...text.matchAll(WORD)].map((match) => ({
    start: match.index,
    end: match.index + match[0].length,
    text: match[0],
  }));
}

// Return the index of the word at a place or ending there; -1 between words.
function wordAt(words, place) {
  return words.findIndex((word) => word.start <= place && place <= word.end);
}

// Split a text into lines and sentences; a cache keeps the sentences of earlier lines.
const cutLines = new Map();
function cutText(text, split = true) {
  const sentences = [];
  let start = 0;
  text.split("\n").forEach((line, number) => {
    const key = `${split}\n${line}`;
    if (!cutLines.has(key)) {
      if (cutLines.size > 5000) cutLines.clear();
      cutLines.set(key, sentencesOf(line, split));
    }
    for (const each of cutLines.get(key))
      sentences.push({ line: number, start: start + each.start, end: start + each.end, text: each.text });
    start += line.length + 1;
  });
  return sentences;
}

// Name the sentences of a text, so that equal sentences keep their names when others before them come and go. Match
// those after the caret with the last old ones, then equal ones from the beginning, then from the end.
function nameSentences(fresh, old, caret) {
  const names = new Array(fresh.length).fill(null),
    most = Math.min(fresh.length, old.length),
    equal = (k, m) => fresh[k].text === old[m].text;
  let first = 0,
    last = 0;
  const lasting = () => last < most && equal(fresh.length - 1 - last, old.length - 1 - last);
  while (lasting() && fresh[fresh.length - 1 - last].start >= caret) last++;
  while (first < most - last && equal(first, first)) first++;
  while (first + last < most && lasting()) last++;
  for (let k = 0; k < first; k++) names[k] = old[k].name;
  for (let k = 1; k <= last; k++) names[fresh.length - k] = old[old.length - k].name;
  const taken = new Set(names);
  fresh.forEach((each, k) => {
    for (let time = 0; names[k] === null; time++) {
      const name = `${each.text}\n${time}`;
      if (!taken.has(name)) names[k] = name;
    }
    taken.add(names[k]);
  });
  return fresh.map((each, k) => ({ ...each, name: names[k] }));
}
