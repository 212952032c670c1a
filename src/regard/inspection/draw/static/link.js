// A link that opens the page at a word, layer and head: #attention=cross&layer=2&head=1&word=3, counted from 1.

// Read the attention (by role and layer), head and word of a link; the default role is that of the alignment.
function readLink(exhibit, hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const number = (name) => (/^\d+$/.test(given.get(name) ?? "") ? Number(given.get(name)) - 1 : null);
  if (!["attention", "layer", "head", "word"].some((name) => given.has(name))) return null;
  const first = exhibit.views.find((view) => view.name === exhibit.aligned),
    role = given.get("attention") ?? first?.role ?? textViews(exhibit)[0]?.role ?? exhibit.views[0]?.role,
    layer = number("layer") ?? (first?.role === role ? first.layer : 0);
  const view = exhibit.views.find((each) => each.role === role && each.layer === layer);
  const named = given.get("head");
  const head = named === "all" || named === "mean" ? (named === "all" ? "all" : null) : number("head");
  return { view, head: named === null ? undefined : head, word: number("word") };
}

// Return the first piece of a word among the rows of a view, or null.
function pieceOf(exhibit, view, word) {
  const side = exhibit.sides[view.rows];
  const piece = side ? side.words.indexOf(word) : word;
  return piece >= 0 && piece < view.n ? piece : null;
}

function openLink(exhibit, state, sections) {
  const stretch = new URLSearchParams(location.hash.replace(/^#/, "")).get("stretch");
  if (stretch !== null) setStretch(stretch === "1");
  const link = readLink(exhibit, location.hash);
  if (!link) return;
  const view = link.view ?? exhibit.views.find((each) => each.name === state.view);
  if (!view) return;
  const head = link.head === undefined ? state.head : typeof link.head === "number" && link.head >= view.heads ? null : link.head;
  state.choose({ view: view.name, head });
  if (link.word === null) return;
  const piece = pieceOf(exhibit, view, link.word);
  if (piece === null) return;
  state.chooseRow(piece);
  for (const each of sections) each.showRow?.(piece);
}

// Write the selection into the address, so that the user can copy it at any time.
function writeLink(exhibit, state) {
  const view = exhibit.views.find((each) => each.name === state.view),
    given = new URLSearchParams(view ? { attention: view.role, layer: view.layer + 1 } : {});
  if (view && view.heads > 1) given.set("head", state.head === null ? "mean" : state.head === "all" ? "all" : state.head + 1);
  const side = view && exhibit.sides[view.rows],
    word = !view || state.row === null ? null : side ? side.words[state.row] : state.row;
  if (word !== null && word !== undefined) given.set("word", word + 1);
  if (stretching.on || stretching.first) given.set("stretch", stretching.on ? "1" : "0");
  try {
    history.replaceState(null, "", `${location.href.split("#")[0]}#${given}`);
  } catch {
    // The frame of a notebook has no address of its own.
  }
}
