// The page: its views, its key, its colours, and the state of the engine once a second.

import { get, key } from "./api.js";
import { startChat } from "./chat.js";
import { at, tabs } from "./dom.js";
import { count, many } from "./format.js";
import { startQueue } from "./queue.js";
import { startSql } from "./sql.js";

const PERIOD = 1000; // milliseconds between two looks at the engine
const LATER = 5000; // after one that failed
const VIEWS = ["sql", "queue", "try"];

function refused(error) {
  if (error.status !== 401) return;
  at("key").open = true;
  at("key").classList.add("wanted");
  at("key-hint").textContent = error.message;
}

const sql = startSql(refused);
const queue = startQueue();
const chat = startChat(refused);

const open = tabs(at("views"), (name) => {
  if (location.hash.slice(1) !== name) history.replaceState(null, "", `#${name}`);
});
const chosen = () => (VIEWS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "sql");
window.addEventListener("hashchange", () => open(chosen()));
open(chosen());

let timer = 0;

/** Look at the engine now, and again while the page can be seen. */
async function look() {
  clearTimeout(timer);
  if (document.visibilityState === "hidden") return;
  let wait = PERIOD;
  try {
    const state = await get("/console/state");
    queue.show(state);
    chat.model(state.models[0]);
    at("facts").textContent = `${state.models[0]}, ${state.policy}, ${count(state.context)} tokens of context, ` +
      `${many(state.requests.open, "open request")}`;
    at("facts").classList.remove("bad");
  } catch (error) {
    wait = LATER;
    queue.fail(error.message);
    at("facts").textContent = error.status === 401 ? "A key is needed" : "The engine cannot be reached";
    at("facts").classList.add("bad");
    refused(error);
  }
  clearTimeout(timer);
  timer = setTimeout(look, wait);
}

function withKey(value) {
  key.set(value);
  at("key").classList.remove("wanted");
  at("key-hint").textContent = "Sent with each request. Forgotten when this tab is closed.";
  at("key").open = false;
  at("key").querySelector("summary").textContent = value ? "Key set" : "Key";
  sql.load();
  look();
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  withKey(at("key-field").value.trim());
});
at("key-forget").addEventListener("click", () => {
  at("key-field").value = "";
  withKey("");
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !at("key").open) return;
  at("key").open = false;
  at("key").querySelector("summary").focus();
});
document.addEventListener("visibilitychange", look);

const narrow = matchMedia("(max-width: 800px)");
const fold = () => { at("side").open = !narrow.matches; };
narrow.addEventListener("change", fold);
fold();

const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
const other = () => (theme() === "dark" ? "light" : "dark");
const name = () => { at("theme").textContent = other() === "dark" ? "Dark" : "Light"; };
at("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = other();
  localStorage.setItem("relquery-theme", theme());
  name();
});
dark.addEventListener("change", name);
name();
withKey(key.get());
