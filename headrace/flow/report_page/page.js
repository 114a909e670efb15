// SPDX-License-Identifier: Apache-2.0
// Put the page together: head, summary, accuracy, failures, times, activities, items.
"use strict";

const kListMost = 10;

function showHead(data) {
  byId("title").append(data.title, make("span", { class: `chip ${data.status}` }, data.status));
  const ended = data.ended ? `, ended ${data.ended}` : ", not ended when this was written";
  byId("about").textContent = `Run ${data.run} of ${data.document} · started ${data.started}${ended}`;
  byId("written").textContent = `Written ${data.written}. Times are UTC. This file needs no network.`;
  if (data.error) {
    byId("run-error").hidden = false;
    byId("run-error").textContent =
      `${data.error.target ? `${data.error.target}: ` : ""}${data.error.message} (${data.error.code})`;
  }
}

function showSummary(data) {
  const { items } = data;
  const failed = items.filter((item) => item.status === "Failed").length;
  const done = items.filter((item) => item.status === "Succeeded").length;
  const tile = (label, value, note, bad) => byId("summary").append(
    make("div", { class: `tile${bad ? " bad" : ""}${value.length > 40 ? " text" : value.length > 16 ? " long" : ""}` }, make("div", { class: "label" }, label),
      make("div", { class: "value" }, value), note ? make("div", { class: "note" }, note) : null));
  if (items.length > 0) {
    tile("Items succeeded", `${done} of ${items.length}`,
      data.seconds > 0 ? `${shortText(items.length / data.seconds)} items a second` : "");
    tile("Items failed", String(failed), failed > 0 ? "see below" : "", failed > 0);
  }
  tile("Duration", durationText(data.seconds), (data.ended ? "wall time" : "so far") +
    (data.idle > 0 ? `, without ${durationText(data.idle)} between stop and resume` : ""));
  const cpu = items.reduce((sum, item) => sum + item.cpu, 0);
  if (cpu > 0) tile("CPU time of items", durationText(cpu), `${shortText(cpu / data.seconds)} cores busy on average`);
  data.facts.forEach((fact) => tile(fact.label, fact.value, fact.note));
}

function scorePairs(data, score, other) {
  const own = data.metricNames.indexOf(score.methods[0].name);
  const at = data.metricNames.indexOf(score.methods[other].name);
  return data.items.map((item) => ({ item, own: item.metrics[own], other: item.metrics[at] }))
    .filter((pair) => isNumber(pair.own) && isNumber(pair.other));
}

function showScore(data, score, items) {
  const rows = score.methods.map((method, index) => {
    const at = data.metricNames.indexOf(method.name);
    return { title: method.title, colour: methodColour(index),
      values: data.items.map((item) => item.metrics[at]).filter(isNumber) };
  });
  if (rows[0].values.length === 0) return;
  const histogram = make("div", { class: "lazy" });
  paintWhenNear(histogram, (width) => paintHistograms(histogram, rows, width, 330,
    (sorted) => `median ${shortText(quantile(sorted, 0.5))} · mean ${shortText(mean(sorted))}`));
  const panel = make("div", { class: "panel score" },
    make("header", {}, make("h3", {}, score.title), make("p", {}, score.help)),
    make("figure", {}, histogram));
  if (score.methods.length > 1) panel.append(scatterFigure(data, score, items));
  byId("scores").append(panel);
}

function scatterFigure(data, score, items) {
  const place = make("div", { class: "lazy", style: "min-height:260px" });
  const said = make("span", {});
  const choice = make("select", { "aria-label": "Compare with" }, ...score.methods.slice(1).map(
    (method, index) => make("option", { value: index + 1 }, `against ${method.title}`)));
  const paint = () => {
    const other = Number(choice.value);
    const pairs = scorePairs(data, score, other);
    const better = pairs.filter((pair) => pair.own < pair.other).length;
    said.textContent = pairs.length ? `lower on ${better} of ${pairs.length} (${percentText(better, pairs.length)})` : "";
    if (place.clientWidth > 0 && pairs.length > 0) {
      paintScatter(place, pairs, { own: score.methods[0].title, other: score.methods[other].title },
        methodColour(other), Math.round(place.clientWidth), (item) => items.showItem(item));
    }
  };
  choice.addEventListener("change", paint);
  paintWhenNear(place, paint);
  return make("figure", {}, make("figcaption", {}, said, choice), place);
}

function showAccuracy(data, items) {
  const scores = data.scores.filter((score) => scorePairs(data, score, 0).length > 0);
  if (scores.length === 0) return;
  byId("accuracy").hidden = false;
  const [first] = scores;
  const told = first.methods.slice(1).flatMap((method, index) => {
    const pairs = scorePairs(data, first, index + 1);
    if (pairs.length === 0) return [];
    const better = pairs.filter((pair) => pair.own < pair.other).length;
    const behind = pairs.filter((pair) => pair.own > pair.other).length;
    return [`${index > 0 ? "; " : ""}than ${method.title} on `, make("b", {}, `${better} of ${pairs.length} items`),
      ` (worse on ${behind})`];
  });
  if (told.length > 0) {
    byId("verdict").append(`By ${first.title}, ${first.methods[0].title} is better `, ...told, ".");
  }
  scores.forEach((score) => showScore(data, score, items));
}

/** Errors that differ only in figures and quoted names count as one kind. */
const errorKind = (error) => `${error.code} ${error.message.replace(/"[^"]*"|'[^']*'|\d+/g, "#")}`;

function showFailures(data, items) {
  const failed = data.items.filter((item) => item.status === "Failed");
  if (failed.length === 0) return;
  byId("failures").hidden = false;
  const kinds = new Map();
  failed.forEach((item) => {
    const kind = item.error ? errorKind(item.error) : "";
    if (!kinds.has(kind)) kinds.set(kind, []);
    kinds.get(kind).push(item);
  });
  const rows = [...kinds.values()].sort((a, b) => b.length - a.length).slice(0, 50).map((same) => {
    const link = (item) => make("button", { type: "button", class: "link", onclick: () => items.showItem(item) }, item.key);
    const some = same.slice(0, kListMost).flatMap((item, index) => [index > 0 ? ", " : "", link(item)]);
    const rest = same.length - kListMost;
    const error = same[0].error || { code: "", message: "no error was recorded; see the log" };
    return make("tr", {}, make("td", { class: "number" }, String(same.length)),
      make("td", {}, ...some, rest > 0 ? ` and ${rest} more` : null),
      make("td", {}, make("div", { class: "message", style: "margin:0" }, error.message),
        make("span", { class: "same" }, error.code, same.length > 1 ? " · the first of its kind" : "")));
  });
  byId("failure-list").append(
    make("div", { class: "scroll" }, make("table", {},
      make("thead", {}, make("tr", {}, make("th", { class: "number" }, "Items"), make("th", {}, "Which"), make("th", {}, "Error"))),
      make("tbody", {}, ...rows))),
    make("p", {}, make("button", { type: "button", onclick: () => items.showStatus("Failed") },
      `Show all ${failed.length} in the table`)));
}

function showTimes(data, items) {
  const timed = data.items.filter((item) => item.seconds > 0);
  if (timed.length < 2) return;
  byId("times").hidden = false;
  const place = make("div", { class: "lazy" });
  byId("time-histogram").append(place);
  const rows = [{ title: "Items", colour: "var(--own)", values: timed.map((item) => item.seconds) }];
  paintWhenNear(place, (width) => paintHistograms(place, rows, width, 350, (sorted) =>
    `median ${durationText(quantile(sorted, 0.5))} · 95 % within ${durationText(quantile(sorted, 0.95))}`));
  const slowest = [...timed].sort((a, b) => b.seconds - a.seconds).slice(0, kListMost);
  byId("slowest").append(make("table", {}, make("tbody", {}, ...slowest.map((item) => make("tr", {},
    make("td", { class: "key" }, make("button", { type: "button", class: "link", onclick: () => items.showItem(item) }, item.key)),
    make("td", { style: "width:70%" }, make("div", { class: "track", style: "min-width:60px" },
      make("div", { class: "bar", style: `width:${(100 * item.seconds) / slowest[0].seconds}%` }))),
    make("td", { class: "number" }, durationText(item.seconds)))))));
}

function showActivities(data) {
  const end = Math.max(data.seconds, 1e-9);
  const rows = data.activities.map((activity) => make("tr", {},
    make("td", {}, activity.path, make("div", { class: "same" },
      activity.type + (activity.items > 0 ? `, ${activity.items} items` : ""))),
    make("td", {}, make("span", { class: `chip ${activity.status}` }, activity.status),
      activity.error ? make("div", { class: "message" }, activity.error.message) : null),
    make("td", { style: "width:40%" }, make("div", { class: "track" }, activity.seconds > 0
      ? make("div", { class: "bar", style: `margin-left:${(100 * activity.started) / end}%;` +
          `width:${Math.min(100, (100 * activity.seconds) / end)}%` }) : null)),
    make("td", { class: "number" }, activity.seconds > 0 ? durationText(activity.seconds) : "–")));
  byId("activities").append(
    make("thead", {}, make("tr", {}, make("th", {}, "Activity"), make("th", {}, "Status"),
      make("th", {}, "When"), make("th", { class: "number" }, "Time"))),
    make("tbody", {}, ...rows));
  if (data.parameters.length > 0) {
    byId("parameters").hidden = false;
    byId("parameters").querySelector("dl").append(...data.parameters.flatMap(([name, value]) =>
      [make("dt", {}, name), make("dd", {}, value)]));
  }
}

function startTheme() {
  const modes = ["system", "light", "dark"], prefersDark = matchMedia("(prefers-color-scheme: dark)");
  let mode = 0;
  const apply = () => {
    const dark = modes[mode] === "dark" || (mode === 0 && prefersDark.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    byId("theme").textContent = `Theme: ${modes[mode]}`;
  };
  byId("theme").addEventListener("click", () => {
    mode = (mode + 1) % modes.length;
    apply();
  });
  prefersDark.addEventListener("change", apply);
  apply();
}

(() => {
  startTheme();
  const data = JSON.parse(byId("data").textContent);
  const items = new Items(data);
  showHead(data);
  showSummary(data);
  showAccuracy(data, items);
  showFailures(data, items);
  showTimes(data, items);
  showActivities(data);
  if (data.items.length > 0) {
    items.start();
    const wanted = decodeURIComponent(location.hash.slice(1));
    const item = data.items.find((one) => one.key === wanted);
    if (item) items.showItem(item);
  }
})();
