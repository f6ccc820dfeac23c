// The queue as it is now: open relQueries, the cache, and the last two minutes.

import { at, bar, h, legend, s } from "./dom.js";
import { count, many, percent, seconds } from "./format.js";

const KEPT = 120; // samples that the lines show
const HEADS = ["relQuery", "Tenant", "Requests", "Waited", "Core", "Tail", "Remaining"];
const RIGHT = ["Waited", "Core", "Tail", "Remaining"];

export function startQueue() {
  const parts = {
    numbers: h("dl", { className: "figures" }),
    lines: h("div", { className: "lines" }),
    cache: h("div"),
    open: h("div"),
  };
  at("queue").append(
    parts.numbers, parts.lines,
    h("section", {}, h("h2", {}, "Cache"), parts.cache),
    h("section", {}, h("h2", {}, "Open relQueries"),
      legend([["decoded", "answered"], ["computed", "running"], ["idle", "waiting"]]), parts.open));
  parts.numbers.append(h("div", {}, h("dt", {}, "Engine"), h("dd", {}, "Loading")));
  const history = [];
  return {
    show: (state) => {
      const last = history.at(-1);
      history.push(sample(state, last));
      if (history.length > KEPT) history.shift();
      draw(parts, state, history);
    },
    /** The state cannot be had now, and why. */
    fail: (message) => {
      history.length = 0;
      parts.lines.replaceChildren();
      parts.cache.replaceChildren();
      parts.numbers.replaceChildren();
      parts.open.replaceChildren(h("p", { className: "notice" }, message));
    },
  };
}

/** A moment. tokens: of all answers so far; a smaller number means that the server was restarted. */
function sample(state, last) {
  const { total } = state.tokens;
  const passed = last ? state.now - last.now : 0;
  const rate = passed > 0 ? Math.max(0, total - last.total) / passed : 0;
  return { now: state.now, total, rate, open: state.requests.open };
}

function draw(parts, state, history) {
  const now = history.at(-1);
  const figures = [["Open relQueries", count(state.queries.length) + (state.more ? " of more" : "")],
    ["Waiting requests", count(state.requests.waiting)], ["Running requests", count(state.requests.running)],
    ["Answers so far", count(state.tokens.answers)], ["Reused so far", percent(state.tokens.cached, state.tokens.prompt)]];
  parts.numbers.replaceChildren(...figures.map(([name, value]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  parts.lines.replaceChildren(
    line("Tokens per second", history.map((each) => each.rate), count(now.rate)),
    line("Open requests", history.map((each) => each.open), count(now.open)));
  parts.cache.replaceChildren(...cache(state.cache));
  parts.open.replaceChildren(state.queries.length
    ? queries(state.queries)
    : h("p", { className: "empty" }, "Nothing is open. What is being answered appears here."));
}

/** A small line of the last samples, the newest at the right. */
function line(title, values, now) {
  const top = Math.max(...values, 1);
  const [width, height] = [KEPT - 1, 40];
  const left = KEPT - values.length;
  const points = values.map((value, i) =>
    `${left + i},${(height - 1 - ((height - 3) * value) / top).toFixed(1)}`);
  const fill = `${left},${height} ${points.join(" ")} ${width},${height}`;
  return h("figure", { className: "line" },
    h("figcaption", {}, title, " ", h("strong", {}, now), " ",
      h("span", { className: "hint" }, `at most ${count(Math.max(...values))} in two minutes`)),
    s("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `${title}: now ${now}` },
    s("polygon", { points: fill }), s("polyline", { points: points.join(" ") })));
}

function cache({ tokens, held, cached, free }) {
  if (held === null) { // the rest would tell of other tenants
    return [h("p", { className: "notice" }, `${count(tokens)} tokens, which all tenants share.`)];
  }
  const parts = [["computed", held, "held by running requests"], ["reused", cached, "cached"],
    ["idle", free, "free"]];
  const words = parts.map(([name, amount, said]) =>
    [name, `${said} ${count(amount)} (${percent(amount, tokens)})`]);
  return [bar(parts, `Of ${count(tokens)} tokens: ${words.map(([, said]) => said).join(", ")}`, tokens),
    legend(words)];
}

function queries(list) {
  const row = (query) => [
    `${query.number}`,
    query.tenant || "–",
    requests(query),
    seconds(query.waited), seconds(query.core), seconds(query.tail),
    query.estimate === null ? "not known" : seconds(query.estimate),
  ];
  return h("table", { className: "list open" },
    h("caption", { className: "unseen" }, "Open relQueries, by arrival"),
    h("thead", {}, h("tr", {}, ...HEADS.map((title) => h("th",
      { scope: "col", className: RIGHT.includes(title) ? "number" : "" }, title)))),
    h("tbody", {}, ...list.map((query) => h("tr", {}, ...row(query).map((value, i) => h("td",
      { "data-label": HEADS[i], className: RIGHT.includes(HEADS[i]) ? "number" : "" }, value))))));
}

function requests({ requests: all, answered, running, waiting }) {
  const words = `${count(answered)} answered, ${count(running)} running, ${count(waiting)} waiting`;
  return h("div", { className: "requests" },
    bar([["decoded", answered], ["computed", running], ["idle", waiting]], `${many(all, "request")}: ${words}`, all),
    h("span", { className: "hint" }, words));
}
