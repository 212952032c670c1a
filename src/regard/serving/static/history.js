// The history of texts: stored in this browser only, and deleted with one button.

const PAST = "regard.history",
  DRAFT = "regard.draft",
  MOST = 50;

function readStore(store, name) {
  try {
    return JSON.parse(store().getItem(name)) ?? null;
  } catch {
    return null; // no entry, or a browser without storage
  }
}

function writeStore(store, name, value) {
  try {
    if (value === null) store().removeItem(name);
    else store().setItem(name, JSON.stringify(value));
  } catch {
    // Storage is full or off: the page works without it.
  }
}

const lasting = () => localStorage,
  passing = () => sessionStorage;

function pastEntries() {
  const found = readStore(lasting, PAST);
  return Array.isArray(found) ? found.filter((each) => typeof each?.source === "string") : [];
}

// Store a text with its output; a text that continues the latest one replaces it.
const remember = settled(1500, (model, source, target) => {
  if (source.trim().length < 2 || !target.trim() || source.length > 20_000) return;
  const past = pastEntries(),
    last = past[0],
    goesOn =
      last && last.model === model && (source.startsWith(last.source.slice(0, 40)) || last.source.startsWith(source));
  const rest = (goesOn && Date.now() - last.time < 600_000 ? past.slice(1) : past).filter(
    (each) => each.source !== source || each.model !== model,
  );
  writeStore(lasting, PAST, [{ model, source, target, time: Date.now() }, ...rest].slice(0, MOST));
});

// The draft of the text survives a reload of the page, until the tab is closed. The page stores it a moment after the
// last key, or earlier if the user leaves the page.
let draft = null;

function writeDraft() {
  if (draft) writeStore(passing, DRAFT, draft);
  draft = null;
}

const writeDraftSoon = settled(300, writeDraft);

function saveDraft(model, text) {
  draft = { model, text };
  writeDraftSoon();
}

addEventListener("pagehide", writeDraft);

function showHistory(open) {
  const past = pastEntries();
  byId("past").replaceChildren(
    ...past.map((entry) =>
      el(
        "li",
        {},
        el(
          "button",
          {
            type: "button",
            class: "entry",
            onclick: () => {
              byId("history").close();
              open(entry);
            },
          },
          el("span", { class: "entry-source", dir: "auto" }, entry.source.slice(0, 160)),
          el("span", { class: "entry-target", dir: "auto" }, String(entry.target).slice(0, 160)),
          el(
            "span",
            { class: "about" },
            `${entry.model} · ${new Date(entry.time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })}`,
          ),
        ),
      ),
    ),
    past.length ? "" : el("li", { class: "about" }, "Nothing yet."),
  );
  byId("clear-history").disabled = !past.length;
}

function prepareHistory(open) {
  byId("open-history").addEventListener("click", () => {
    showHistory(open);
    byId("history").showModal();
  });
  byId("clear-history").addEventListener("click", () => {
    writeStore(lasting, PAST, null);
    showHistory(open);
    announce("The history is empty.");
  });
}
