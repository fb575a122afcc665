/**
 * Calls of the server's HTTP API, and the state of the connection to it.
 */

const HEADERS = { "X-Requested-With": "penstock-console", Accept: "application/json" };
const TIMEOUT_MS = 20_000;

/** A refused or failed call: `status` is 0 if the server could not be reached. */
export class CallError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** What is known of the server; the shell listens to `change`. */
class Link extends EventTarget {
  /** Since when the server cannot be reached; null if it can. */
  lostSince = null;

  seen() {
    if (this.lostSince === null) return;
    this.lostSince = null;
    this.dispatchEvent(new Event("change"));
  }

  lost() {
    this.lostSince ??= new Date();
    this.dispatchEvent(new Event("change"));
  }

  loggedOut() {
    this.dispatchEvent(new Event("login"));
  }

  /** Let every poller try at once. */
  retry() {
    this.dispatchEvent(new Event("retry"));
  }
}

export const link = new Link();

/** A path with its query: null and empty values are left out, lists are repeated. */
export function path(base, query = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") parameters.append(name, each);
    }
  }
  const text = parameters.toString();
  return text ? `${base}?${text}` : base;
}

/**
 * GET a path as JSON.
 * @throws {CallError}
 */
export const get = (where, { signal } = {}) => call("GET", where, { signal });

/**
 * Call the server.
 * @param {string} method
 * @param {string} where
 * @param {{body?: any, text?: string, signal?: AbortSignal, isLogin?: boolean}} [options] `body` is sent as JSON, `text`
 *   as the JSON that it is
 * @throws {CallError}
 */
export async function call(method, where, { body, text, signal, isLogin = false } = {}) {
  const sent = text ?? (body === undefined ? undefined : JSON.stringify(body));
  const headers = sent === undefined ? HEADERS : { ...HEADERS, "Content-Type": "application/json" };
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  const either = signal ? AbortSignal.any([signal, timeout]) : timeout;
  let response;
  let received;
  try {
    response = await fetch(where, { method, headers, body: sent, signal: either, credentials: "same-origin", cache: "no-store" });
    received = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    link.lost();
    throw new CallError(0, "unreachable", "The server cannot be reached.");
  }
  link.seen();
  if (response.ok) return received === "" ? null : parse(received);
  throw refusal(response, received, isLogin);
}

/** The error of a refused response; a 401 also asks for a login. */
export function refusal(response, received, isLogin = false) {
  let problem = {};
  try {
    problem = JSON.parse(received);
  } catch {
    // Not a problem document: the status says enough.
  }
  const detail = typeof problem.detail === "string" ? problem.detail : "";
  if (response.status === 401 && !isLogin) link.loggedOut();
  const said = { 401: "Your login has ended.", 403: `Not allowed: ${detail || "your user has no right to this."}` };
  const message = isLogin ? detail : (said[response.status] ?? detail);
  return new CallError(response.status, problem.code ?? "", message || `The server responded ${response.status}.`);
}

const LONG_NUMBER = /\d{16}/;

/** Parse JSON; whole numbers that a browser cannot hold stay as they are written. */
export function parse(text) {
  if (!LONG_NUMBER.test(text) || !JSON.rawJSON) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? JSON.rawJSON(context.source)
      : value);
}

/** A topic or a client id as a part of a path: slashes stay. */
export const inPath = (name) => name.split("/").map(encodeURIComponent).join("/");

const LEVEL_OF_PATH = /(^|\/)\.{1,2}(\/|$)/;

/** Address of a topic's messages; a name that no path can hold goes into the query. */
export function messagesPath(topic, query) {
  const isAwkward = LEVEL_OF_PATH.test(topic) || /[\u0000-\u001f\u007f]/.test(topic);
  return isAwkward ? path("/api/v1/messages", { topic, ...query }) : path(`/api/v1/topics/${inPath(topic)}/messages`, query);
}

/** Health of the server; one that is unhealthy responds 503 with the same fields. */
export async function health() {
  try {
    const response = await fetch("/health", { cache: "no-store", signal: AbortSignal.timeout(10_000) });
    const told = await response.json();
    link.seen();
    return told;
  } catch {
    link.lost();
    throw new CallError(0, "unreachable", "The server cannot be reached.");
  }
}

/**
 * Poll until a page is left: now, and `ms` after each end. It rests while the tab is hidden.
 * @param {number} ms
 * @param {(signal: AbortSignal) => Promise<void>} act
 * @param {AbortSignal} signal ends it
 * @param {(error: Error) => void} [onError]
 * @returns {() => void} polls at once
 */
export function poll(ms, act, signal, onError = () => {}) {
  let timer = 0;
  let isRunning = false;
  const run = async () => {
    clearTimeout(timer);
    if (isRunning || signal.aborted) return;
    if (document.hidden) return;
    isRunning = true;
    try {
      await act(signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof CallError)) console.error(error);
      onError(error);
    }
    isRunning = false;
    if (!signal.aborted) timer = setTimeout(run, link.lostSince ? Math.max(ms, 2_000) : ms);
  };
  document.addEventListener("visibilitychange", run, { signal });
  link.addEventListener("retry", run, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  run();
  return run;
}
