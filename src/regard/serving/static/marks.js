// Marks on the words of fields: the browser paints them from ranges, without elements in the text.

const MARKS = new Map(); // name → field → ranges

// Later names are painted above earlier ones.
const ORDER = ["sentence", "doubt-1", "doubt-2", "doubt-3", "differs", "fixed", "unknown", "untranslated", "lit"];

// Mark parts of a field, and remove its old marks of this name; a part is [start, end].
function mark(field, name, parts) {
  if (!MARKS.has(name)) MARKS.set(name, new Map());
  const fields = MARKS.get(name);
  if (!parts.length && !fields.has(field)) return;
  if (parts.length)
    fields.set(
      field,
      parts.map(([start, end]) => new StaticRange(field.rangeOf(start, end))),
    );
  else fields.delete(field);
  if (!globalThis.CSS?.highlights) return; // a browser without highlights shows plain text
  const all = new Highlight(...[...fields.values()].flat());
  all.priority = ORDER.indexOf(name);
  CSS.highlights.set(name, all);
}

function unmark(field) {
  for (const name of MARKS.keys()) mark(field, name, []);
}

// Return the place of each token in the text of an output; the text lacks the word-start marks of tokens.
function placeTokens(text, tokens) {
  const places = [],
    blank = new RegExp(`[${BLANK}]`, "u");
  let at = 0;
  for (const token of tokens) {
    while (at < text.length && blank.test(text[at])) at++;
    const bare = token.replace(/▁/g, "");
    if (!bare) places.push(null);
    else if (text.startsWith(bare, at)) {
      places.push([at, at + bare.length]);
      at += bare.length;
    } else return null; // a byte or <unk> token: its place is unknown, and so are later ones
  }
  return places;
}

const DOUBTS = [0.9, 0.6, 0.3]; // probabilities; below each of them, a token's shade is a step darker

function doubtOf(probability) {
  return DOUBTS.filter((each) => probability < each).length;
}

// Return the words that only one of two texts has, by their longest common subsequence.
function differing(mine, yours) {
  const a = mine.map((word) => word.text),
    b = yours.map((word) => word.text);
  if (a.length * b.length > 250_000)
    return a.join(" ") === b.join(" ") ? [[], []] : [a.keys(), b.keys()].map((all) => [...all]);
  const row = b.length + 1,
    most = new Uint16Array((a.length + 1) * row);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      most[i * row + j] =
        a[i] === b[j] ? most[(i + 1) * row + j + 1] + 1 : Math.max(most[(i + 1) * row + j], most[i * row + j + 1]);
  const only = [[], []];
  let i = 0,
    j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) [i, j] = [i + 1, j + 1];
    else if (j >= b.length || (i < a.length && most[(i + 1) * row + j] >= most[i * row + j + 1])) only[0].push(i++);
    else only[1].push(j++);
  }
  return only;
}
