/**
 * Messages as they are published: a stream of events that is read by `fetch`, and a bounded buffer for them.
 *
 * Unlike `EventSource`, a refusal has its status and text here, and messages are not parsed before they are shown,
 * so that thousands a second cost little.
 */

import { CallError, link, parse, path, refusal } from "./api.js";

const RETRY_MS = 1_000;
const MAX_RETRY_MS = 15_000;
const SILENCE_MS = 45_000;

/**
 * Follow filters until the signal is aborted; reconnects by itself.
 * @param {string[]} filters
 * @param {object} handlers
 * @param {(lines: string[]) => void} handlers.onEvents JSON of events, as many as came together
 * @param {(state: "connecting" | "open" | "waiting" | "ended", detail?: string) => void} handlers.onState
 * @param {number} [handlers.last] newest messages to begin with
 * @param {AbortSignal} signal
 */
export async function follow(filters, { onEvents, onState, last = 0 }, signal) {
  let wait = RETRY_MS;
  let newest = last;
  while (!signal.aborted) {
    onState("connecting");
    try {
      const end = await readOnce(filters, newest, onEvents, () => {
        wait = RETRY_MS;
        newest = 0;
        onState("open");
      }, signal);
      if (signal.aborted) return;
      if (end && !end.retryable) {
        onState("ended", end.detail);
        return;
      }
      onState("waiting", end?.code === "quota-exceeded" ? "This browser could not keep up; messages were skipped." : (end?.detail ?? ""));
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof CallError && error.status >= 400 && error.status < 500 && error.status !== 429) {
        onState("ended", error.message);
        return;
      }
      onState("waiting", error instanceof CallError ? error.message : "The connection was lost.");
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(wait * 2, MAX_RETRY_MS);
  }
}

async function readOnce(filters, last, onEvents, onOpen, signal) {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  const headers = { Accept: "text/event-stream", "X-Requested-With": "penstock-console" };
  const either = AbortSignal.any([signal, silence.signal]);
  try {
    let response;
    try {
      response = await fetch(path("/api/v1/events", { filter: filters, last: last || null }), { headers, signal: either, cache: "no-store" });
    } catch (error) {
      if (!signal.aborted) link.lost();
      throw error;
    }
    if (!response.ok) throw refusal(response, await response.text());
    onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const blocks = new Blocks();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return null;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      const { events, end } = blocks.feed(value);
      if (events.length > 0) onEvents(events);
      if (end) return end;
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

/** Blocks of an event stream: text in, JSON of messages out. */
class Blocks {
  #rest = "";

  /** @returns {{events: string[], end: object | null}} */
  feed(text) {
    const whole = this.#rest + text;
    const until = whole.lastIndexOf("\n\n");
    if (until < 0) {
      this.#rest = whole;
      return { events: [], end: null };
    }
    this.#rest = whole.slice(until + 2);
    const events = [];
    let end = null;
    for (const block of whole.slice(0, until).split("\n\n")) {
      const at = block.indexOf("data: ");
      if (at < 0) continue;
      const stop = block.indexOf("\n", at);
      const data = block.slice(at + 6, stop < 0 ? undefined : stop);
      if (block.startsWith("event: end") || block.includes("\nevent: end")) end = JSON.parse(data);
      else if (!block.startsWith("event: ") && !block.includes("\nevent: ") && data.length > 2) events.push(data);
    }
    return { events, end };
  }
}

/** One message of a buffer; it is parsed when it is first looked at. */
class Entry {
  #text;
  #message = null;

  constructor(number, text) {
    this.number = number;
    this.at = Date.now();
    this.#text = text;
    this.length = text.length;
  }

  get message() {
    if (this.#message === null) {
      try {
        this.#message = parse(this.#text);
      } catch {
        this.#message = { topic: "", data: this.#text, sequence: null };
      }
      this.#text = null;
    }
    return this.#message;
  }
}

/** Ring of the newest messages, limited by number and by characters. */
export class Ring {
  #entries = [];
  #head = 0;
  #length = 0;

  constructor(limit = 5_000, limitLength = 24_000_000) {
    this.limit = limit;
    this.limitLength = limitLength;
    this.total = 0;
  }

  get size() {
    return this.#entries.length - this.#head;
  }

  push(text) {
    this.total += 1;
    const entry = new Entry(this.total, text);
    this.#entries.push(entry);
    this.#length += entry.length;
    while (this.size > this.limit || (this.#length > this.limitLength && this.size > 1)) {
      this.#length -= this.#entries[this.#head].length;
      this.#entries[this.#head] = undefined;
      this.#head += 1;
    }
    if (this.#head > this.limit) {
      this.#entries = this.#entries.slice(this.#head);
      this.#head = 0;
    }
    return entry;
  }

  /** By age: 0 is the newest. */
  newest(index) {
    return this.#entries[this.#entries.length - 1 - index];
  }

  /** A copy, the newest first. */
  snapshot() {
    return this.#entries.slice(this.#head).reverse();
  }

  clear() {
    this.#entries = [];
    this.#head = 0;
    this.#length = 0;
  }
}
