// Copying, files and links. A link has the text after its #, which browsers do not send to servers.

async function copyText(text, node, done = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
    flash(node, done);
  } catch {
    // Without permission for the clipboard, or over plain HTTP, use the deprecated command.
    const area = el("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    flash(node, copied ? done : "Not copied");
  }
}

// Show on a button for a moment what it did.
function flash(node, text) {
  node.dataset.name ??= node.textContent;
  node.textContent = text;
  announce(text);
  clearTimeout(node.timer);
  node.timer = setTimeout(() => (node.textContent = node.dataset.name), 1600);
}

function download(text, name) {
  const url = URL.createObjectURL(new Blob([`${text}\n`], { type: "text/plain;charset=utf-8" })),
    link = el("a", { href: url, download: name.replace(/[^\p{L}\p{N}._-]+/gu, "-") });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function linkTo(model, text) {
  return `${location.href.split("#")[0]}#${new URLSearchParams({ model, text })}`;
}

function readLink() {
  const given = new URLSearchParams(location.hash.slice(1));
  return given.has("text") || given.has("model") ? { model: given.get("model"), text: given.get("text") } : null;
}

async function shareLink(model, text, node) {
  const url = linkTo(model, text);
  if (navigator.share && matchMedia("(pointer: coarse)").matches) {
    try {
      await navigator.share({ url });
      return;
    } catch (error) {
      if (error.name === "AbortError") return;
    }
  }
  await copyText(url, node, "Link copied");
}
