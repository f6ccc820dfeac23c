// Elements, tabs and notices. Text from outside is only ever set as text.

/** An element. props: properties, attributes, and listeners as `onclick`. */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** The same for SVG; attributes only. */
export function s(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const at = (id) => document.getElementById(id);

/** Tabs of a tablist, moved through with the arrow keys. Returns a function that opens one. */
export function tabs(list, opened = () => {}) {
  const all = [...list.querySelectorAll("[role=tab]")];
  function open(name, focus = false) {
    for (const tab of all) {
      const isOpen = tab.getAttribute("aria-controls") === name;
      tab.setAttribute("aria-selected", String(isOpen));
      tab.tabIndex = isOpen ? 0 : -1;
      at(tab.getAttribute("aria-controls")).hidden = !isOpen;
      if (isOpen && focus) tab.focus();
    }
    opened(name);
  }
  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) open(tab.getAttribute("aria-controls"));
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const shown = all.filter((tab) => !tab.hidden);
    const next = (shown.indexOf(event.target) + step + shown.length) % shown.length;
    open(shown[next].getAttribute("aria-controls"), true);
    event.preventDefault();
  });
  return open;
}

/** A table. columns: [title, isNumber]; rows: texts or elements. */
export function table(caption, columns, rows) {
  const cell = (value, place, tag = "td") => {
    const props = { className: columns[place][1] ? "number" : "" };
    if (tag === "th") props.scope = "col";
    else props["data-label"] = columns[place][0];
    return h(tag, props, value);
  };
  return h("div", { className: "scroll" },
    h("table", { className: "list" },
      h("caption", { className: "unseen" }, caption),
      h("thead", {}, h("tr", {}, ...columns.map(([title], place) => cell(title, place, "th")))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((value, i) => cell(value, i)))))));
}

/** What the three or so colours of a picture mean. parts: [class, words]. */
export function legend(parts) {
  return h("ul", { className: "legend" }, ...parts.map(([name, words]) =>
    h("li", {}, h("span", { className: `swatch ${name}` }), words)));
}

/** Parts of a whole as one bar. parts: [class, amount]. */
export function bar(parts, label, whole = parts.reduce((sum, [, amount]) => sum + amount, 0)) {
  const box = h("div", { className: "bar", role: "img", "aria-label": label, title: label });
  for (const [name, amount] of parts) {
    if (amount <= 0) continue;
    const part = h("span", { className: name });
    part.style.width = `${(100 * amount) / (whole || 1)}%`;
    box.append(part);
  }
  return box;
}
