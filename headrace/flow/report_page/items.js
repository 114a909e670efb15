// SPDX-License-Identifier: Apache-2.0
// The items: search, filters, sorting, a table with a detail per row, and a wall of plots.
"use strict";

const kRowsAtOnce = 200, kCardsAtOnce = 60;

class Items {
  constructor(data) {
    this.data = data;
    this.several = new Set(data.items.map((item) => item.activity)).size > 1;
    this.query = "";
    this.filters = new Map();
    this.sorting = { name: null, down: false };
    this.view = "table";
    this.open = new Set();
    this.shown = 0;
    this.columns = this.makeColumns();
    this.texts = new Map(data.items.map((item) => [item, [item.key, item.activity, ...item.labels,
      item.error ? `${item.error.code} ${item.error.message}` : ""].join("\n").toLowerCase()]));
    this.more = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) this.append();
    }, { rootMargin: "600px" });
  }

  makeColumns() {
    const { data } = this;
    const metric = (column) => {
      const at = data.metricNames.indexOf(column.name);
      return { ...column, number: true, value: (item) => item.metrics[at], text: shortText };
    };
    const label = (column, index) => ({ ...column, label: true, value: (item) => item.labels[index] });
    return [
      { name: "key", title: "Item", value: (item) => item.key, natural: true },
      ...(this.several ? [{ name: "activity", title: "Activity", value: (item) => item.activity }] : []),
      { name: "status", title: "Status", value: (item) => item.status },
      ...data.labels.map(label),
      ...data.columns.map(metric),
      { name: "seconds", title: "Time", number: true, value: (item) => item.seconds, text: durationText,
        help: "wall time from start to end" },
      { name: "attempts", title: "Tries", number: true, value: (item) => item.attempts, text: String,
        help: "1: it worked at the first try" },
    ];
  }

  start() {
    byId("items").hidden = false;
    this.makeHead();
    this.makeFilters();
    const search = byId("search");
    search.addEventListener("input", () => {
      this.query = search.value.trim().toLowerCase();
      this.refresh();
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        search.value = this.query = "";
        this.refresh();
      }
    });
    addEventListener("keydown", (event) => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        search.focus();
      }
    });
    const plots = this.data.items.some((item) => item.plot);
    byId("as-plots").parentElement.hidden = !plots;
    byId("as-table").addEventListener("click", () => this.setView("table"));
    byId("as-plots").addEventListener("click", () => this.setView("plots"));
    this.more.observe(byId("more"));
    this.refresh();
  }

  makeHead() {
    const row = make("tr", {}, ...this.columns.map((column) =>
      make("th", { class: column.number ? "number" : null, title: column.help || null, scope: "col",
        "data-name": column.name },
      make("button", { type: "button", onclick: () => this.sortBy(column.name) }, column.title))));
    byId("table").querySelector("thead").append(row);
  }

  makeFilters() {
    const choice = (title, name, values, of) => {
      const counts = new Map();
      this.data.items.forEach((item) => counts.set(of(item), (counts.get(of(item)) || 0) + 1));
      const select = make("select", { id: `filter-${name}` }, make("option", { value: "" }, "all"),
        ...[...counts.keys()].filter((value) => value !== "").sort().map((value) =>
          make("option", { value }, `${value} (${counts.get(value)})`)));
      select.addEventListener("change", () => {
        this.filters.set(name, select.value ? (item) => of(item) === select.value : null);
        this.refresh();
      });
      byId("filters").append(make("label", {}, title, select));
    };
    choice("Status", "status", null, (item) => item.status);
    this.data.labels.forEach((column, index) =>
      choice(column.title, column.name, null, (item) => item.labels[index]));
    if (this.several) choice("Activity", "activity", null, (item) => item.activity);
  }

  /** Show the items of one status, and move there. */
  showStatus(status) {
    const select = byId("filter-status");
    select.value = status;
    select.dispatchEvent(new Event("change"));
    byId("items").scrollIntoView();
  }

  /** Show one item with its detail open. */
  showItem(item) {
    byId("search").value = `"${item.key}"`;
    this.query = `"${item.key.toLowerCase()}"`;
    for (const select of byId("filters").querySelectorAll("select")) select.value = "";
    this.filters.clear();
    this.open.clear();
    this.open.add(item);
    this.setView("table");
    byId("items").scrollIntoView();
  }

  setView(view) {
    this.view = view;
    byId("as-table").setAttribute("aria-pressed", view === "table");
    byId("as-plots").setAttribute("aria-pressed", view === "plots");
    byId("table").hidden = view !== "table";
    byId("plots").hidden = view !== "plots";
    this.refresh();
  }

  sortBy(name) {
    const column = this.columns.find((one) => one.name === name);
    // Numbers are looked up largest first: slowest, least accurate.
    const down = this.sorting.name === name ? !this.sorting.down : Boolean(column.number);
    this.sorting = { name, down };
    this.refresh();
  }

  matching() {
    const filters = [...this.filters.values()].filter(Boolean);
    const whole = /^"(.*)"$/.exec(this.query);  // "H5" in quotes is that key and no other
    const found = this.data.items.filter((item) =>
      (whole ? item.key.toLowerCase() === whole[1] : this.texts.get(item).includes(this.query)) &&
      filters.every((filter) => filter(item)));
    const column = this.columns.find((one) => one.name === this.sorting.name);
    if (!column) {  // an exact key first, else as the run had them
      const exact = (item) => item.key.toLowerCase() === this.query;
      return [...found.filter(exact), ...found.filter((item) => !exact(item))];
    }
    const sign = this.sorting.down ? -1 : 1;
    const order = new Intl.Collator("en", { numeric: true }).compare;
    return found.sort((a, b) => {
      const left = column.value(a), right = column.value(b);
      if (!column.number) return sign * order(left, right);
      if (!isNumber(left) || !isNumber(right)) return isNumber(right) - isNumber(left);
      return sign * (left - right);
    });
  }

  refresh() {
    this.found = this.matching();
    this.shown = 0;
    for (const head of byId("table").querySelectorAll("th")) {
      const own = head.dataset.name === this.sorting.name;
      head.setAttribute("aria-sort", !own ? "none" : this.sorting.down ? "descending" : "ascending");
    }
    const all = this.data.items.length;
    byId("count").textContent = this.found.length === all ? `${all} items`
      : `${this.found.length} of ${all} items`;
    byId("table").querySelector("tbody").replaceChildren();
    byId("plots").replaceChildren();
    this.append();
  }

  append() {
    const count = this.view === "table" ? kRowsAtOnce : kCardsAtOnce;
    const next = this.found.slice(this.shown, this.shown + count);
    this.shown += next.length;
    if (this.view === "table") {
      byId("table").querySelector("tbody").append(...next.flatMap((item) => this.makeRows(item)));
    } else {
      byId("plots").append(...next.map((item) => this.makeCard(item)));
    }
    if (next.length > 0) {  // the observer tells changes only; ask again while the end is in sight
      this.more.unobserve(byId("more"));
      this.more.observe(byId("more"));
    }
  }

  makeRows(item) {
    const twist = make("button", { type: "button", class: "twist", "aria-expanded": this.open.has(item) },
      item.key);
    const row = make("tr", { class: "item", "data-key": item.key }, ...this.columns.map((column) => {
      const value = column.value(item);
      if (column.name === "key") return make("td", { class: "key" }, twist);
      if (column.name === "status") {
        return make("td", {}, make("span", { class: `chip ${value}` }, value));
      }
      return make("td", { class: column.number ? "number" : column.label ? "label" : null },
        column.text ? column.text(value) : value);
    }));
    row.addEventListener("click", () => {
      if (String(getSelection())) return;  // somebody is copying text
      const opened = !this.open.has(item);
      if (opened) {
        this.open.add(item);
        row.after(this.makeDetail(item));
      } else {
        this.open.delete(item);
        row.nextElementSibling.remove();
      }
      twist.setAttribute("aria-expanded", opened);
    });
    return this.open.has(item) ? [row, this.makeDetail(item)] : [row];
  }

  makeDetail(item) {
    const facts = make("div", { class: "facts" });
    const fact = (name, value) => facts.append(make("span", {}, `${name} `, make("b", {}, value)));
    for (const score of this.data.scores) {
      const values = score.methods.map((method) =>
        [method.title, item.metrics[this.data.metricNames.indexOf(method.name)]]);
      if (values.some(([, value]) => isNumber(value))) {
        fact(score.title, values.map(([name, value]) => `${name} ${shortText(value)}`).join(" · "));
      }
    }
    if (item.cpu > 0) fact("CPU", durationText(item.cpu));
    if (item.log) fact("Log", item.log);
    const cell = make("td", { colspan: this.columns.length });
    if (item.error) {
      cell.append(make("p", { class: "message" }, `${item.error.code}: ${item.error.message}`));
    }
    cell.append(facts);
    if (item.plot) cell.append(...this.makeLargePlot(item));
    return make("tr", { class: "detail" }, cell);
  }

  makeLargePlot(item) {
    const horizon = item.plot.median.length, all = item.plot.history.length;
    const spans = [2, 4].map((k) => k * horizon).filter((steps) => steps < all);
    const first = spans.at(-1) || all;
    const figure = forecastFigure(item, first, 320);
    const buttons = [...spans, all].map((steps) => make("button", {
      type: "button", "aria-pressed": steps === first,
      onclick: (event) => {
        event.stopPropagation();
        figure.showHistory(steps);
        buttons.forEach((button) => button.setAttribute("aria-pressed", button === event.currentTarget));
      },
    }, steps === all ? `all ${all}` : String(steps)));
    const legend = plotLegend(item.plot);
    if (buttons.length > 1) {
      legend.append(make("span", { class: "window" }, "steps of history ", ...buttons));
    }
    return [legend, figure];
  }

  makeCard(item) {
    const shownColumns = this.columns.filter((column) => this.data.columns.some((one) =>
      one.name === column.name)).slice(0, 2);
    const open = make("button", { type: "button", class: "link name", onclick: () => this.showItem(item) },
      item.key);
    const notes = [...item.labels.filter(Boolean),
      ...shownColumns.map((column) => `${column.title} ${shortText(column.value(item))}`)];
    const caption = make("figcaption", {}, open, make("span", {},
      item.status === "Succeeded" ? notes.join(" · ") : item.status));
    const body = item.plot ? forecastFigure(item, 3 * item.plot.median.length, 170)
      : make("p", { class: "message" }, item.error ? item.error.message : "no forecast");
    return make("figure", { class: "card" }, caption, body);
  }
}
