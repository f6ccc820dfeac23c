// All prompts of a run in the order sent, a line each: tokens reused, computed and decoded.

import { h, legend, s } from "./dom.js";
import { count, many, percent } from "./format.js";

const PARTS = ["reused", "computed", "decoded"];
const REUSED = 240; // characters of a prompt's reused part that are shown
const COMPUTED = 600; // and of the rest
const ANSWER = 300;

/**
 * Draw them. stages: [{stage, sent, prompts}], where a prompt has its text, its answer, its tokens
 * (reused, computed, decoded), and how many characters of its text were reused, if that is known.
 */
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
  const { prompts } = stage;
  const height = prompts.length > 150 ? 4 : prompts.length > 40 ? 8 : 12;
  const cursor = s("rect", { class: "cursor", x: 0, width: widest, height, visibility: "hidden" });
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
    cursor.setAttribute("visibility", "visible");
    about.replaceChildren(...describe(prompts[number], number));
  };
  const box = h("div", {
    className: "heat", tabIndex: 0, role: "group",
    "aria-label": `${stage.stage}: ${many(prompts.length, "prompt")}. Arrow keys move.`,
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
    h("h3", {}, stage.stage, " ", h("span", { className: "hint" }, summary(stage, widest))),
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
  const drawn = stage.prompts.length;
  const of = stage.sent > drawn ? `the first ${count(drawn)} of ` : "";
  return `${of}${many(stage.sent, "prompt")}, ` +
    `${percent(sums[0], sums[0] + sums[1])} of prompt tokens reused; full width is ${count(widest)} tokens`;
}

function describe(prompt, number) {
  const figures = PARTS.flatMap((part) => [
    h("dt", {}, h("span", { className: `swatch ${part}` }), part), h("dd", {}, count(prompt[part]))]);
  return [
    h("h4", {}, `Prompt ${count(number + 1)}`),
    h("dl", { className: "counts" }, ...figures),
    h("pre", {}, ...marked(prompt)),
    h("p", { className: "hint" }, "Answer"),
    h("pre", {}, cut(prompt.answer ?? prompt.error ?? "", ANSWER)),
  ];
}

/** The text, with its reused part marked and shortened in the middle: many prompts begin alike. */
function marked({ text, reused_characters: reused }) {
  const [known, rest] = [text.slice(0, reused ?? 0), text.slice(reused ?? 0)];
  const shown = known.length > REUSED
    ? `${known.slice(0, REUSED / 2)} [... ${count(known.length - REUSED)} characters ...] ${known.slice(-REUSED / 2)}`
    : known;
  return [...(shown ? [h("mark", { title: "reused" }, shown)] : []), cut(rest, COMPUTED)];
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most)} ...` : text);
