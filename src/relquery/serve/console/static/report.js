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
  const inOrder = plan ? sum(plan.stages, "table_order_cached_tokens") : 0;
  if (inOrder > 0)
    found.push(`In table order, EXPLAIN expected ${count(inOrder)} reused tokens.`);
  return found.length ? found : ["Nothing: each row was a prompt of its own."];
}

/** A plan as EXPLAIN told it: {text, stages}. */
export function drawPlan(place, plan) {
  if (!plan) {
    place.replaceChildren(h("p", { className: "empty" },
      "Explain shows what a query would ask and cost, before it asks anything."));
    return;
  }
  const stages = plan.stages || [];
  const text = h("pre", { className: "plan" }, plan.text || "");
  place.replaceChildren(
    ...(stages.length ? [stageTable(stages)] : []),
    stages.length
      ? h("details", {}, h("summary", {}, "As text"), text)
      : text);
}

function stageTable(stages) {
  const hits = (stage) =>
    stage.cached_tokens !== undefined && stage.cached_tokens !== null
      ? percent(stage.cached_tokens, stage.prompt_tokens)
      : percent(stage.hit_rate ?? 0, stage.hit_rate === null || stage.hit_rate === undefined ? 0 : 1);
  return table("Stages of the plan", [["Stage", false], ["Rows", true], ["Calls", true],
    ["Prompt tokens", true], ["Expected hits", true], ["Time", true]],
  stages.map((stage) => [stage.name ?? stage.stage, count(stage.rows), count(stage.calls),
    count(stage.prompt_tokens), hits(stage), seconds(stage.seconds)]));
}
