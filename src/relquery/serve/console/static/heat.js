// All prompts of a run in the order sent, a line each: tokens reused, computed and decoded.

import { at, h, legend, s } from "./dom.js";
import { count, many, percent } from "./format.js";

const PARTS = ["reused", "computed", "decoded"];
const MOST = 20_000; // prompts of a stage that are drawn
const BEGINNING = 600; // characters of a prompt that are shown

/** Draw them. stages: [{name, prompts: [{text, reused, computed, decoded}]}]. */
export function drawHeat(place, stages) {
  const full = stages.filter((stage) => stage.prompts.length);
  if (!full.length) {
    place.replaceChildren(h("p", { className: "empty" },
      "No prompts were sent. Every answer was known, or the query asks the model nothing."));
    return;
  }
  const widest = Math.max(...full.flatMap((stage) => stage.prompts.map(tokens)), 1);
  place.replaceChildren(
    legend([["reused", "reused from the cache"], ["computed", "computed"], ["decoded", "decoded"]]),
    ...full.map((stage) => drawStage(stage, widest)));
}

const tokens = (prompt) => PARTS.reduce((sum, part) => sum + (prompt[part] || 0), 0);

function drawStage(stage, widest) {
  const prompts = stage.prompts.slice(0, MOST);
  const height = prompts.length > 150 ? 4 : prompts.length > 40 ? 8 : 12;
  const cursor = s("rect", { class: "cursor", x: 0, width: widest, height, y: -height });
  const picture = s("svg", {
    viewBox: `0 0 ${widest} ${prompts.length * height}`, preserveAspectRatio: "none",
    height: prompts.length * height, "aria-hidden": "true",
  }, ...PARTS.map((part) => s("path", { class: part, d: path(prompts, part, height) })), cursor);
  const about = h("div", { className: "about", "aria-live": "polite" },
    h("p", { className: "hint" }, "Point at a line, or use the arrow keys, to read a prompt."));
  let active = -1;
  const show = (number) => {
    if (number === active || number < 0 || number >= prompts.length) return;
    active = number;
    cursor.setAttribute("y", number * height);
    about.replaceChildren(...describe(prompts[number], number));
  };
  const box = h("div", {
    className: "heat", tabIndex: 0, role: "group",
    "aria-label": `${stage.name}: ${many(stage.prompts.length, "prompt")}. Arrow keys move.`,
    onmousemove: (event) => {
      const { top } = picture.getBoundingClientRect();
      show(Math.floor((event.clientY - top) / height));
    },
    onkeydown: (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20,
        Home: -prompts.length, End: prompts.length }[event.key];
      if (!step) return;
      event.preventDefault();
      const number = Math.min(Math.max(active + step, 0), prompts.length - 1);
      const middle = number * height - box.clientHeight / 2;
      if (number * height < box.scrollTop || number * height > box.scrollTop + box.clientHeight - height)
        box.scrollTop = middle;
      show(number);
    },
  }, picture);
  box.addEventListener("focus", () => show(Math.max(active, 0)));
  return h("section", { className: "stage" },
    h("h3", {}, stage.name, " ", h("span", { className: "hint" }, summary(stage, widest))),
    h("div", { className: "heat-pair" }, box, about));
}

/** The rectangles of one part, right of those of the parts before. */
function path(prompts, part, height) {
  const before = PARTS.slice(0, PARTS.indexOf(part));
  const thick = height - 1;
  return prompts.map((prompt, row) => {
    const x = before.reduce((sum, each) => sum + (prompt[each] || 0), 0);
    return prompt[part] ? `M${x} ${row * height}h${prompt[part]}v${thick}h${-prompt[part]}z` : "";
  }).join("");
}

function summary(stage, widest) {
  const sums = PARTS.map((part) => stage.prompts.reduce((sum, each) => sum + (each[part] || 0), 0));
  const more = stage.prompts.length > MOST ? `, the first ${count(MOST)} drawn` : "";
  return `${many(stage.prompts.length, "prompt")}${more}, ` +
    `${percent(sums[0], sums[0] + sums[1])} of prompt tokens reused; full width is ${count(widest)} tokens`;
}

function describe(prompt, number) {
  const figures = PARTS.flatMap((part) => [
    h("dt", {}, h("span", { className: `swatch ${part}` }), part), h("dd", {}, count(prompt[part]))]);
  const text = prompt.text || "";
  return [
    h("h4", {}, `Prompt ${count(number + 1)}`),
    h("dl", { className: "counts" }, ...figures),
    text
      ? h("pre", {}, text.length > BEGINNING ? `${text.slice(0, BEGINNING)} ...` : text)
      : h("p", { className: "hint" }, "The text of this prompt was not kept."),
  ];
}
