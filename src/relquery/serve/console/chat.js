// The Try view: one message, and the answer as it is written.

import { lines, post } from "./api.js";
import { at, h } from "./dom.js";
import { count, many, seconds } from "./format.js";

export function startChat(refused) {
  const parts = {
    system: h("textarea", { id: "try-system", rows: 2 }),
    message: h("textarea", { id: "try-message", rows: 4 }),
    tokens: h("input", { id: "try-tokens", type: "number", min: 1, max: 100000, value: 64 }),
    warmth: h("input", { id: "try-warmth", type: "number", min: 0, max: 2, step: 0.1, value: 0 }),
    send: h("button", { className: "primary", type: "submit", id: "send" }, "Send ", h("kbd", {}, "Ctrl Enter")),
    stop: h("button", { type: "button", id: "try-stop", disabled: true }, "Stop"),
    status: h("p", { className: "status", id: "try-status", role: "status" }),
    answer: h("div", { className: "answer", id: "answer", "aria-live": "polite" },
      h("p", { className: "hint" }, "The answer appears here.")),
  };
  const view = { ...parts, model: "", running: null, refused };
  const field = (words, input) => h("div", { className: "field" }, h("label", { htmlFor: input.id }, words), input);
  const form = h("form", {
    className: "ask",
    onsubmit: (event) => { event.preventDefault(); send(view); },
    onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(view); }
    },
  },
  field("System message, may be empty", parts.system), field("Message", parts.message),
  h("div", { className: "row" }, field("Most tokens", parts.tokens), field("Temperature", parts.warmth)),
  h("div", { className: "row actions" }, parts.send, parts.stop, parts.status));
  parts.stop.addEventListener("click", () => view.running?.abort());
  at("try").append(form, h("section", {}, h("h2", {}, "Answer"), parts.answer));
  return { model: (name) => { view.model = name; } };
}

async function send(view) {
  const message = view.message.value;
  if (view.running) return;
  if (!message.trim()) { view.message.focus(); view.status.textContent = "Write a message first."; return; }
  const system = view.system.value.trim() ? [{ role: "system", content: view.system.value }] : [];
  const body = {
    model: view.model, stream: true, stream_options: { include_usage: true },
    messages: [...system, { role: "user", content: message }],
    max_tokens: Number(view.tokens.value), temperature: Number(view.warmth.value),
  };
  view.running = new AbortController();
  busy(view, true);
  const began = performance.now();
  const elapsed = () => (performance.now() - began) / 1000;
  const text = document.createTextNode("");
  view.answer.replaceChildren(text);
  view.status.textContent = "Waiting";
  try {
    const usage = await read(await post("/v1/chat/completions", body, view.running.signal), view, text);
    view.status.textContent = told(usage, elapsed());
    if (!text.data) view.answer.replaceChildren(h("p", { className: "hint" }, "The answer is empty."));
  } catch (error) {
    if (error.name === "AbortError") view.status.textContent = `Stopped after ${seconds(elapsed())}`;
    else {
      view.status.textContent = "";
      view.answer.append(h("p", { className: "notice", role: "alert" }, error.message));
      view.refused(error);
    }
  } finally {
    view.running = null;
    busy(view, false);
  }
}

/** Write the answer as it comes; returns its usage. */
async function read(response, view, text) {
  let usage = null;
  for await (const line of lines(response)) {
    const data = line.replace(/^data: ?/, "");
    if (data === "[DONE]") break;
    const event = JSON.parse(data);
    if (event.error) throw new Error(event.error.message);
    usage = event.usage || usage;
    const piece = event.choices[0]?.delta.content || "";
    if (piece) { text.data += piece; view.status.textContent = "Writing"; }
  }
  return usage;
}

function told(usage, elapsed) {
  if (!usage) return seconds(elapsed);
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  return `${many(usage.prompt_tokens, "prompt token")}, ${count(cached)} of them reused, ` +
    `${many(usage.completion_tokens, "answer token")} in ${seconds(elapsed)}`;
}

function busy(view, isBusy) {
  view.send.disabled = isBusy;
  view.stop.disabled = !isBusy;
}
