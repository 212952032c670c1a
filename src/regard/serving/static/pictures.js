// Pictures: dropped, chosen, pasted, or from a phone's camera roll; captions, labels, and a look into the model.

class PictureMode {
  constructor(card) {
    this.card = card;
    this.control = null;
    this.file = null;
    this.describes = card.actions.includes("caption");
    this.input = el("input", {
      type: "file",
      accept: "image/*",
      id: "picture",
      class: "unseen",
      onchange: () => this.input.files[0] && this.show(this.input.files[0]),
    });
    this.preview = el("div", { class: "preview" });
    this.problem = el("div", { class: "notice", role: "alert", hidden: true });
    this.answer = el("div", { class: "caption", role: "status" });
    this.drop = el(
      "div",
      { class: "drop" },
      this.preview,
      this.input,
      el(
        "label",
        { for: "picture", class: "choose" },
        el("span", { class: "main" }, "Choose a picture"),
        el("span", { class: "about" }, "or drop or paste one here"),
      ),
    );
    this.copyButton = button("Copy", () => copyText(this.text, this.copyButton), { hidden: true });
    this.node = el(
      "div",
      { class: "panes" },
      el(
        "section",
        { class: "pane source", "aria-label": "Picture" },
        el("h2", { class: "pane-title" }, "Picture"),
        this.drop,
      ),
      el(
        "section",
        { class: "pane", "aria-label": this.describes ? "Caption" : "Label" },
        el("h2", { class: "pane-title" }, this.describes ? "Caption" : "Label"),
        this.answer,
        this.problem,
        el(
          "div",
          { class: "foot" },
          el("p", { class: "state" }),
          el(
            "div",
            { class: "tools" },
            this.copyButton,
            insideButton(() => this.look()),
          ),
        ),
      ),
    );
    for (const name of ["dragenter", "dragover"])
      this.drop.addEventListener(name, (event) => {
        event.preventDefault();
        this.drop.classList.add("over");
      });
    for (const name of ["dragleave", "drop"])
      this.drop.addEventListener(name, () => this.drop.classList.remove("over"));
    this.drop.addEventListener("drop", (event) => {
      event.preventDefault();
      this.take(event.dataTransfer.files);
    });
    this.paste = (event) => this.take(event.clipboardData.files);
    document.addEventListener("paste", this.paste);
  }

  get text() {
    return this.answer.querySelector(".first")?.textContent ?? "";
  }

  open() {}

  take(files) {
    const file = [...files].find((each) => each.type.startsWith("image/"));
    if (file) this.show(file);
    else if (files.length)
      showProblem(this.problem, new Problem("refused", "That is no picture; a JPEG or PNG is."), () =>
        this.input.click(),
      );
  }

  async show(file) {
    this.control?.abort();
    const control = (this.control = new AbortController());
    showProblem(this.problem, null);
    this.answer.replaceChildren(el("p", { class: "about" }, "Looking …"));
    URL.revokeObjectURL(this.url);
    this.url = URL.createObjectURL(file);
    this.preview.replaceChildren(el("img", { src: this.url, alt: `The picture that was chosen: ${file.name}` }));
    try {
      this.file = await smallEnough(file);
      const fields = { model: this.card.name, ...(this.describes ? { nbest: 3 } : {}) },
        { results } = await upload(this.describes ? "caption" : "classify", this.file, fields, control.signal);
      const [result] = results;
      if (this.describes) {
        const [first, ...others] = [...new Set(result.outputs.map((each) => each.text))];
        this.answer.replaceChildren(
          el("p", { class: "first", dir: "auto" }, first),
          others.length
            ? el(
                "ul",
                { class: "others", "aria-label": "Other captions" },
                others.map((text) => el("li", { dir: "auto" }, text)),
              )
            : "",
        );
      } else this.answer.replaceChildren(el("p", { class: "first", dir: "auto" }, result.label), labelBars(result));
      this.copyButton.hidden = false;
      inside.open = true;
      inside.opener = inside.button;
      setInside();
      this.look();
    } catch (error) {
      if (control.signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      this.answer.replaceChildren();
      retryLater(this.problem, error, () => this.show(file), control);
    }
  }

  look() {
    if (!inside.open) return;
    if (!this.file || !this.text) {
      byId("inside-state").textContent = "Choose a picture, and see where the model looks.";
      return;
    }
    const { file, text } = this;
    lookInside(`${this.card.name}\n${this.url}`, text, (signal) =>
      upload("look", file, { model: this.card.name, target: text }, signal),
    );
  }

  close() {
    this.control?.abort();
    URL.revokeObjectURL(this.url);
    document.removeEventListener("paste", this.paste);
  }
}

// Return a picture file for the server: one above the limit becomes a JPEG of at most 1600 pixels a side.
async function smallEnough(file) {
  if (file.size <= LIMITS.picture_bytes) return file;
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Problem("refused", "This picture cannot be read; a JPEG or PNG can.");
  }
  const scale = Math.min(1, 1600 / Math.max(bitmap.width, bitmap.height)),
    canvas = el("canvas", { width: Math.round(scale * bitmap.width), height: Math.round(scale * bitmap.height) });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.9));
}
