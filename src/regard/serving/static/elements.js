// Elements, and what every part of the page says. Text is always text, never markup.

const SETTINGS = JSON.parse(document.getElementById("settings").textContent),
  LIMITS = SETTINGS.limits;

function byId(name) {
  return document.getElementById(name);
}

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function button(text, onclick, attributes = {}) {
  return el("button", { type: "button", class: "plain", onclick, ...attributes }, text);
}

// Read out to those who listen; not seen.
function announce(text) {
  byId("said").textContent = text;
}

function count(number, noun) {
  return `${number.toLocaleString("en-GB")} ${noun}${number === 1 ? "" : "s"}`;
}

// .83 of a probability is 83 %; what is neither never nor always is not shown as that.
function percent(share) {
  const rounded = Math.round(100 * share);
  if (share > 0 && rounded === 0) return "<1 %";
  return rounded === 100 && share < 0.995 ? ">99 %" : `${rounded} %`;
}

// The last of several calls, once they have stopped for some time.
function settled(milliseconds, call) {
  let timer = null;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), milliseconds);
  };
}

// The name of a language, as its code has it in English.
function languageName(code) {
  try {
    return new Intl.DisplayNames(["en-GB"], { type: "language", fallback: "code" }).of(code);
  } catch {
    return code;
  }
}

// The code itself where it is one that readers know: a screen reader then speaks that language.
function spokenCode(code) {
  return code && languageName(code) !== code ? code : null;
}

for (const dialog of document.querySelectorAll("dialog"))
  for (const each of dialog.querySelectorAll("[data-close]")) each.addEventListener("click", () => dialog.close());
