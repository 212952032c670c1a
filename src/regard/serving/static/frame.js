// Inside the model: the answers of `/v1/look`, drawn in a frame by the scripts of `regard look`.

const inside = {
  open: false,
  question: null, // the question whose answer the frame shows or awaits
  control: null,
};

// Return the button that opens and closes the panel.
function insideButton(show) {
  const node = button("Look inside", () => {
    if (inside.open) closeInside();
    else {
      inside.open = true;
      inside.opener = node;
      setInside();
      show();
      byId("inside").scrollIntoView({ block: "nearest" });
    }
  });
  node.setAttribute("aria-controls", "inside");
  node.setAttribute("aria-expanded", "false");
  inside.button = node;
  return node;
}

function setInside() {
  byId("inside").hidden = !inside.open;
  document.body.classList.toggle("looking", inside.open);
  inside.button?.setAttribute("aria-expanded", String(inside.open));
}

function closeInside() {
  inside.control?.abort();
  Object.assign(inside, { open: false, question: null });
  byId("frames").replaceChildren();
  setInside();
  inside.opener?.focus();
}

// Look into a model: `fetchPage` asks the server, and `name` identifies the question.
async function lookInside(name, title, fetchPage, word = null) {
  if (!inside.open) return;
  if (inside.question === name) {
    pointInside(word);
    return;
  }
  inside.control?.abort();
  const control = new AbortController();
  Object.assign(inside, { question: name, control });
  byId("inside-of").textContent = title;
  const state = byId("inside-state");
  state.textContent = "Looking …";
  try {
    const { page } = await fetchPage(control.signal);
    if (control.signal.aborted) return;
    await drawInside(page, word);
    state.textContent = "";
  } catch (error) {
    if (control.signal.aborted) return;
    inside.question = null;
    if (!(error instanceof Problem)) throw error;
    state.replaceChildren(
      `${error.message} `,
      button("Try again", () => lookInside(name, title, fetchPage, word)),
    );
  }
}

// Draw each answer in a new frame; the old frame stays until the new one is drawn.
function drawInside(page, word) {
  return new Promise((done) => {
    const hash = new URLSearchParams(word === null ? {} : { word: word + 1 }),
      before = byId("frames").querySelector("iframe.ready"); // the new frame keeps its switch
    const stretch = before && new URLSearchParams(before.contentWindow.location.hash.slice(1)).get("stretch");
    if (stretch === "1" || (!before && stretching.on)) hash.set("stretch", "1");
    const frame = el("iframe", {
      src: hash.size ? `look#${hash}` : "look",
      title: "What the model looked at",
      allow: "fullscreen",
    });
    frame.addEventListener("load", () => {
      const { contentWindow, contentDocument } = frame;
      const root = contentDocument.documentElement;
      new MutationObserver((_, observer) => {
        if (root.dataset.ready !== "true") return;
        observer.disconnect();
        for (const other of [...byId("frames").children]) if (other !== frame) other.remove();
        frame.classList.add("ready");
        const fit = () => frame.style.setProperty("height", `${contentDocument.body.scrollHeight + 2}px`);
        new ResizeObserver(fit).observe(contentDocument.body);
        fit();
        done();
      }).observe(root, { attributes: true });
      contentWindow.postMessage(page, location.origin);
    });
    byId("frames").append(frame);
  });
}

// Select the word under the caret in the frame.
function pointInside(word) {
  const frame = byId("frames").querySelector("iframe.ready");
  if (frame && word !== null) frame.contentWindow.location.hash = `word=${word + 1}`;
}

byId("close-inside").addEventListener("click", closeInside);
