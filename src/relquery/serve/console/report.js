// What a query cost and saved, and what one would cost.

import { bar, h, legend, table } from "./dom.js";
import { count, many, percent, seconds } from "./format.js";

const sum = (stages, name) => stages.reduce((total, stage) => total + (stage[name] || 0), 0);

/** The few figures of a run, for a `dl`. */
export function figures(report, elapsed) {
  const { stages } = report;
  const [prompt, cached] = [sum(stages, "prompt_tokens"), sum(stages, "cached_tokens")];
  const pairs = [
    ["Calls", count(sum(stages, "calls"))],
    ["Prompt tokens", count(prompt)],
    ["Reused", percent(cached, prompt)],
    ["Answer tokens", count(sum(stages, "output_tokens"))],
    ["From ledger", count(sum(stages, "ledger_hits"))],
    ["Time", seconds(report.seconds ?? elapsed)],
  ];
  return pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
}

/** The report of a run by stage, and what its plan saved. plan: of the same query, or null. */
export function drawReport(place, report, plan) {
  const { stages } = report;
  if (!stages.length) {
    place.replaceChildren(h("p", { className: "empty" }, "The query asked the model nothing."));
    return;
  }
  const [prompt, cached] = [sum(stages, "prompt_tokens"), sum(stages, "cached_tokens")];
  const output = sum(stages, "output_tokens");
  const parts = [["reused", cached], ["computed", prompt - cached], ["decoded", output]];
  const words = parts.map(([name, amount]) => [name, `${name} ${count(amount)}`]);
  place.replaceChildren(
    h("h3", {}, "Tokens"),
    bar(parts, words.map(([, said]) => said).join(", ")),
    legend(words),
    h("h3", {}, "Saved"),
    h("ul", { className: "saved" }, ...saved(stages, plan).map((said) => h("li", {}, said))),
    h("h3", {}, "Stages"),
    table("Stages of the run", [["Stage", false], ["Rows", true], ["Calls", true],
      ["From ledger", true], ["Prompt tokens", true], ["Reused", true], ["Answer tokens", true],
      ["Time", true], ["Call", false]],
    stages.map((stage) => [stage.name, count(stage.rows), count(stage.calls),
      count(stage.ledger_hits), count(stage.prompt_tokens),
      percent(stage.cached_tokens, stage.prompt_tokens), count(stage.output_tokens),
      seconds(stage.seconds), h("code", {}, stage.expression || "")])));
}

function saved(stages, plan) {
  const [rows, calls] = [sum(stages, "rows"), sum(stages, "calls")];
  const [known, prompt] = [sum(stages, "ledger_hits"), sum(stages, "prompt_tokens")];
  const cached = sum(stages, "cached_tokens");
  const found = [];
  const same = rows - calls - known;
  if (same > 0) found.push(`${many(same, "row")} shared the answer of an identical input.`);
  if (known > 0) found.push(`${many(known, "answer")} came from the ledger.`);
  if (cached > 0)
    found.push(`${count(cached)} of ${count(prompt)} prompt tokens were reused, not computed.`);
  if (plan && isPlanned(plan)) {
    const [planned, plain] = [expected(plan.stages, "hit_rate"), expected(plan.stages, "plain")];
    if (planned !== null && plain !== null && planned > plain)
      found.push(`EXPLAIN expected ${percent(planned, 1)} of prompt tokens to be reused, and ` +
        `${percent(plain, 1)} with rows and fields in table order.`);
  }
  return found.length ? found : ["Nothing: each row was a prompt of its own."];
}

/** The share of prompt tokens that EXPLAIN expects to be reused; null if it cannot tell. */
function expected(stages, name) {
  const known = stages.filter((stage) => stage.prompt_tokens && typeof stage[name] === "number");
  const tokens = sum(known, "prompt_tokens");
  const hits = known.reduce((total, stage) => total + stage[name] * stage.prompt_tokens, 0);
  return tokens ? hits / tokens : null;
}

/** Whether a plan has stages that ask the model. */
export const isPlanned = (plan) => plan.stages.some((stage) => stage.stage);

/** A plan as EXPLAIN told it: {text, stages}. */
export function drawPlan(place, plan) {
  if (!plan) {
    place.replaceChildren(h("p", { className: "empty" },
      "Explain shows what a query would ask and cost, before it asks anything."));
    return;
  }
  const text = h("pre", { className: "plan", tabIndex: 0 }, plan.text);
  if (!isPlanned(plan)) {
    place.replaceChildren(h("p", { className: "hint" },
      "The query asks the model nothing. This is DuckDB's own plan."), text);
    return;
  }
  const notes = plan.stages.flatMap((stage) =>
    [stage.hint, stage.note].filter(Boolean).map((note) => `${stage.stage}: ${note}`));
  place.replaceChildren(
    stageTable(plan.stages),
    h("ul", { className: "saved hint" }, ...notes.map((note) => h("li", {}, note))),
    h("details", {}, h("summary", {}, "As text"), text));
}

const BOUNDS = { "at most": "≤ ", expected: "≈ " };

function stageTable(stages) {
  const bound = (stage, value) =>
    value === null ? "–" : `${BOUNDS[stage.counts] || ""}${count(value)}`;
  const share = (value) => (typeof value === "number" ? percent(value, 1) : "–");
  return table("Stages of the plan", [["Stage", false], ["Rows", true], ["Calls", true],
    ["From ledger", true], ["Prompt tokens", true], ["Expected hits", true],
    ["In table order", true], ["Time at most", true], ["Asks", false]],
  stages.map((stage) => [stage.stage, bound(stage, stage.rows), bound(stage, stage.calls),
    count(stage.from_ledger), bound(stage, stage.prompt_tokens), share(stage.hit_rate),
    share(stage.plain), seconds(stage.seconds), stage.prompt]));
}
