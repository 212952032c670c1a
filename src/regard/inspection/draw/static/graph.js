// The computational graph of the model; Python has drawn it.

function graphSection(exhibit) {
  if (!exhibit.graph) return null;
  const node = section(
    "graph",
    "What runs",
    "The model's parts in the order in which they ran, from the bottom up, with the shapes of what they give. " +
      "Blue boxes are modules of the model, yellow ones the stages of an attention; each has its name under the pointer.",
  );
  const drawn = new DOMParser().parseFromString(exhibit.graph, "image/svg+xml").documentElement;
  const box = el("div", { class: "scroll graph" }, document.importNode(drawn, true));
  node.append(box);
  // If the graph is wider than the window, scroll to its middle, where most of the boxes are.
  node.ready = () => (box.scrollLeft = (box.scrollWidth - box.clientWidth) / 2);
  node.figures = [["the graph", () => node.querySelector("svg")]];
  return node;
}
