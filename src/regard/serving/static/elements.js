// Elements and texts for every part of the page. Text is always text, never markup.

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

// Let screen readers speak a text that is not visible.
function announce(text) {
  byId("said").textContent = text;
}

function count(number, noun) {
  return `${number.toLocaleString("en-GB")} ${noun}${number === 1 ? "" : "s"}`;
}

// Format .83 as 83 %; a share above 0 never shows as 0 %.
function percent(share) {
  const rounded = Math.round(100 * share);
  if (share > 0 && rounded === 0) return "<1 %";
  return rounded === 100 && share < 1 ? ">99 %" : `${rounded} %`;
}

// Debounce: make only the last of several calls, once no new call has come for some time.
function settled(milliseconds, call) {
  let timer = null;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), milliseconds);
  };
}

// Return the English name of a language code.
function languageName(code) {
  try {
    return new Intl.DisplayNames(["en-GB"], { type: "language", fallback: "code" }).of(code);
  } catch {
    return code;
  }
}

// Return a language code if the browser knows it, so that screen readers speak that language; otherwise null.
function spokenCode(code) {
  return code && languageName(code) !== code ? code : null;
}

for (const dialog of document.querySelectorAll("dialog"))
  for (const each of dialog.querySelectorAll("[data-close]")) each.addEventListener("click", () => dialog.close());
