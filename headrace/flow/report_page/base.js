// SPDX-License-Identifier: Apache-2.0
// Elements, numbers, times and scales: what the other scripts of the page use.
"use strict";

const kSvg = "http://www.w3.org/2000/svg";

function fillElement(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (name.startsWith("aria-")) {
      element.setAttribute(name, String(value));  // "false" is a value there
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
// Texts reach the page as text nodes only: keys and errors may hold any characters.
const make = (tag, attributes, ...children) =>
  fillElement(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) =>
  fillElement(document.createElementNS(kSvg, tag), attributes, children);
const byId = (id) => document.getElementById(id);

const digits = (count) => new Intl.NumberFormat("en-GB", { maximumSignificantDigits: count });
const kThreeDigits = digits(3), kFourDigits = digits(4), kWhole = digits(21);
function numberText(value, format = kFourDigits) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e9 || size < 1e-4)) return value.toExponential(2);
  return size >= 1000 ? kWhole.format(size >= 10000 ? Math.round(value) : Number(value.toPrecision(5)))
    : format.format(value);
}
const shortText = (value) => numberText(value, kThreeDigits);

function durationText(seconds) {
  if (seconds < 0.001) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toPrecision(3).replace(/\.?0+$/, "")} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60) % 60;
  if (whole < 3600) return `${minutes} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${String(minutes).padStart(2, "0")} min`;
}

const percentText = (part, all) => `${Math.round((100 * part) / all)} %`;
const isNumber = (value) => typeof value === "number";

function quantile(sorted, level) {
  const position = level * (sorted.length - 1);
  const low = Math.floor(position);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (position - low) * (sorted[high] - sorted[low]);
}
const ascending = (values) => Float64Array.from(values).sort();
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** About `count` round numbers within [low, high]. */
function roundTicks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  if (!(high - low > 1e-12 * Math.max(Math.abs(low), Math.abs(high)))) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999) || 10);
  const ticks = [];
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.min(Math.floor(high / step + 1e-9) - first, 2 * Math.max(1, count) + 2);
  for (let k = 0; k <= last; ++k) {
    ticks.push(Number(((first + k) * step).toPrecision(12)));
  }
  return ticks;
}

/** Powers of ten in [low, high], and three times them when there are few. */
function decades(low, high) {
  const factors = Math.log10(high / low) > 2.5 ? [1] : [1, 3];
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power) {
    ticks.push(...factors.map((factor) => Number(`${factor}e${power}`)));
  }
  return ticks.filter((tick) => tick >= low && tick <= high);
}

/** Position in pixels of a value; `logarithmic` needs low > 0. */
function makeScale(low, high, from, to, logarithmic = false) {
  const map = logarithmic ? Math.log : (value) => value;
  const span = map(high) - map(low) || 1;
  return (value) => from + ((map(value) - map(low)) / span) * (to - from);
}

// Stamps of a plot's steps, in UTC, and the ticks of its axis.
const kMinute = 60, kHour = 3600, kDay = 86400;
const kTickSeconds = [
  1, 5, 15, 30, kMinute, 5 * kMinute, 15 * kMinute, 30 * kMinute, kHour, 3 * kHour, 6 * kHour,
  12 * kHour, kDay, 2 * kDay, 4 * kDay, 7 * kDay, 14 * kDay, 28 * kDay, 91 * kDay, 365 * kDay,
];
const kMonths = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

function stepDate(plot, index) {
  const start = new Date(plot.start.replace(" ", "T").replace(/Z?$/, "Z"));
  if (plot.stepMonths) {
    start.setUTCMonth(start.getUTCMonth() + index * plot.stepMonths);
    return start;
  }
  return new Date(start.getTime() + index * plot.stepSeconds * 1000);
}
const two = (value) => String(value).padStart(2, "0");
const dayText = (date) => `${date.getUTCDate()} ${kMonths[date.getUTCMonth()]}`;
const clockText = (date) => `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;

function stepText(plot, index) {
  if (!plot.start) return `step ${index + 1}`;
  const date = stepDate(plot, index);
  const day = `${dayText(date)} ${date.getUTCFullYear()}`;
  return plot.stepMonths || plot.stepSeconds >= kDay ? day : `${day}, ${clockText(date)}`;
}

/** [index, text] of about `count` steps of [first, last] that fall on round times. */
function timeTicks(plot, first, last, count) {
  if (!plot.start) {
    return roundTicks(first, last, count).filter(Number.isInteger).map((k) => [k, String(k + 1)]);
  }
  if (plot.stepMonths) {
    const months = [1, 3, 6, 12, 24, 60, 120].find(
      (one) => ((last - first) * plot.stepMonths) / one <= count) || 240;
    return pick(first, last, (k) => {
      const date = stepDate(plot, k);
      const since = date.getUTCFullYear() * 12 + date.getUTCMonth();
      const year = String(date.getUTCFullYear());
      if (since % Math.max(months, plot.stepMonths) >= plot.stepMonths) return null;
      return months >= 12 ? year : `${kMonths[date.getUTCMonth()]} ${year}`;
    });
  }
  const span = (last - first) * plot.stepSeconds;
  const wanted = kTickSeconds.find((one) => span / one <= count) || kTickSeconds.at(-1);
  const unit = Math.max(wanted, plot.stepSeconds);
  const offset = unit >= 7 * kDay ? 4 * kDay : 0;  // weeks start on a Monday; the epoch was a Thursday
  return pick(first, last, (k) => {
    const date = stepDate(plot, k);
    const since = date.getTime() / 1000 - offset;
    if (since % unit >= plot.stepSeconds) return null;
    return unit >= kDay || date.getTime() % (kDay * 1000) === 0 ? dayText(date) : clockText(date);
  });
}
function pick(first, last, textOf) {
  const ticks = [];
  for (let k = first; k <= last; ++k) {
    const text = textOf(k);
    if (text !== null) ticks.push([k, text]);
  }
  return ticks;
}

/** Call `paint(width)` once `element` comes near the window, and again when its width changes. */
const kPaints = new WeakMap();
const kNear = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) {
      kNear.unobserve(entry.target);
      kWidths.observe(entry.target);
    }
  }
}, { rootMargin: "300px" });
const kWidths = new ResizeObserver((entries) => {
  for (const entry of entries) paintNow(entry.target);
});
function paintNow(element) {
  const paint = kPaints.get(element);
  const width = Math.round(element.clientWidth);
  if (paint && width > 0 && paint.width !== width) {
    paint.width = width;
    paint.call(width);
  }
}
function paintWhenNear(element, call) {
  kPaints.set(element, { call, width: 0 });
  kNear.observe(element);
}
addEventListener("beforeprint", () => document.querySelectorAll(".lazy").forEach(paintNow));
