// The SQL view: tables at the side, a query, and what came of it.

import { get, lines, post } from "./api.js";
import { at, h, table, tabs } from "./dom.js";
import { cell, count, many, seconds } from "./format.js";
import { Grid } from "./grid.js";
import { drawHeat } from "./heat.js";
import { drawPlan, drawReport, figures, isPlanned } from "./report.js";

const RECORDED = 1000; // prompts of each stage that are kept
const TEXT = /^(VARCHAR|TEXT)/i;

export function startSql(refused) {
  const open = tabs(at("result-tabs"));
  const grid = new Grid(at("rows"));
  const view = { open, grid, refused, plan: null, planned: "", ran: "", running: null };
  drawPlan(at("plan"), null);
  at("run").addEventListener("click", () => run(view));
  at("explain").addEventListener("click", () => explain(view));
  at("stop").addEventListener("click", () => view.running?.abort());
  at("query").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    run(view);
  });
  return { load: () => loadTables(refused) };
}

async function loadTables(refused) {
  try {
    const { data } = await get("/v1/tables");
    showTables(data);
  } catch (error) {
    at("tables").replaceChildren(h("p", { className: "hint" }, error.message));
    refused(error);
  }
}

function showTables(tables) {
  if (!tables.length) {
    at("tables").replaceChildren(h("p", { className: "hint" },
      "No tables. relquery serve --table NAME=FILE registers one."));
  } else {
    at("tables").replaceChildren(...tables.map((each, place) =>
      h("details", { className: "table", open: place === 0 },
        h("summary", {}, path(each), h("small", {}, many(each.rows, "row"))),
        h("ul", { className: "plain" }, ...each.columns.map(({ name, type }) =>
          h("li", {}, h("button", {
            type: "button", className: "column", title: `Insert ${name}`, onclick: () => insert(ident(name)),
          }, h("span", {}, name), h("small", {}, type))))))));
  }
  at("examples").replaceChildren(...examples(tables).map(([title, query]) =>
    h("li", {}, h("button", {
      type: "button", className: "example", onclick: () => { at("query").value = query; at("query").focus(); },
    }, title))));
}

const ident = (name) => (/^[A-Za-z_]\w*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

/** The name of a table in SQL. */
const path = ({ schema, name }) =>
  schema && schema !== "main" ? `${ident(schema)}.${ident(name)}` : ident(name);

/** Queries to begin with, made from the tables. */
function examples(tables) {
  return tables.slice(0, 4).flatMap(({ columns, ...table }) => {
    const name = path(table);
    const texts = columns.filter(({ type }) => TEXT.test(type)).map((column) => column.name);
    if (!texts.length) return [[`First rows of ${name}`, `SELECT *\nFROM ${name}\nLIMIT 20`]];
    const [text, other] = [texts[0], texts.find((each) => /title|name/i.test(each)) || texts.at(-1)];
    return [
      [`Filter ${name}`,
        `SELECT ${ident(other)}, ${ident(text)}\nFROM (FROM ${name} LIMIT 60)\n` +
        `WHERE AI_FILTER('Is {${text}} positive?')`],
      [`Classify ${name}`,
        `SELECT AI_CLASSIFY(${ident(text)}, ['positive', 'negative']) AS mood, count(*) AS rows\n` +
        `FROM (FROM ${name} LIMIT 60)\nGROUP BY mood`],
    ];
  });
}

function insert(text) {
  const field = at("query");
  field.setRangeText(text, field.selectionStart, field.selectionEnd, "end");
  field.focus();
}

/** Do something that Stop ends; errors are shown. */
async function guarded(view, word, task) {
  const query = at("query").value.trim();
  if (view.running) return;
  if (!query) {
    at("query").focus();
    say("Write a query first.");
    return;
  }
  const began = performance.now();
  const elapsed = () => (performance.now() - began) / 1000;
  view.running = new AbortController();
  at("notice").hidden = true;
  busy(true);
  const ticking = setInterval(() => say(`${word}, ${seconds(elapsed())}`), 100);
  say(word);
  try {
    const said = await task(query, view.running.signal, elapsed);
    clearInterval(ticking);
    say(said);
  } catch (error) {
    clearInterval(ticking);
    if (error.name === "AbortError") say(`Stopped after ${seconds(elapsed())}`);
    else {
      say("");
      complain(error.message);
      view.refused(error);
    }
  } finally {
    view.running = null;
    busy(false);
  }
}

function run(view) {
  return guarded(view, "Running", async (query, signal, elapsed) => {
    begin(view, query);
    view.ran = query;
    const found = { rows: 0, report: null, prompts: null, errors: [] };
    const body = { query, stream: true, record: RECORDED };
    for await (const line of lines(await post("/v1/sql", body, signal)))
      take(view, JSON.parse(line), found, elapsed);
    at("progress").hidden = true;
    return `${many(found.rows, "row")} in ${seconds(elapsed())}`;
  });
}

function begin(view, query) {
  at("progress").replaceChildren();
  at("empty").hidden = true;
  at("results").hidden = true;
  at("figures").hidden = true;
  drawErrors([]);
  view.grid.begin([]);
  at("report").replaceChildren();
  at("prompts").replaceChildren();
  if (view.planned !== query) {
    view.plan = null;
    drawPlan(at("plan"), null);
  }
}

/** One line of the answer. */
function take(view, line, found, elapsed) {
  switch (line.type) {
    case "progress": return progress(line);
    case "columns":
      view.grid.begin(line.columns);
      at("results").hidden = false;
      return view.open("rows");
    case "rows":
      found.rows += line.rows.length;
      view.grid.add(line.rows);
      return undefined;
    case "report":
      at("figures").replaceChildren(...figures(line.report, elapsed()));
      at("figures").hidden = false;
      return drawReport(at("report"), line.report, view.plan);
    case "errors": return drawErrors(line.errors);
    case "recording": return drawHeat(at("prompts"), line.recording);
    case "error": throw new Error(line.error.message);
    default: return undefined;
  }
}

function progress({ stage, answered, total }) {
  at("progress").hidden = false;
  const id = `stage-${stage}`;
  let row = [...at("progress").children].find((each) => each.dataset.stage === id);
  if (!row) {
    row = h("div", {}, h("span", {}, stage),
      h("progress", { "aria-label": `Answers of ${stage}` }), h("span", { className: "number" }));
    row.dataset.stage = id;
    at("progress").append(row);
  }
  const [, meter, words] = row.children;
  if (total) meter.max = total;
  if (total) meter.value = answered;
  words.textContent = total ? `${count(answered)} of ${count(total)}` : count(answered);
}

function explain(view) {
  return guarded(view, "Explaining", async (query, signal) => {
    const ask = async (body) => (await post("/v1/sql/explain", { query, ...body }, signal)).json();
    const plan = await ask({});
    // What the model reuses if rows and fields are sent as they are.
    const plain = isPlanned(plan) ? await ask({ order: "original" }) : null;
    if (plain) plan.stages.forEach((stage, i) => { stage.plain = plain.stages[i]?.hit_rate; });
    if (view.ran !== query) begin(view, query); // what is shown is of another query
    [view.plan, view.planned] = [plan, query];
    drawPlan(at("plan"), plan);
    at("empty").hidden = true;
    at("results").hidden = false;
    view.open("plan");
    return isPlanned(plan) ? many(plan.stages.length, "stage") : "It asks the model nothing";
  });
}

function drawErrors(errors) {
  at("tab-errors").textContent = errors.length ? `Errors (${count(errors.length)})` : "Errors";
  at("tab-errors").classList.toggle("bad", errors.length > 0);
  if (!errors.length) {
    at("errors").replaceChildren(h("p", { className: "empty" }, "Every row has its values."));
    return;
  }
  at("errors").replaceChildren(
    h("p", { className: "hint" }, "These values are missing: NULL in the result. Rows are counted " +
      "from 0 in the input of the first stage, and are not rows of the result."),
    table("Values that are missing", [["Stage", false], ["Row", true], ["Why", false], ["Input", false]],
      errors.map((each) => [each.stage, count(each.row), each.error,
        h("code", {}, (cell(each.inputs) ?? "").slice(0, 200))])));
}

const say = (words) => { at("status").textContent = words; };

function busy(isBusy) {
  at("run").disabled = at("explain").disabled = isBusy;
  at("stop").disabled = !isBusy;
  at("sql").setAttribute("aria-busy", String(isBusy));
}

function complain(message) {
  at("progress").hidden = true;
  at("notice").textContent = message;
  at("notice").hidden = false;
}
