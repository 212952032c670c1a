// Language models: a text and its continuations by the model.

class SampleMode {
  constructor(card) {
    this.card = card;
    this.control = null;
    this.field = new Field({
      label: "Beginning of a text",
      hint: "Begin a text, or leave it empty",
      onedit: () => saveDraft(card.name, this.text),
    });
    this.problem = el("div", { class: "notice", role: "alert", hidden: true });
    this.list = el("ol", { class: "continuations", "aria-label": "Continuations, the newest first" });
    this.go = el(
      "button",
      { type: "button", class: "main", onclick: () => (this.control ? this.stop() : this.run()) },
      "Continue",
    );
    this.heat = el("input", { type: "range", min: "0.1", max: "1.5", step: "0.1", value: "0.8", id: "heat" });
    const shown = el("output", { for: "heat" }, "0.8");
    this.heat.addEventListener("input", () => (shown.textContent = this.heat.value));
    this.node = el(
      "div",
      { class: "panes" },
      el(
        "section",
        { class: "pane source", "aria-label": "Beginning" },
        el("h2", { class: "pane-title" }, "Beginning"),
        this.field.node,
        el(
          "div",
          { class: "foot" },
          el("label", { class: "labelled" }, el("span", {}, "Temperature"), this.heat, shown),
          el(
            "div",
            { class: "tools" },
            this.go,
            insideButton(() => this.look()),
          ),
        ),
      ),
      el(
        "section",
        { class: "pane", "aria-label": "Continuation" },
        el("h2", { class: "pane-title" }, "Continuation"),
        this.problem,
        this.list,
      ),
      el(
        "p",
        { class: "hint" },
        "Ctrl and Enter continue, each time differently: the higher the temperature, the less likely the words.",
      ),
    );
    this.field.area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.run();
    });
  }

  get text() {
    return this.field.text;
  }

  open(text) {
    this.field.write(text);
    this.field.area.focus();
  }

  stop() {
    this.control?.abort();
    this.end();
  }

  end() {
    this.control = null;
    this.go.textContent = "Continue";
  }

  async run() {
    this.stop();
    const control = (this.control = new AbortController()),
      prefix = this.text.trimEnd(),
      body = el("p", { dir: "auto" });
    this.go.textContent = "Stop";
    showProblem(this.problem, null);
    const use = button("Go on from here", () => this.open(body.textContent), { hidden: true }),
      copy = button("Copy", () => copyText(body.textContent, copy), { hidden: true }),
      item = el("li", {}, body, el("div", { class: "tools" }, copy, use));
    this.list.prepend(item);
    // Show the prefix faint, before the new text.
    const write = (text) => {
      const same = text.startsWith(prefix) ? prefix.length : 0;
      body.replaceChildren(el("span", { class: "given" }, text.slice(0, same)), text.slice(same));
    };
    write(prefix);
    try {
      const question = {
        model: this.card.name,
        prefix,
        temperature: Number(this.heat.value),
        seed: Math.floor(Math.random() * 2 ** 31),
      };
      for await (const { name, data } of follow("sample", question, control.signal))
        write(name === "result" ? data.results[0].text : data.output);
      use.hidden = copy.hidden = false;
      remember(this.card.name, prefix || "…", body.textContent);
      announce(body.textContent);
      while (this.list.children.length > 20) this.list.lastChild.remove();
    } catch (error) {
      if (control.signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      if (body.textContent === prefix) item.remove();
      const again = () => this.run();
      showProblem(this.problem, error, again);
    }
    if (this.control === control) this.end();
  }

  look() {
    if (!inside.open) return;
    const text = this.text.trim();
    if (!text) {
      byId("inside-state").textContent = "Begin a text, and look into what the model does with it.";
      return;
    }
    lookInside(`${this.card.name}\n${text}`, text, (signal) => ask("look", { model: this.card.name, text }, signal));
  }

  close() {
    this.control?.abort();
  }
}
