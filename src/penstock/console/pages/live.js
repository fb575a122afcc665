/** Live tail: messages of many topics as they are published, with pause and search. */

import { announce, debounce, field, h, replace, setText, throttle } from "../dom.js";
import * as format from "../format.js";
import { follow, Ring } from "../stream.js";
import { headOf, rowOf, VirtualList } from "../virtual.js";
import { failure, facts, payloadView, term, topicLink } from "../widgets.js";

const DRAW_MS = 120;
const CALM_DRAW_MS = 1_000;
const RATE_MS = 1_000;
const RATE_SAMPLES = 5;
const COLUMNS = [["Time", "when"], ["Topic", "name"], ["Payload", "last"], ["Sequence", "count number"]];

export function show(content, context) {
  const given = context.query.getAll("filter");
  const filter = h("input", { value: given.join(", ") || "#", autocomplete: "off", spellcheck: "false", required: true });
  const search = h("input", { type: "search", placeholder: "Text in topic or payload", autocomplete: "off" });
  const tail = new Tail(context);
  const form = h("form", { class: "tools" },
    field("Filter", filter, "+ stands for one level, # for all below; several with commas"),
    h("button", { class: "button primary", text: "Follow" }),
    field("Search", search));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tail.follow(split(filter.value));
    history.replaceState(null, "", `#/live?${new URLSearchParams(split(filter.value).map((each) => ["filter", each]))}`);
  });
  search.addEventListener("input", debounce(() => tail.search(search.value), 150));
  replace(content, form, tail.bar, tail.problem, h("div", { class: "split" }, tail.list.element, tail.detail));
  tail.follow(given.length > 0 ? given : split(filter.value));
}

const split = (text) => text.split(",").map((each) => each.trim()).filter((each) => each !== "");

class Tail {
  #ring = new Ring();
  #matches = null;
  #frozen = null;
  #wanted = "";
  #stop = new AbortController();
  #samples = [];
  #chosen = null;
  #isPaused = false;
  #seenAt = 0;

  constructor(context) {
    this.context = context;
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.draw = throttle(() => this.#drawNow(), isCalm ? CALM_DRAW_MS : DRAW_MS);
    this.list = new VirtualList({
      label: "Messages, the newest first", role: "grid", make: () => rowOf(COLUMNS), head: headOf(COLUMNS),
      show: (row, index) => this.#show(row, this.#at(index)),
      onOpen: (index) => this.#open(index),
      onScroll: () => this.#onScroll(),
    });
    this.state = h("span", { class: "badge plain", role: "status" });
    this.rate = h("span", { class: "figure" });
    this.pause = h("button", { type: "button", class: "button", "aria-pressed": "false", text: "Pause", onclick: () => this.#setPaused(!this.#isPaused) });
    this.newest = h("button", { type: "button", class: "button", hidden: true, onclick: () => this.#toNewest() });
    this.bar = h("div", { class: "bar" }, this.state, this.pause,
      h("button", { type: "button", class: "button", text: "Clear", onclick: () => this.#clear() }), this.newest, this.rate);
    this.problem = h("div");
    this.detail = h("aside", { class: "detail", "aria-label": "Message", hidden: true });
    const timer = setInterval(() => this.#count(), RATE_MS);
    context.signal.addEventListener("abort", () => {
      clearInterval(timer);
      this.#stop.abort();
    });
  }

  /** Follow other filters from now on. */
  follow(filters) {
    this.#stop.abort();
    this.#stop = new AbortController();
    this.#clear();
    replace(this.problem);
    const handlers = { onEvents: (lines) => this.#take(lines), onState: (state, detail) => this.#showState(state, detail) };
    follow(filters, handlers, this.#stop.signal);
  }

  /** Show only messages that have a text in their topic or payload. */
  search(text) {
    this.#wanted = text.toLowerCase();
    const before = this.#frozen;
    const entries = before?.all ?? this.#ring.snapshot();
    this.#matches = this.#wanted === "" ? null : entries.filter((entry) => this.#isWanted(entry)).reverse();
    if (before) this.#frozen = { all: before.all, shown: this.#matches ? [...this.#matches].reverse() : before.all };
    if (this.#wanted !== "") announce(`${format.count(this.#matches.length)} of ${format.count(entries.length)} messages match`);
    this.list.element.scrollTop = 0;
    this.draw();
  }

  #isWanted(entry) {
    const { topic } = entry.message;
    return topic.toLowerCase().includes(this.#wanted) || format.payload(entry.message).text.toLowerCase().includes(this.#wanted);
  }

  #take(lines) {
    for (const line of lines) {
      const entry = this.#ring.push(line);
      if (this.#matches && !this.#frozen && this.#isWanted(entry)) this.#matches.push(entry);
    }
    if (this.#matches && this.#matches.length > this.#ring.limit * 1.2) this.#matches = this.#matches.slice(-this.#ring.limit);
    this.draw();
  }

  #at(index) {
    if (this.#frozen) return this.#frozen.shown[index];
    return this.#matches ? this.#matches[this.#matches.length - 1 - index] : this.#ring.newest(index);
  }

  #drawNow() {
    const size = this.#frozen ? this.#frozen.shown.length : (this.#matches?.length ?? this.#ring.size);
    this.list.refresh(size);
    const missed = this.#ring.total - this.#seenAt;
    this.newest.hidden = this.#frozen === null;
    if (this.#frozen) setText(this.newest, missed > 0 ? `${format.count(missed)} new: show newest` : "Show newest");
  }

  #show(row, entry) {
    if (!entry) return;
    row.setAttribute("aria-selected", String(entry === this.#chosen));
    if (row.entry === entry) return;
    row.entry = entry;
    const { topic, sequence } = entry.message;
    const [when, name, last, count] = row.children;
    const at = new Date(entry.at);
    setText(when, format.localTime(at, false));
    when.title = format.utcTime(at);
    setText(name, topic);
    name.title = topic;
    setText(last, clip(format.payload(entry.message).text));
    setText(count, format.count(sequence));
  }

  /** Keep what is shown as it is: paused, or scrolled away from the newest. */
  #freeze() {
    if (this.#frozen) return;
    const all = this.#ring.snapshot();
    this.#frozen = { all, shown: this.#matches ? [...this.#matches].reverse() : all };
    this.#seenAt = this.#ring.total;
    this.draw();
  }

  #unfreeze() {
    if (!this.#frozen) return;
    this.#frozen = null;
    if (this.#wanted !== "") this.#matches = this.#ring.snapshot().filter((entry) => this.#isWanted(entry)).reverse();
    this.draw();
  }

  #onScroll() {
    if (this.#isPaused) return;
    if (this.list.element.scrollTop > this.list.rowHeight) this.#freeze();
    else this.#unfreeze();
  }

  #setPaused(isPaused) {
    this.#isPaused = isPaused;
    this.pause.setAttribute("aria-pressed", String(isPaused));
    setText(this.pause, isPaused ? "Resume" : "Pause");
    announce(isPaused ? "Paused" : "Resumed");
    if (isPaused) this.#freeze();
    else this.#toNewest();
  }

  #toNewest() {
    if (this.#isPaused) {
      this.#setPaused(false);
      return;
    }
    this.list.element.scrollTop = 0;
    this.#unfreeze();
  }

  #clear() {
    this.#ring.clear();
    if (this.#matches) this.#matches = [];
    this.#frozen = this.#isPaused ? { all: [], shown: [] } : null;
    this.#seenAt = this.#ring.total;
    this.list.element.scrollTop = 0;
    this.draw();
  }

  #count() {
    this.#samples.push([performance.now(), this.#ring.total]);
    if (this.#samples.length > RATE_SAMPLES) this.#samples.shift();
    const [[from, before], [to, now]] = [this.#samples[0], this.#samples.at(-1)];
    const perSecond = to > from ? ((now - before) * 1_000) / (to - from) : 0;
    const kept = format.count(this.#ring.size);
    setText(this.rate, `${format.rate(perSecond)} messages/s, ${format.counted(now, "message")} since it began, the last ${kept} kept here`);
  }

  #showState(state, detail = "") {
    const shown = { connecting: ["Connecting", "plain"], open: ["Live", "good"], waiting: ["Reconnecting", "fair"], ended: ["Ended", "bad"] };
    const [word, kind] = shown[state];
    setText(this.state, word);
    this.state.className = `badge ${kind}`;
    this.state.title = detail;
    if (state === "ended") replace(this.problem, failure({ status: null, message: detail || "The server ended the stream." }));
    else if (state === "waiting" && detail) replace(this.problem, h("p", { class: "muted", text: detail }));
    else if (state === "open") replace(this.problem);
  }

  #open(index) {
    const entry = this.#at(index);
    if (!entry) return;
    this.#freeze();
    this.#chosen = entry;
    this.draw();
    const { topic, sequence, cursor, message_id: id } = entry.message;
    const why = `#/why?${new URLSearchParams({ topic, sequence })}`;
    const at = new Date(entry.at);
    const close = () => {
      this.detail.hidden = true;
      this.#chosen = null;
      this.list.focus(this.list.active);
      if (!this.#isPaused && this.list.element.scrollTop <= this.list.rowHeight) this.#unfreeze();
    };
    replace(this.detail,
      h("div", { class: "heading" }, h("h2", { text: "Message" }), h("button", { type: "button", class: "button quiet", text: "Close", onclick: close })),
      facts([["Topic", topicLink(topic)], [term("sequence", "Sequence"), format.count(sequence)], ["Received here", h("span", { title: format.utcTime(at), text: format.localTime(at) })], ["Message id", id], [term("cursor", "Cursor"), h("code", { text: cursor })]]),
      payloadView(entry.message),
      h("p", {}, h("a", { href: why, text: "Why was it not delivered to a client?" })));
    this.detail.hidden = false;
  }
}

const clip = (text) => (text.length > 400 ? `${text.slice(0, 400)}...` : text);
