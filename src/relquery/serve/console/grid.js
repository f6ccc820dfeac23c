// The rows of a result. Only those in sight are in the document, so a million rows scroll well.

import { h } from "./dom.js";
import { cell, count, many } from "./format.js";

const HEIGHT = 28; // pixels of a row, as in parts.css
const AROUND = 20; // rows that are drawn above and below those in sight
const SAMPLE = 200; // rows that column widths are made for
const NUMERIC = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|REAL|DECIMAL)/i;

export class Grid {
  constructor(place) {
    this.columns = [];
    this.rows = [];
    this.active = -1;
    this.body = h("tbody");
    this.head = h("thead");
    this.cols = h("colgroup");
    this.table = h("table", {}, this.cols, this.head, this.body);
    this.view = h("div", {
      className: "grid", tabIndex: 0, role: "group",
      "aria-label": "Rows of the result. Arrow keys move, the row is shown below.",
      onscroll: () => this.#draw(), onkeydown: (event) => this.#key(event),
      onclick: (event) => this.#click(event),
    }, this.table);
    this.size = h("p", { className: "hint" });
    this.copy = h("button", { type: "button", id: "copy", onclick: () => this.#copy() },
      "Copy as CSV");
    this.detail = h("dl", { className: "detail", hidden: true, "aria-live": "polite" });
    place.replaceChildren(
      h("div", { className: "row spread" }, this.size, this.copy), this.view, this.detail);
    new ResizeObserver(() => this.#draw()).observe(this.view);
  }

  /** Begin a result. columns: [{name, type}]. */
  begin(columns) {
    this.columns = columns;
    this.rows = [];
    this.active = -1;
    this.detail.hidden = true;
    this.view.scrollTo(0, 0);
    const titles = columns.map(({ name, type }) =>
      h("th", { scope: "col", className: NUMERIC.test(type) ? "number" : "", title: `${name} ${type}` },
        h("span", {}, name), h("small", {}, type)));
    this.head.replaceChildren(h("tr", {}, h("th", { scope: "col", className: "number" }, "#"), ...titles));
    this.#fit();
    this.#draw();
  }

  /** Add rows, lists of values in the order of the columns. */
  add(rows) {
    const isFirst = this.rows.length < SAMPLE;
    for (const row of rows) this.rows.push(row);
    if (isFirst) this.#fit();
    this.#draw();
  }

  /** All rows by RFC 4180; NULL is empty. */
  csv() {
    const quoted = (value) => {
      const text = cell(value) ?? "";
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const names = this.columns.map(({ name }) => name);
    return [names, ...this.rows].map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
  }

  #fit() {
    const sample = this.rows.slice(0, SAMPLE);
    const widths = this.columns.map(({ name, type }, i) => {
      const longest = Math.max(name.length, String(type).length * 0.8,
        ...sample.map((row) => (cell(row[i]) ?? "NULL").length));
      return Math.min(Math.max(longest * 0.92, 5), 44) + 3;
    });
    const all = [6, ...widths];
    this.cols.replaceChildren(...all.map((width) => {
      const col = h("col");
      col.style.width = `${width}ch`;
      return col;
    }));
    this.table.style.minWidth = `${all.reduce((sum, width) => sum + width, 0)}ch`;
  }

  #draw() {
    const first = Math.max(0, Math.floor(this.view.scrollTop / HEIGHT) - AROUND);
    const last = Math.min(this.rows.length,
      Math.ceil((this.view.scrollTop + this.view.clientHeight) / HEIGHT) + AROUND);
    const space = (rows) => {
      const row = h("tr", { "aria-hidden": "true" });
      row.style.height = `${rows * HEIGHT}px`;
      return rows > 0 ? [row] : [];
    };
    const shown = this.rows.slice(first, last).map((row, i) => this.#row(row, first + i));
    this.body.replaceChildren(...space(first), ...shown, ...space(this.rows.length - last));
    this.table.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.size.textContent = `${many(this.rows.length, "row")}, ${many(this.columns.length, "column")}`;
    this.copy.disabled = !this.columns.length;
  }

  #row(values, number) {
    const cells = this.columns.map(({ type }, i) => {
      const text = cell(values[i]);
      if (text === null) return h("td", { className: "null" }, "NULL");
      return h("td", { className: NUMERIC.test(type) ? "number" : "" }, text.slice(0, 300));
    });
    const row = h("tr", { "aria-rowindex": String(number + 2) },
      h("td", { className: "number quiet" }, count(number + 1)), ...cells);
    row.dataset.number = number;
    if (number === this.active) row.className = "active";
    return row;
  }

  #click(event) {
    const row = event.target.closest("tr[data-number]");
    if (row) this.#show(Number(row.dataset.number));
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.view.clientHeight / HEIGHT) - 2);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page,
      Home: -this.rows.length, End: this.rows.length }[event.key];
    if (!step || event.ctrlKey || event.metaKey || !this.rows.length) return;
    event.preventDefault();
    const number = Math.min(Math.max(this.active + step, 0), this.rows.length - 1);
    const top = number * HEIGHT;
    const room = this.view.clientHeight - this.head.offsetHeight - HEIGHT;
    if (top < this.view.scrollTop) this.view.scrollTop = top;
    if (top > this.view.scrollTop + room) this.view.scrollTop = top - room;
    this.#show(number);
  }

  /** The values of one row in full. */
  #show(number) {
    this.active = number;
    this.#draw();
    const values = this.columns.flatMap(({ name, type }, i) => {
      const text = cell(this.rows[number][i]);
      return [h("dt", {}, name, " ", h("small", {}, type)),
        h("dd", { className: text === null ? "null" : "" }, text ?? "NULL")];
    });
    this.detail.replaceChildren(h("dt", {}, "Row"), h("dd", {}, count(number + 1)), ...values);
    this.detail.hidden = false;
  }

  async #copy() {
    await put(this.csv());
    this.copy.textContent = "Copied";
    setTimeout(() => { this.copy.textContent = "Copy as CSV"; }, 1500);
  }
}

/** Put a text into the clipboard, also on a page that was not fetched by HTTPS. */
async function put(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = h("textarea", { value: text, className: "unseen" });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
