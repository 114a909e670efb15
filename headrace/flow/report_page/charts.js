// SPDX-License-Identifier: Apache-2.0
// Histograms and the scatter plot of scores.
"use strict";

const kMethodColours = ["--own", "--other-1", "--other-2", "--other-3"];
const methodColour = (index) => `var(${kMethodColours[Math.min(index, kMethodColours.length - 1)]})`;

function axisBelow(ticks, x, y, textOf) {
  return ticks.map((tick) =>
    draw("g", {},
      draw("line", { class: "axis", x1: x(tick), x2: x(tick), y1: y, y2: y + 4 }),
      draw("text", { x: x(tick), y: y + 17, "text-anchor": "middle" }, textOf(tick))));
}

/** Axis for several sorted samples: logarithmic where they spread widely, else cut at the bulk. */
function histogramAxis(samples) {
  const lowest = Math.min(...samples.map((values) => values[0]));
  const highest = Math.max(...samples.map((values) => values.at(-1)));
  const usual = Math.max(...samples.map((values) => quantile(values, 0.95)));
  const rare = Math.min(...samples.map((values) => quantile(values, 0.05)));
  if (rare > 0 && usual / rare > 40) {
    const low = Math.max(lowest > 0 ? lowest : rare, rare / 10);
    return { logarithmic: true, low, high: highest, cut: false };
  }
  const low = lowest >= 0 ? 0 : lowest;
  const cut = highest > low + (usual - low) * 1.3;
  return { logarithmic: false, low, high: (cut ? low + (usual - low) * 1.08 : highest) || 1, cut };
}

/** [from, to, count] per bin of an axis; the outer bins also take what lies beyond. */
function countBins(values, axis, bins) {
  const there = axis.logarithmic ? Math.log : (value) => value;
  const back = axis.logarithmic ? Math.exp : (value) => value;
  const start = there(axis.low), width = (there(axis.high) - start) / bins || 1;
  const counts = Array.from({ length: bins }, (_, bin) =>
    [back(start + bin * width), back(start + (bin + 1) * width), 0]);
  for (const value of values) {
    const bin = value <= axis.low ? 0 : Math.floor((there(value) - start) / width);
    counts[Math.min(bins - 1, bin)][2] += 1;
  }
  return counts;
}

/** Bars, base line and median of one row; `frame` has left, right, base and the bars' height. */
function histogramRow(row, sorted, axis, frame, x) {
  const bins = Math.max(8, Math.min(40, Math.round((frame.right - frame.left) / 15)));
  const counts = countBins(row.values, axis, bins);
  const most = Math.max(...counts.map(([, , count]) => count));
  const step = (frame.right - frame.left) / bins;
  const bars = counts.map(([from, to, count], bin) => {
    if (count === 0) return null;
    const height = Math.max(1.5, (count / most) * frame.height);
    const range = axis.cut && bin === bins - 1 ? `${shortText(from)} and more`
      : `${shortText(from)} to ${shortText(to)}`;
    return draw("rect", {
      x: frame.left + bin * step + 0.5, y: frame.base - height, width: Math.max(1, step - 1), height,
      fill: row.colour, "fill-opacity": 0.8, rx: 1,
    }, draw("title", {}, `${range}: ${count} ${count === 1 ? "item" : "items"}`));
  });
  const middle = x(Math.min(axis.high, Math.max(axis.low, quantile(sorted, 0.5))));
  return [
    ...bars,
    draw("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.base + 0.5, y2: frame.base + 0.5 }),
    draw("line", { x1: middle, x2: middle, y1: frame.base - frame.height - 4, y2: frame.base + 4,
      stroke: "var(--ink)", "stroke-width": 1.5 }, draw("title", {}, "median")),
  ];
}

/** One histogram per row over a common axis: rows are {title, values, colour}. */
function paintHistograms(element, rows, width, wantedHeight, describe) {
  const shown = rows.filter((row) => row.values.length > 0);
  const sorted = shown.map((row) => ascending(row.values));
  const axis = histogramAxis(sorted);
  const rowHeight = Math.max(74, Math.min(320, (wantedHeight - 24) / shown.length));
  const left = 4, right = width - 6, bottom = shown.length * rowHeight - 8;
  const x = makeScale(axis.low, axis.high, left, right, axis.logarithmic);
  const svg = draw("svg", {
    viewBox: `0 0 ${width} ${bottom + 30}`, role: "img",
    "aria-label": shown.map((row, index) => `${row.title}: ${describe(sorted[index])}`).join("; "),
  });
  shown.forEach((row, index) => {
    const base = (index + 1) * rowHeight - 8, top = index * rowHeight + 14;
    svg.append(
      draw("text", { class: "strong", x: left, y: top, style: "font-weight:600" }, row.title),
      draw("text", { x: right, y: top, "text-anchor": "end" }, describe(sorted[index])),
      ...histogramRow(row, sorted[index], axis, { left, right, base, height: base - top - 12 }, x)
        .filter(Boolean));
  });
  const ticks = axis.logarithmic ? decades(axis.low, axis.high)
    : roundTicks(axis.low, axis.high, width / 90);
  const free = axis.cut ? right - 90 : right + 1;
  svg.append(...axisBelow(ticks.filter((tick) => x(tick) < free), x, bottom, shortText));
  if (axis.cut) {
    svg.append(draw("text", { x: right, y: bottom + 17, "text-anchor": "end" }, "and more"));
  }
  element.replaceChildren(svg);
}

const kScatterMost = 3000;

/** The run's own score against another method's, one dot per item; below the line is better. */
function paintScatter(element, pairs, titles, colour, width, open) {
  const height = Math.min(width, 330), left = 52, bottom = height - 40;
  const values = pairs.flatMap((pair) => [pair.own, pair.other]);
  const sorted = ascending(values);
  const logarithmic = sorted[0] > 0 && sorted.at(-1) / sorted[0] > 30;
  const low = logarithmic ? sorted[0] / 1.15 : Math.min(0, sorted[0]);
  const high = logarithmic ? sorted.at(-1) * 1.15 : sorted.at(-1) * 1.05 || 1;
  const x = makeScale(low, high, left, width - 8, logarithmic);
  const y = makeScale(low, high, bottom, 8, logarithmic);
  const better = pairs.filter((pair) => pair.own < pair.other).length;
  const svg = draw("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${titles.own} against ${titles.other}: lower on ${better} of ${pairs.length} items`,
  });
  const ticks = logarithmic ? decades(low, high) : roundTicks(low, high, 5);
  svg.append(
    draw("path", { class: "axis", d: `M${left},8V${bottom}H${width - 8}` }),
    ...axisBelow(ticks, x, bottom, numberText),
    ...ticks.map((tick) => draw("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" },
      numberText(tick))),
    draw("line", { x1: x(low), y1: y(low), x2: x(high), y2: y(high), stroke: "var(--soft)",
      "stroke-dasharray": "4 4" }),
    draw("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle", class: "strong" },
      titles.other),
    draw("text", { class: "strong", "text-anchor": "middle",
      transform: `translate(11,${bottom / 2}) rotate(-90)` }, titles.own));
  const every = Math.ceil(pairs.length / kScatterMost);
  pairs.filter((pair, index) => index % every === 0).forEach((pair) => {
    const won = pair.own < pair.other;
    svg.append(draw("circle", {
      cx: x(pair.other), cy: y(pair.own), r: 3.2, fill: won ? "var(--own)" : colour,
      "fill-opacity": 0.55, style: "cursor:pointer", onclick: () => open(pair.item),
    }, draw("title", {}, `${pair.item.key}: ${numberText(pair.own)} against ${numberText(pair.other)}`)));
  });
  element.replaceChildren(svg);
}
