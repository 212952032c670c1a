// Save a drawing as a file: a copy of the drawing on the page as SVG, or that SVG rendered as PNG.

const SVG_STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap",
  "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "font-style", "text-anchor",
  "dominant-baseline", "paint-order", "visibility", "letter-spacing",
]; // prettier-ignore
const SKIPPED = "script, style, select, input, noscript, title, desc, .choice, .visually-hidden";

// Replace characters that XML forbids, lone surrogates included.
function written(text) {
  return (text.toWellFormed?.() ?? text).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
}

function isClear(colour) {
  return !colour || colour === "transparent" || /,\s*0\)$|\/\s*0\)$/.test(colour);
}

// Build the SVG of an element and its descendants, at the positions of the browser's layout.
function svgOf(element) {
  const origin = element.getBoundingClientRect(),
    made = svg("g"),
    edges = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity },
    measure = document.createElement("canvas").getContext("2d");
  const zoomed = element.currentCSSZoom ?? 1;
  const reach = (box) => {
    edges.left = Math.min(edges.left, box.left - origin.left);
    edges.top = Math.min(edges.top, box.top - origin.top);
    edges.right = Math.max(edges.right, box.right - origin.left);
    edges.bottom = Math.max(edges.bottom, box.bottom - origin.top);
  };
  const boxed = (box, more) =>
    svg("rect", { x: box.left - origin.left, y: box.top - origin.top, width: box.width, height: box.height, ...more });
  const ground = (node, style, box, into) => {
    const before = into.childElementCount;
    const round = parseFloat(style.borderTopLeftRadius) || 0,
      rx = Math.min(round, box.height / 2);
    if (!isClear(style.backgroundColor)) into.append(boxed(box, { fill: style.backgroundColor, rx }));
    const ring = style.boxShadow.match(/^(rgba?\([^)]*\)|color\([^)]*\)) 0px 0px 0px ([\d.]+)px/);
    if (ring) into.append(boxed(box, { fill: "none", stroke: ring[1], "stroke-width": ring[2], rx }));
    const sides = ["Top", "Right", "Bottom", "Left"].map((side) => [
      parseFloat(style[`border${side}Width`]) || 0,
      style[`border${side}Color`],
    ]);
    if (sides.every(([width, colour]) => width && !isClear(colour)))
      into.append(boxed(box, { fill: "none", stroke: sides[0][1], "stroke-width": sides[0][0], rx }));
    else if (sides[2][0] && !isClear(sides[2][1]))
      into.append(
        svg("path", {
          d: `M${box.left - origin.left} ${box.bottom - origin.top}h${box.width}`,
          stroke: sides[2][1],
          "stroke-width": sides[2][0],
        }),
      );
    if (into.childElementCount > before) reach(box);
  };
  const letters = (node, style, into) => {
    const range = document.createRange(),
      size = parseFloat(style.fontSize) * (node.parentElement.currentCSSZoom ?? 1);
    measure.font = `${style.fontStyle} ${style.fontWeight} ${size}px ${style.fontFamily}`;
    const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = measure.measureText("x");
    for (const word of node.data.matchAll(/\S+/gu)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const box = range.getBoundingClientRect();
      if (!box.width) continue;
      reach(box);
      const rightward = style.direction !== "rtl";
      into.append(
        svg(
          "text",
          {
            x: (rightward ? box.left : box.right) - origin.left,
            y: box.top - origin.top + (box.height - up - down) / 2 + up,
            fill: style.color,
            direction: rightward ? null : "rtl",
            "font-family": style.fontFamily,
            "font-size": size,
            "font-weight": style.fontWeight,
            "font-style": style.fontStyle === "normal" ? null : style.fontStyle,
            "text-decoration": /underline/.test(style.textDecorationLine) ? "underline" : null,
          },
          written(word[0]),
        ),
      );
    }
  };
  const drawing = (node, box, into) => {
    const copy = node.cloneNode(true),
      [from, to] = [node, copy].map((each) => [each, ...each.querySelectorAll("*")]);
    from.forEach((each, k) => {
      const style = getComputedStyle(each);
      for (const name of SVG_STYLES) to[k].setAttribute(name, style.getPropertyValue(name));
      for (const name of ["class", "style", "tabindex", "role", "id"]) to[k].removeAttribute(name);
    });
    for (const text of copy.querySelectorAll("text, title")) text.textContent = written(text.textContent);
    const view = node.viewBox.baseVal;
    copy.setAttribute("viewBox", view?.width ? `${view.x} ${view.y} ${view.width} ${view.height}` : `0 0 ${box.width / zoomed} ${box.height / zoomed}`);
    for (const [name, value] of Object.entries({ x: box.left - origin.left, y: box.top - origin.top, width: box.width, height: box.height, overflow: "visible" }))
      copy.setAttribute(name, value);
    into.append(copy);
    for (const text of node.querySelectorAll("text")) reach(text.getBoundingClientRect());
  };
  const walk = (node, into) => {
    if (node.nodeType === Node.TEXT_NODE) {
      letters(node, getComputedStyle(node.parentElement), into);
      return;
    }
    if (node.nodeType !== Node.ELEMENT_NODE || node.matches(SKIPPED)) return;
    const style = getComputedStyle(node),
      box = node.getBoundingClientRect();
    if (style.display === "none" || style.visibility === "hidden" || style.opacity === "0") return;
    if (style.display !== "contents" && !(box.width || box.height)) return;
    const own = style.opacity === "1" ? into : into.appendChild(svg("g", { opacity: style.opacity }));
    if (node instanceof SVGSVGElement) {
      reach(box);
      drawing(node, box, own);
      return;
    }
    ground(node, style, box, own);
    if (node instanceof HTMLCanvasElement) {
      reach(box);
      own.append(
        svg("image", {
          href: node.toDataURL(),
          x: box.left - origin.left,
          y: box.top - origin.top,
          width: box.width,
          height: box.height,
          preserveAspectRatio: "none",
          "image-rendering": style.imageRendering,
        }),
      );
      return;
    }
    for (const child of node.childNodes) walk(child, own);
  };
  walk(element, made);
  const margin = 12,
    wide = Math.ceil(edges.right - edges.left + 2 * margin),
    high = Math.ceil(edges.bottom - edges.top + 2 * margin),
    x = edges.left - margin,
    y = edges.top - margin;
  const whole = svg(
    "svg",
    { xmlns: SPACE, width: wide, height: high, viewBox: `${x} ${y} ${wide} ${high}` },
    svg("rect", { x, y, width: wide, height: high, fill: palette().paper }),
    made,
  );
  return { text: new XMLSerializer().serializeToString(whole), wide, high };
}

function download(blob, name) {
  const address = URL.createObjectURL(blob),
    link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function saveSvg(element, name) {
  download(new Blob([svgOf(element).text], { type: "image/svg+xml" }), `${name}.svg`);
}

// Save a PNG at twice the size of the drawing, or less if it would exceed a browser's largest canvas.
async function savePng(element, name) {
  const { text, wide, high } = svgOf(element),
    scale = Math.min(2, 16000 / wide, 16000 / high, Math.sqrt(120e6 / (wide * high)));
  const image = await loaded(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`);
  if (!image) return;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(wide * scale);
  canvas.height = Math.round(high * scale);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => blob && download(blob, `${name}.png`), "image/png");
}

function addTools(node, title) {
  const heading = node.querySelector("h2"),
    row = el("div", { class: "heading" });
  heading.replaceWith(row);
  row.append(heading, toolsOf(node, title));
}

// Return the tools beside a section's heading: save its drawings as files, or fill the window with them.
function toolsOf(node, title) {
  const slug = (text) =>
    text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 40) || "look";
  let at = 0;
  const figures = node.figures;
  const chosen = () => figures[at][1]();
  const name = () => [slug(title), slug(figures.length > 1 ? figures[at][0] : node.title_)].join("-");
  const button = (text, label, onclick) =>
    el("button", { type: "button", class: "plain", "aria-label": label, title: label, onclick }, text);
  const several = figures.length > 1 && menu("Figure", figures.map(([text], k) => [k, text]), 0, (k) => (at = k)).node;
  return el(
    "div",
    { class: "tools" },
    several || "",
    button("SVG", `Save this figure as SVG: ${node.title_}`, () => chosen() && saveSvg(chosen(), name())),
    button("PNG", `Save this figure as PNG: ${node.title_}`, () => chosen() && savePng(chosen(), name())),
    button("Lecture", `Lecture, fill the window: ${node.title_}`, () => lecture(node)),
  );
}
