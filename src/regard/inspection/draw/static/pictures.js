// Pictures, dimmed where weights are small; places with large weights stay bright.

function loaded(address) {
  return new Promise((done) => {
    if (!address) {
      done(null);
      return;
    }
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = () => done(null);
    image.src = address;
  });
}

// Return grey and opacity (0 to 255) of the veil over a place: dark at weight 0; thin and light at weight 1, so that it
// shows on dark pictures too. Brightness grows with the square root of the weight, as the colour bar shows: a picture
// has so many places that most weights are small.
function veilOf(part) {
  const bright = Math.sqrt(Math.min(1, Math.max(0, part)));
  return [Math.round(12 + 243 * bright), Math.round(180 * (1 - bright) + 46 * bright)];
}

// Return the colour bar of pictures; `map` returns the weights of the current picture, or null.
function veilScale(map) {
  return scaleBar(() => {
    const weights = map(),
      most = weights ? largest(weights) : 1;
    return { top: topOf(most), colours: "veil", note: weights ? stretchedTo(most) : "" };
  });
}

// Return the label of a small picture: its largest weight, if colours are relative to it.
function largestNamed(map) {
  return stretching.on ? el("span", { class: "faint" }, ` (to ${endText(largest(map))})`) : "";
}

// Draw a picture and dim it where weights are small; interpolate the weights from the grid to the picture's size.
function spotlight(canvas, image, weights, [height, width], { size, place = null, picked = null, smooth = true }) {
  const ratio = image ? image.naturalHeight / image.naturalWidth : height / width,
    context = canvas.getContext("2d");
  canvas.width = size;
  canvas.height = Math.max(1, Math.round(size * ratio));
  const wide = canvas.width,
    high = canvas.height;
  context.imageSmoothingEnabled = !image || image.naturalWidth > size;
  if (image) context.drawImage(image, 0, 0, wide, high);
  else {
    context.fillStyle = "#f5f7fa";
    context.fillRect(0, 0, wide, high);
  }
  if (weights) {
    const top = topOf(largest(weights)),
      mask = document.createElement("canvas");
    // Pad the grid with its edge values, so that smoothing reaches the edge of the picture.
    mask.width = width + 2;
    mask.height = height + 2;
    const small = mask.getContext("2d"),
      image_ = small.createImageData(width + 2, height + 2);
    for (let y = 0; y < height + 2; y++)
      for (let x = 0; x < width + 2; x++) {
        const own = Math.min(height - 1, Math.max(0, y - 1)) * width + Math.min(width - 1, Math.max(0, x - 1));
        const [grey, veil] = veilOf(weights[own] / top);
        image_.data.set([grey, grey, grey, veil], 4 * (y * (width + 2) + x));
      }
    small.putImageData(image_, 0, 0);
    context.imageSmoothingEnabled = smooth;
    context.imageSmoothingQuality = "high";
    context.drawImage(mask, 1, 1, width, height, 0, 0, wide, high);
  }
  const box = (at) => [
    ((at % width) * wide) / width,
    (Math.floor(at / width) * high) / height,
    wide / width,
    high / height,
  ];
  const thin = Math.max(1.5, size / 160);
  if (picked !== null && picked >= 0) {
    const [x, y, w, h] = box(picked),
      r = Math.min(w, h) * 0.32;
    for (const [colour, line] of [
      ["#000", thin * 2.4],
      ["#fff", thin],
    ]) {
      context.beginPath();
      context.arc(x + w / 2, y + h / 2, r, 0, 7);
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.stroke();
    }
  }
  if (place !== null) {
    const [x, y, w, h] = box(place);
    for (const [colour, line] of [
      ["#000", thin * 2.6],
      ["#fff", thin * 1.1],
    ]) {
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.strokeRect(x + 1, y + 1, w - 2, h - 2);
    }
  }
}

// Return the weights on the grid, averaged over the given pieces.
function mapOf(view, head, pieces) {
  const values = weightsOf(view, head),
    map = new Float32Array(view.m);
  for (const piece of pieces) for (let j = 0; j < view.m; j++) map[j] += values[piece * view.m + j] / pieces.length;
  return map;
}

// Draw one row as small maps, one for each head of all layers.
function headMaps(views, draw, onhead) {
  const made = views.flatMap((view) =>
    Array.from({ length: view.heads }, (_, head) => {
      const canvas = el("canvas", { "aria-hidden": "true" });
      const node = el(
        "button",
        {
          type: "button",
          class: "multiple",
          "aria-label": `${view.title}, head ${head + 1}`,
          title: `${view.title}, head ${head + 1}`,
          onclick: () => onhead(view, head),
        },
        canvas,
      );
      return { view, head, canvas, node };
    }),
  );
  if (made.length < 2) return null;
  const heads = Math.max(...views.map((view) => view.heads));
  roving(
    made.map((each) => each.node),
    { columns: () => heads },
  );
  return {
    node: el(
      "div",
      { class: "maps", style: { "--heads": Math.min(heads, 8) }, role: "group", "aria-label": "layers and heads" },
      made.map((each) => each.node),
    ),
    draw: (chosen, head) =>
      made.forEach((each) => {
        draw(each.canvas, each.view, each.head);
        each.node.setAttribute(
          "aria-pressed",
          String(each.view === chosen && (chosen.heads === 1 || each.head === head)),
        );
      }),
  };
}
