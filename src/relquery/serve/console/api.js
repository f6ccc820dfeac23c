// Requests to the server, with the key of this tab.

const KEY = "relquery-key";

export const key = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** What the server refused. status: 0 where it did not answer. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** The response. Throws ApiError, and AbortError where `signal` says to stop. */
async function ask(path, options) {
  const headers = { ...options.headers };
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is it running?", 0);
  }
  if (!response.ok) throw new ApiError(await why(response), response.status);
  return response;
}

async function why(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered with status ${response.status}.`;
  }
}

export const get = async (path) => (await ask(path, {})).json();

export const post = (path, body, signal) =>
  ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

/** The lines of a response as they come, without empty ones. */
export async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      const parts = (left + (value || "")).split("\n");
      left = done ? "" : parts.pop();
      yield* parts.filter((line) => line.trim());
      if (done) return;
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The connection has ended before the answer was complete.", 0);
  } finally {
    reader.cancel().catch(() => {});
  }
}
