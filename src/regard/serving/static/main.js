// The page: the served models, the current one, and its mode.

const page = { cards: [], card: null, mode: null, text: "" }; // a visit to a picture model keeps the text

// Return the mode for a model by its input and its actions, or null.
function modeFor(card, against) {
  if (card.reads === "pictures") return new PictureMode(card);
  if (card.actions.includes("translate")) return new TranslateMode(card, against);
  if (card.actions.includes("sample")) return new SampleMode(card);
  if (card.actions.includes("classify")) return new DocumentMode(card);
  return null;
}

function titleOf(card) {
  const pair = card.languages;
  if (!pair) return card.name;
  return `${card.name}: ${languageName(pair.source)} to ${pair.targets.map(languageName).join(", ")}`;
}

function describe(card) {
  const million = card.parameters / 1e6,
    size =
      million < 1
        ? count(card.parameters, "parameter")
        : `${million < 10 ? million.toFixed(1) : Math.round(million)} million parameters`;
  return `${card.kind}, ${size}, step ${card.step.toLocaleString("en-GB")}`;
}

// Return the models that can translate beside this one.
function rivalsOf(card) {
  if (!card.actions.includes("translate") || card.reads === "pictures") return [];
  return page.cards.filter((each) => each !== card && each.actions.includes("translate") && each.reads !== "pictures");
}

// Return the model that translates in the other direction, or null.
function reverseOf(card) {
  const codes = (each) => [each.languages?.source, ...(each.languages?.targets ?? [])];
  return rivalsOf(card).find((each) => card.languages && String(codes(each).reverse()) === String(codes(card))) ?? null;
}

function use(card, text, against = null) {
  page.mode?.close();
  page.text = text;
  if (inside.open) closeInside();
  page.card = card;
  page.mode = modeFor(card, against);
  byId("model").value = card.name;
  byId("about").textContent = describe(card);
  document.title = `${card.name} · Regard`;
  const rivals = rivalsOf(card);
  byId("against-label").hidden = !rivals.length;
  byId("against").replaceChildren(
    el("option", { value: "" }, "no other model"),
    ...rivals.map((each) => el("option", { value: each.name }, titleOf(each))),
  );
  byId("against").value = against?.name ?? "";
  if (!page.mode) {
    byId("mode").replaceChildren(
      el("p", { class: "notice" }, `This page has no place for what ${card.name} does: ${card.actions.join(", ")}.`),
    );
    return;
  }
  byId("mode").replaceChildren(page.mode.node);
  page.mode.open(text);
}

function cardNamed(name) {
  return page.cards.find((card) => card.name === name) ?? null;
}

function openEntry({ model, source, text }) {
  const card = cardNamed(model) ?? page.card;
  use(card, source ?? text);
}

async function start() {
  const notice = byId("notice");
  try {
    page.cards = await listModels();
    if (!page.cards.length || (await isLoading()))
      throw new Problem("loading", "The server is opening its models.", { wait: 1 });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    retryLater(notice, error, start, new AbortController());
    return;
  }
  showProblem(notice, null);
  byId("models").hidden = false;
  byId("model").replaceChildren(...page.cards.map((card) => el("option", { value: card.name }, titleOf(card))));
  const link = readLink(),
    stored = readStore(passing, DRAFT),
    draft = typeof stored?.text === "string" ? stored : null;
  use(cardNamed(link?.model ?? draft?.model) ?? page.cards[0], link?.text ?? draft?.text ?? "");
  tellOfModel(link);
  document.documentElement.dataset.ready = "true";
}

// Show a notice if a link names a model that this server does not have.
function tellOfModel(link) {
  const missing = Boolean(link?.model) && !cardNamed(link.model),
    notice = byId("notice");
  notice.hidden = !missing;
  notice.replaceChildren(missing ? `There is no model ${link.model} on this server; this is ${page.card.name}.` : "");
}

// Return the current text, whichever model it is for.
function textNow() {
  return page.mode?.field ? page.mode.field.text : page.text;
}

byId("model").addEventListener("change", () => use(cardNamed(byId("model").value), textNow()));
byId("against").addEventListener("change", () => use(page.card, textNow(), cardNamed(byId("against").value)));
addEventListener("hashchange", () => {
  const link = readLink();
  if (!link || !page.card) return;
  use(cardNamed(link.model) ?? page.card, link.text ?? textNow());
  tellOfModel(link);
});
prepareHistory(openEntry);
start();
