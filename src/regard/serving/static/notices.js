// Notices of failed requests: a sentence, the time of the next try, and a button to try now.

const AGAIN = { busy: true, gone: true, stopping: true, loading: true };

// Show a problem in an element until the next call; the button calls `retry`.
function showProblem(place, problem, retry) {
  clearInterval(place.clock);
  place.hidden = !problem;
  if (!problem) {
    place.replaceChildren();
    return;
  }
  if (problem.kind === "key") askForKey(problem, retry);
  const when = el("span", { class: "when", "aria-hidden": "true" }),
    lead = problem.kind === "key" ? "This server asks for a key." : problem.message,
    safe = ["gone", "stopping"].includes(problem.kind) ? " Your text stays here." : "",
    again = problem.kind === "key" ? "Give the key" : "Try again";
  place.replaceChildren(
    el("span", { dir: "auto" }, lead + safe),
    " ",
    when,
    button(again, () => (problem.kind === "key" ? askForKey(problem, retry) : retry())),
  );
  if (!problem.until || !AGAIN[problem.kind]) return;
  const tick = () => {
    const left = Math.max(0, Math.ceil((problem.until - Date.now()) / 1000));
    when.textContent = left ? `Next try in ${left} s. ` : "Trying now … ";
  };
  tick();
  place.clock = setInterval(tick, 500);
}

let keyWaiting = [];

function askForKey(problem, then) {
  if (!keyWaiting.includes(then)) keyWaiting.push(then);
  const dialog = byId("key");
  if (problem.message.includes("not known"))
    byId("key-problem").textContent = "The server does not know this key. Please check it, and try again.";
  if (!dialog.open) dialog.showModal();
}

byId("key-form").addEventListener("submit", () => {
  try {
    sessionStorage.setItem(KEY, byId("key-text").value.trim());
  } catch {
    announce("This browser stores nothing, so that the key cannot be kept.");
  }
  byId("key-text").value = "";
  const waiting = keyWaiting;
  keyWaiting = [];
  waiting.forEach((then) => then());
});
