/** One topic: its newest messages, its retained value, and a plot of its numbers. */

import { call, get, messagesPath, path, poll } from "../api.js";
import { Chart } from "../charts.js";
import { field, h, reconcile, replace, setText, table, time } from "../dom.js";
import * as format from "../format.js";
import { badge, clientLink, confirm, facts, failure, notify, nothing, payloadView, term, topicHref } from "../widgets.js";

const POLL_MS = 1_000;
const FIRST = 100;
const PAGE = 200;
const SHOWN = 50;
const POINTS = 1_000;

export function show(content, context) {
  const topic = context.rest;
  context.title(topic);
  replace(context.heading, crumbs(topic));
  new TopicPage(content, context, topic);
}

/** The levels of a name, each a link. */
function crumbs(topic) {
  const levels = topic.split("/");
  return levels.flatMap((level, index) => {
    const text = level || "(empty)";
    const isLast = index === levels.length - 1;
    const part = isLast ? h("span", { text }) : h("a", { href: topicHref(levels.slice(0, index + 1).join("/")), text });
    return index === 0 ? [part] : [h("span", { class: "muted", text: "/" }), part];
  });
}

class TopicPage {
  #messages = [];
  #points = [];
  #next = null;
  #isPaused = false;
  #chosen = null;
  #field = "";

  constructor(content, context, topic) {
    this.context = context;
    this.topic = topic;
    this.facts = h("div");
    this.retained = h("section", { "aria-label": "Retained value" });
    this.problem = h("div");
    this.note = h("span", { class: "muted", role: "status" });
    this.pause = h("button", { type: "button", class: "button", "aria-pressed": "false", text: "Pause", onclick: () => this.#setPaused(!this.#isPaused) });
    this.older = h("button", { type: "button", class: "button", text: "Older", onclick: () => this.#goOlder() });
    this.newest = h("button", { type: "button", class: "button", text: "Newest", hidden: true, onclick: () => this.#setPaused(false) });
    this.table = table(`Messages of ${topic}`, [{ title: term("sequence", "Sequence"), class: "number" }, { title: "Time" }, { title: "Payload" }, { title: "Publisher" }, { title: term("QoS"), class: "number" }, { title: term("door", "Door") }]);
    this.detail = h("div", { class: "panel", hidden: true });
    this.chart = new Chart("Values", { isFromZero: false, heading: "Values over time", show: String, axis: axisText });
    this.fields = h("select", { onchange: () => { this.#field = this.fields.value; this.#plot(); } });
    this.plot = h("section", { hidden: true, "aria-label": "Plot" }, h("div", { class: "heading" }, h("h2", { text: "Plot" }), field("Field", this.fields)), this.chart.element);
    const actions = h("p", { class: "actions" },
      context.may("publish") && h("a", { class: "button", href: `#/publish?${new URLSearchParams({ topic })}`, text: "Publish to this topic" }),
      h("a", { class: "button", href: `#/live?${new URLSearchParams({ filter: `${topic}/#` })}`, text: "Follow it and all below" }));
    replace(content, actions, this.facts, this.problem, h("div", { class: "beside" }, this.plot, this.retained),
      h("section", { "aria-label": "Messages" },
        h("div", { class: "heading" }, h("h2", { text: "Messages" }), h("div", { class: "bar" }, this.pause, this.older, this.newest, this.note)),
        this.detail, this.table.frame));
    poll(POLL_MS, () => this.#poll(), context.signal, (error) => this.#fail(error));
    poll(3_000, () => this.#pollFacts(), context.signal);
    this.#loadRetained();
  }

  async #poll() {
    if (this.#isPaused) return;
    const query = this.#next === null ? { last: FIRST, limit: FIRST } : { after: this.#next, limit: PAGE };
    let page = await get(messagesPath(this.topic, query), this.context);
    if (this.#next !== null && !page.statement.is_at_head) {
      page = await get(messagesPath(this.topic, { last: FIRST, limit: FIRST }), this.context);
      this.#messages = [];
    }
    replace(this.problem);
    this.#next = page.statement.next;
    if (page.messages.length === 0 && this.#messages.length > 0) return;
    if (page.messages.some((each) => each.retain)) this.#loadRetained();
    this.#add(page.messages);
    this.#messages = [...page.messages.reverse(), ...this.#messages].slice(0, SHOWN);
    this.#show();
    this.#plot();
    this.#tell(page.statement);
  }

  #fail(error) {
    if (error.status === 404) replace(this.problem, nothing("This topic has had no message yet."));
    else if (error.status > 0) replace(this.problem, failure(error));
  }

  #tell({ missing }) {
    const lost = missing.filter((each) => each.reason !== "evicted");
    setText(this.note, lost.length > 0 ? `Some messages are missing: ${[...new Set(lost.map((each) => each.reason))].join(", ")}.` : "");
  }

  async #pollFacts() {
    const exact = path("/api/v1/topics", { filter: this.topic, limit: 1 });
    const requests = [get(exact, this.context)];
    if (this.context.may("admin")) requests.push(get(path("/metrics", { topic: this.topic }), this.context));
    const [list, figures] = await Promise.all(requests);
    const known = list.topics[0];
    const stats = figures?.topics?.[this.topic];
    if (!known) return;
    const pairs = [
      ["Newest sequence", format.count(known.sequence)],
      ["Since the server started", format.counted(known.published, "message")],
      ["Subscribers", format.count(known.subscribers)],
      [term("ring", "In the ring"), format.counted(known.ring_messages, "message")],
      ["Kept in the log", known.kept ? "yes" : "no"],
    ];
    if (stats) {
      pairs.push(["Delivered", format.count(stats.messages_delivered)], [term("dropped", "Dropped"), format.count(stats.messages_dropped)], [term("latency", "Latency, p99"), format.milliseconds(stats.latency_ms.p99)]);
    }
    const key = JSON.stringify(pairs.map(([, value]) => value));
    if (this.facts.dataset.key === key || this.facts.contains(document.activeElement)) return;
    this.facts.dataset.key = key;
    replace(this.facts, facts(pairs));
  }

  async #loadRetained() {
    try {
      const { retained } = await get(path("/api/v1/retained", { filter: this.topic, limit: 1 }), this.context);
      const value = retained.find((each) => each.topic === this.topic);
      const key = value?.cursor ?? "none";
      if (this.retained.dataset.key === key) return;
      this.retained.dataset.key = key;
      replace(this.retained, h("div", { class: "heading" }, h("h2", {}, term("retained", "Retained value")),
        value && this.context.may("publish") && h("button", { type: "button", class: "button danger", text: "Delete", onclick: () => this.#deleteRetained() })),
      value ? [h("p", { class: "muted" }, "Sequence ", format.count(value.sequence), ", ", time(value.published_at)), payloadView(value)] : nothing("None."));
    } catch (error) {
      if (!this.context.signal.aborted && error.status > 0) replace(this.retained, failure(error));
    }
  }

  async #deleteRetained() {
    const isSure = await confirm({ title: "Delete the retained value?", text: `New subscribers of ${this.topic} will not get it any more. Messages that were published stay in the log.`, action: "Delete" });
    if (!isSure) return;
    try {
      await call("DELETE", path("/api/v1/retained", { topic: this.topic }));
      notify("The retained value is deleted.");
    } catch (error) {
      notify(error.message, "bad");
    }
    this.#loadRetained();
  }

  #show() {
    reconcile(this.table.body, this.#messages, (each) => `${each.epoch}-${each.sequence}`, (each) => this.#row(each));
    if (this.#messages.length === 0) setText(this.note, "No messages in memory or in the log.");
  }

  #row(message) {
    const open = h("button", { type: "button", class: "linklike", "aria-label": `Message ${message.sequence}`, text: format.count(message.sequence), onclick: () => this.#open(message) });
    const { text } = format.payload(message);
    return h("tr", { onclick: (event) => !event.target.closest("a, button") && this.#open(message) },
      h("td", { class: "number" }, open),
      h("td", { class: "tight" }, time(message.published_at)),
      h("td", { class: "value-cell", text: text.length > 300 ? `${text.slice(0, 300)}...` : text }),
      h("td", {}, this.context.may("admin") ? clientLink(message.client_id) : message.client_id || "-"),
      h("td", { class: "number" }, String(message.qos), message.retain && [" ", badge("retained")]),
      h("td", { text: format.doorName(message.door) }));
  }

  #open(message) {
    this.#chosen = message;
    const before = this.#messages[this.#messages.indexOf(message) + 1];
    const close = () => { this.detail.hidden = true; this.#chosen = null; };
    const properties = Object.entries(message.properties ?? {}).map(([name, value]) => `${name} = ${value}`).join("; ");
    replace(this.detail,
      h("div", { class: "heading" }, h("h3", { text: `Message ${format.count(message.sequence)}`, tabindex: "-1" }), h("button", { type: "button", class: "button quiet", text: "Close", onclick: close })),
      facts([["Published", time(message.published_at)], ["Expires", message.expires_at && time(message.expires_at)], ["Content type", message.content_type], ["Message id", message.message_id], ["Response topic", message.response_topic], ["Properties", properties], [term("cursor", "Cursor"), h("code", { text: message.cursor })]]),
      payloadView(message),
      before && changes(before.data, message.data),
      h("p", {}, h("a", { href: `#/why?${new URLSearchParams({ topic: this.topic, sequence: message.sequence })}`, text: "Why was it not delivered to a client?" })));
    this.detail.hidden = false;
    this.detail.querySelector("h3").focus();
  }

  #setPaused(isPaused) {
    this.#isPaused = isPaused;
    this.pause.setAttribute("aria-pressed", String(isPaused));
    setText(this.pause, isPaused ? "Resume" : "Pause");
    this.newest.hidden = !isPaused;
    if (isPaused) return;
    this.#next = null;
    this.#messages = [];
    this.#points = [];
    this.older.disabled = false;
    this.#poll().catch((error) => this.#fail(error));
  }

  async #goOlder() {
    const oldest = this.#messages.at(-1)?.sequence;
    if (!oldest) return;
    this.#setPaused(true);
    try {
      const page = await get(messagesPath(this.topic, { after_sequence: Math.max(0, oldest - SHOWN - 1), limit: SHOWN }), this.context);
      const older = page.messages.filter((each) => each.sequence < oldest).reverse();
      if (older.length === 0) {
        this.older.disabled = true;
        setText(this.note, "There are no older messages.");
        return;
      }
      this.#messages = older;
      this.#show();
      this.#tell(page.statement);
    } catch (error) {
      this.#fail(error);
    }
  }

  #add(messages) {
    for (const each of messages) this.#points.push([Date.parse(each.published_at), format.numbersIn(each.data)]);
    this.#points = this.#points.slice(-POINTS);
  }

  #plot() {
    const names = new Set(this.#points.flatMap(([, found]) => [...found.keys()]));
    this.plot.hidden = names.size === 0;
    if (names.size === 0) return;
    if (!names.has(this.#field)) [this.#field] = names;
    reconcile(this.fields, [...names], (name) => name, (name) => h("option", { value: name, text: name }));
    this.fields.value = this.#field;
    const times = this.#points.map(([at]) => at);
    this.chart.draw(times, [{ name: this.#field, colour: "accent", values: this.#points.map(([, found]) => found.get(this.#field) ?? null) }]);
  }
}

/** A value at an axis: short where it would not fit. */
const axisText = (value) => (Math.abs(value) < 1e5 ? String(Number(value.toPrecision(6))) : format.compact(value));

/** Fields that differ from the message before. */
function changes(before, after) {
  if (typeof before !== "object" || typeof after !== "object" || before === null || after === null || before.$bytes || after.$bytes) return null;
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const differing = names.filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
  if (differing.length === 0) return h("p", { class: "muted", text: "The same as the message before." });
  const rows = differing.slice(0, 50).map((name) => h("tr", {}, h("th", { scope: "row", text: name }), h("td", { class: "value-cell", text: JSON.stringify(before[name]) ?? "-" }), h("td", { class: "value-cell", text: JSON.stringify(after[name]) ?? "-" })));
  return table("Changes since the message before", [{ title: "Field" }, { title: "Before" }, { title: "Now" }], rows).frame;
}
