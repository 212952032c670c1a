// The data of an exhibit: unpack weights, average heads, merge pieces into words, format numbers.

// ---- weights

// If on, colours are relative to the largest weight of each map; otherwise they have a scale from 0 to 1.
const stretching = { on: false };

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Return the weights of a head between pieces, or the mean over all heads if `head` is null.
function weightsOf(view, head) {
  view.kept ??= new Map();
  if (!view.kept.has(head)) {
    const size = view.n * view.m;
    const values = new Float32Array(size);
    const heads = head === null ? [...Array(view.heads).keys()] : [head];
    for (const h of heads) {
      const levels = view.levels.subarray(h * size, (h + 1) * size);
      const low = view.low[h] / heads.length,
        step = view.step[h] / heads.length;
      for (let i = 0; i < size; i++) values[i] += low + step * levels[i];
    }
    view.kept.set(head, values);
  }
  return view.kept.get(head);
}

// Return one number per row (entropy, centre): of a head, or the mean over all heads.
function besideRows(numbers, head) {
  if (!numbers) return null;
  if (head !== null) return numbers[head];
  return numbers[0].map((_, row) => mean(numbers.map((each) => each[row])));
}

// Return the largest of many values; Math.max(...values) fails if there are too many arguments.
function largest(values, least = 1e-9) {
  let most = least;
  for (const value of values) if (value > most) most = value;
  return most;
}

function mean(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
}

// ---- pieces and words

const UNKNOWN = "<unk>",
  NOT_KNOWN = "not in the vocabulary";

// Return the classes of a unit: START, END and the like are faint, and unknown words are underlined.
function marksOf(unit) {
  return (unit.special ? " special" : "") + (unit.unknown ? " unknown" : "");
}

// Return the units along an edge: words with their pieces, or single pieces.
// `whole` keeps START, END and the like as units of their own, so that their share of a row is visible.
function unitsOf(side, count, merged, whole = false) {
  if (!side) return Array.from({ length: count }, (_, i) => ({ text: count === 1 ? "" : String(i + 1), pieces: [i] }));
  if (!merged || side.grid || side.words.every((word) => word === null)) {
    return side.pieces.map((text, i) => ({
      text,
      pieces: [i],
      special: side.words[i] === null,
      unknown: text === UNKNOWN,
    }));
  }
  const { words, texts, unknown } = side.apart ?? side,
    known = words.filter((word) => word !== null);
  const units = Array.from({ length: largest(known, -1) + 1 }, (_, i) => ({
    text: texts[i] ?? "",
    pieces: [],
    unknown: unknown.includes(i),
  }));
  words.forEach((word, piece) => word !== null && units[word].pieces.push(piece));
  if (!whole) return units;
  const all = [];
  let next = 0;
  words.forEach((word, piece) => {
    if (word === null) all.push({ text: side.pieces[piece], pieces: [piece], special: true, unknown: false });
    else while (next <= word) all.push(units[next++]);
  });
  return [...all, ...units.slice(next)];
}

// Count the words of a side as links and trees do: punctuation belongs to the word beside it.
function withoutParts(side) {
  return side && { ...side, apart: null };
}

// Return single pieces, but spell out each word that is one unknown piece, so that two such words differ.
function namedPieces(side, count) {
  const pieces = (word) => side.words.filter((each) => each === word).length;
  return unitsOf(side, count, false).map((unit, i) => {
    const word = unit.unknown ? side.words[i] : null;
    return word === null || pieces(word) > 1 ? unit : { ...unit, text: side.texts[word] || unit.text };
  });
}

// Return the table to show: sum over the pieces of a column's word, average over those of a row's word. Columns keep
// START, END and the like, so that a row shows all of its weight; in self-attention, rows keep them too.
function tableOf(exhibit, view, head, merged) {
  // If the alignment belongs to the input word of a step (offset 1), that word names the row.
  const read = exhibit.offset === 1 && view.name === exhibit.aligned && view.rows === "written" && exhibit.sides.read;
  const rows = unitsOf(read || exhibit.sides[view.rows], view.n, merged, view.rows === view.columns);
  const columns = unitsOf(exhibit.sides[view.columns], view.m, merged, true);
  const pieces = weightsOf(view, head),
    n = rows.length,
    m = columns.length;
  const values = new Float32Array(n * m);
  rows.forEach((row, i) => {
    columns.forEach((column, j) => {
      let sum = 0;
      for (const p of row.pieces) for (const q of column.pieces) sum += pieces[p * view.m + q];
      values[i * m + j] = row.pieces.length ? sum / row.pieces.length : 0;
    });
  });
  const entropy = besideRows(view.entropy, head);
  const beside = (numbers) => numbers && rows.map((row) => mean(row.pieces.map((piece) => numbers[piece])));
  const along = placesOf(columns, view.m);
  const centres = beside(besideRows(view.centre, head));
  const picked = view.picked && rows.map((row) => picksOf(view, head, row, columns));
  const table = { rows, columns, n, m, values, entropy: beside(entropy), picked, most: Math.log(view.m) };
  if (centres) {
    table.windows = centres.map((centre) =>
      centre === null
        ? null
        : {
            centre: along(centre),
            from: along(centre - (view.radius ?? 0)),
            to: along(centre + (view.radius ?? 0)),
          },
    );
  }
  return finished(table);
}

function finished(table) {
  let low = 0,
    high = 0;
  for (const value of table.values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  table.signed = low < -1e-6;
  table.largest = Math.max(-low, high);
  table.shares = !table.signed && high <= 1.02; // weights; sums over pieces may exceed 1 by rounding
  // The value of the strongest colour: 1 for weights unless they are stretched; scores have a scale of their own.
  Object.defineProperty(table, "top", {
    get: () => (table.shares && !stretching.on ? 1 : table.largest) || 1,
    configurable: true,
  });
  table.at = (row, column) => table.values[row * table.m + column];
  return table;
}

// Return a function from positions between pieces to positions between units; the middle of unit j is at j.
function placesOf(units, pieces) {
  const edge = Array(pieces + 1).fill(null);
  units.forEach((unit, j) =>
    unit.pieces.forEach((piece, k) => {
      edge[piece] = j - 0.5 + k / unit.pieces.length;
    }),
  );
  edge[pieces] = units.length - 0.5;
  for (let p = pieces - 1; p >= 0; p--) edge[p] ??= edge[p + 1];
  return (place) => {
    const at = Math.min(pieces, Math.max(0, place + 0.5)),
      low = Math.min(pieces - 1, Math.floor(at));
    return edge[low] + (edge[low + 1] - edge[low]) * (at - low);
  };
}

function picksOf(view, head, row, columns) {
  const found = new Set();
  const heads = head === null ? view.picked : [view.picked[head]];
  for (const each of heads)
    for (const piece of row.pieces) {
      const column = columns.findIndex((unit) => unit.pieces.includes(each[piece]));
      if (column >= 0) found.add(column);
    }
  return found;
}

// Tell whether any side has pieces smaller than words.
function hasPieces(exhibit) {
  return Object.values(exhibit.sides).some(
    (side) => !side.grid && side.words.some((word, i) => word === null || side.pieces[i] !== side.texts[word]),
  );
}

// ---- numbers as text

// Format a number as .83 rather than 0.83, with a minus sign as wide as a plus.
function share(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) >= 10) return signedText(value.toPrecision(3));
  const text = value.toFixed(digits);
  return signedText(
    /\.0+$/.test(text) ? text.replace(/\.0+$/, "").replace(/^-0$/, "0") : text.replace(/^(-?)0\./, "$1."),
  );
}

// Format a probability; it never reads as exactly 0 or, below 1, as exactly 1.
function chance(logProb, digits = 2) {
  const value = Math.exp(logProb ?? -Infinity),
    least = 10 ** -digits;
  return value < least / 2
    ? `<${share(least, digits)}`
    : value < 1 && value > 1 - least / 2
      ? `>${share(1 - least, digits)}`
      : share(value, digits);
}

function signedText(text) {
  return text.replace(/^-/, "−");
}

function decimal(value, digits = 2) {
  return value === null ? "–" : signedText(value.toFixed(digits).replace(/^-(0\.0+)$/, "$1"));
}

function plus(value) {
  return value === null ? "–" : value > 0.005 ? `+${decimal(value)}` : decimal(value);
}

function headName(head) {
  return head === null ? "mean of heads" : `head ${head + 1}`;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// Return the writing direction of words: that of their first letter.
function directionOf(texts) {
  const first = texts.join(" ").match(/\p{L}/u);
  return first && /[\u0590-\u08FF\uFB1D-\uFDFF\uFE70-\uFEFF]/u.test(first[0]) ? "rtl" : "ltr";
}
