// SPDX-License-Identifier: Apache-2.0
// The plot of one item: history, what came, median and bands, with a cursor for pointer and keys.
"use strict";

/** Lowest and highest value to show: all of the data; bands may add 60 % of its span a side. */
function valueRange(plot, first) {
  const data = [...plot.history.slice(first), ...plot.actual, ...plot.median].filter(isNumber);
  const low = Math.min(...data), high = Math.max(...data);
  const span = high - low || Math.abs(high) || 1;
  const lows = plot.bands.flatMap((band) => band.low).filter(isNumber);
  const highs = plot.bands.flatMap((band) => band.high).filter(isNumber);
  const bottom = Math.max(Math.min(low, ...lows), low - 0.6 * span);
  const top = Math.min(Math.max(high, ...highs), high + 0.6 * span);
  return [bottom - 0.03 * (top - bottom || span), top + 0.03 * (top - bottom || span)];
}

/** Path through the numbers of `values`; gaps stay gaps. */
function linePath(values, offset, x, y) {
  let path = "", pen = "M";
  values.forEach((value, index) => {
    if (isNumber(value)) {
      path += `${pen}${x(offset + index).toFixed(1)},${y(value).toFixed(1)}`;
      pen = "L";
    } else {
      pen = "M";
    }
  });
  return path;
}

function bandPath(band, offset, x, y) {
  const points = band.low.map((low, index) => [offset + index, low, band.high[index]])
    .filter(([, low, high]) => isNumber(low) && isNumber(high));
  if (points.length === 0) return "";
  const there = points.map(([at, , high]) => `${x(at).toFixed(1)},${y(high).toFixed(1)}`);
  const back = points.reverse().map(([at, low]) => `${x(at).toFixed(1)},${y(low).toFixed(1)}`);
  return `M${[...there, ...back].join("L")}Z`;
}

let plotCount = 0;

/** Draw `plot` into `element`: the last `shown` steps of the history, then the horizon. */
function paintForecast(element, item, shown, width, height) {
  const plot = item.plot, past = plot.history.length;
  const first = Math.max(0, past - shown), last = past + plot.median.length - 1;
  const [low, high] = valueRange(plot, first);
  const left = 56, right = width - 6, top = 8, bottom = height - 26;
  const x = makeScale(first, Math.max(last, first + 1), left, right);
  const y = makeScale(low, high, bottom, top);
  const clip = `clip-${++plotCount}`;
  const cut = x(past - 0.5);
  const svg = draw("svg", {
    viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img",
    "aria-label": `Forecast of ${item.key}: ${plot.median.length} steps after ${past} of history. ` +
      "Left and right arrows move the cursor.",
  },
  draw("clipPath", { id: clip }, draw("rect", { x: left, y: top, width: right - left,
    height: bottom - top })));
  for (const tick of roundTicks(low, high, height / 50)) {
    svg.append(
      draw("line", { class: "axis", x1: left, x2: right, y1: y(tick), y2: y(tick) }),
      draw("text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, numberText(tick)));
  }
  for (const [index, text] of timeTicks(plot, first, last, (right - left) / 85)) {
    svg.append(
      draw("line", { class: "axis", x1: x(index), x2: x(index), y1: bottom, y2: bottom + 4 }),
      draw("text", { x: Math.min(x(index), right - 14), y: bottom + 18, "text-anchor": "middle" }, text));
  }
  const joined = [plot.history.at(-1), ...plot.actual];
  svg.append(draw("g", { "clip-path": `url(#${clip})` },
    ...plot.bands.map((band) => draw("path", { class: "band", d: bandPath(band, past, x, y) })),
    draw("line", { class: "cut", x1: cut, x2: cut, y1: top, y2: bottom }),
    draw("path", { class: "history", d: linePath(plot.history.slice(first), first, x, y) }),
    draw("path", { class: "median", d: linePath(plot.median, past, x, y) }),
    plot.actual.length > 0
      ? draw("path", { class: "actual", d: linePath(joined, past - 1, x, y) }) : null));
  addCursor(element, svg, item, { first, last, x, left, right, top, bottom, width });
  element.replaceChildren(svg);
}

function cursorText(item, index) {
  const plot = item.plot, step = index - plot.history.length;
  const lines = [make("div", {}, stepText(plot, index))];
  const add = (name, value) =>
    lines.push(make("div", {}, `${name} `, make("b", {}, value)));
  if (step < 0) {
    add("value", numberText(plot.history[index]));
    return lines;
  }
  if (isNumber(plot.actual[step])) add("actual", numberText(plot.actual[step]));
  add("median", numberText(plot.median[step]));
  for (const band of [...plot.bands].reverse()) {
    add(`${band.percent} %`, `${numberText(band.low[step])} … ${numberText(band.high[step])}`);
  }
  return lines;
}

function addCursor(element, svg, item, frame) {
  const line = draw("line", { class: "cursor", y1: frame.top, y2: frame.bottom, visibility: "hidden" });
  svg.append(line);
  let at = item.plot.history.length, tip = null;
  const hide = () => {
    line.setAttribute("visibility", "hidden");
    if (tip) tip.remove();
    tip = null;
  };
  const show = (index) => {
    at = Math.max(frame.first, Math.min(frame.last, index));
    const place = frame.x(at);
    line.setAttribute("x1", place);
    line.setAttribute("x2", place);
    line.setAttribute("visibility", "visible");
    if (!tip) element.append(tip = make("div", { class: "tip", role: "status" }));
    tip.replaceChildren(...cursorText(item, at));
    const over = place > frame.width / 2;
    tip.style.left = over ? "auto" : `${place + 12}px`;
    tip.style.right = over ? `${frame.width - place + 12}px` : "auto";
    tip.style.top = `${frame.top}px`;
  };
  svg.addEventListener("pointermove", (event) => {
    const share = (event.clientX - svg.getBoundingClientRect().left - frame.left) /
      (frame.right - frame.left);
    show(Math.round(frame.first + share * (frame.last - frame.first)));
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) {
      event.preventDefault();
      show(at + move * (event.shiftKey ? 10 : 1));
    } else if (event.key === "Escape") {
      hide();
    }
  });
}

function plotLegend(plot) {
  const line = (colour, text) =>
    make("span", {}, make("i", { style: `border-color:var(${colour})` }), text);
  // Bands lie on one another: the narrowest shows the opacity of all of them.
  const opacity = (layers) => 1 - (1 - 0.16) ** layers;
  return make("div", { class: "legend" },
    line("--past", "history"),
    plot.actual.length > 0 ? line("--ink", "actual") : null,
    line("--own", "median"),
    ...plot.bands.map((band, index) => make("span", {},
      make("i", { class: "fill", style: `opacity:${opacity(index + 1)}` }), `${band.percent} %`))
      .reverse());
}

/** A plot that draws itself when it comes into sight. */
function forecastFigure(item, shown, height) {
  const place = make("div", { class: "plot lazy", style: `min-height:${height}px` });
  let history = shown;
  const paint = (width) => paintForecast(place, item, history, width, height);
  paintWhenNear(place, paint);
  place.showHistory = (steps) => {
    history = steps;
    if (place.clientWidth > 0) paint(Math.round(place.clientWidth));
  };
  return place;
}
