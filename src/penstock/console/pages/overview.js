/** Overview: health with its reasons, figures now, the last hour as charts, the busiest topics. */

import { get, health, path, poll } from "../api.js";
import { Chart } from "../charts.js";
import { field, h, reconcile, replace, setText, table } from "../dom.js";
import * as format from "../format.js";
import { badge, card, failure, nothing, severity, term, topicLink } from "../widgets.js";

const FIGURES_MS = 2_000;
const HISTORY_MS = 10_000;
const BUSIEST = 10;
const WINDOW_S = 6;
const RANGES = { 60: "last hour", 15: "last 15 minutes", 5: "last 5 minutes" };

export function show(content, context) {
  const reasons = h("ul", { class: "reasons", "aria-label": "Health" });
  replace(content, reasons);
  poll(5_000, async () => {
    const told = await health();
    if (!context.may("admin")) showReasons(reasons, told, null, null);
    else context.told = told;
  }, context.signal);
  if (!context.may("admin")) {
    const isElsewhere = context.me.rights.admin && context.me.has_admin_calls === false;
    content.append(nothing(isElsewhere ? "Figures of the server are at its admin port." : "Figures of the server are for users that may subscribe to $SYS/#."));
    return;
  }
  const figures = new Figures(reasons, context);
  const charts = new Charts(context);
  content.append(figures.element, charts.element, figures.busiest);
}

/** Figures now: rates are averages of the last seconds. */
class Figures {
  #samples = [];

  constructor(reasons, context) {
    this.reasons = reasons;
    this.context = context;
    this.cards = {
      published: card("Messages in"), delivered: card("Messages out"),
      dropped: card(term("dropped", "Dropped"), "#/why"), connections: card("Connections", "#/clients"),
      topics: card("Topics", "#/topics"), slow: card("Slow consumers", "#/slow"),
      latency: card(term("latency", "Latency, p99")), lag: card(term("loop lag", "Loop lag, p99")),
      memory: card("Memory"), log: card("Log", "#/log"),
    };
    this.element = h("section", { "aria-label": "Figures now", class: "cards" }, Object.values(this.cards));
    const columns = [{ title: "Topic" }, { title: "Messages/s", class: "number" }, { title: "Published", class: "number" }, { title: "Subscribers", class: "number" }, { title: "Dropped", class: "number" }];
    this.table = table("Busiest topics", columns);
    this.busiest = h("section", {}, h("h2", { text: "Busiest topics" }), this.table.frame);
    poll(FIGURES_MS, () => this.#poll(), context.signal, (error) => error.status > 0 && replace(this.reasons, h("li", {}, failure(error))));
  }

  async #poll() {
    const now = await get(path("/metrics", { limit: BUSIEST }), this.context);
    if (this.#samples.at(-1)?.figures.uptime_seconds > now.uptime_seconds) this.#samples = [];
    this.#samples.push({ at: performance.now() / 1_000, figures: now });
    while (this.#samples.length > 2 && this.#samples.at(-1).at - this.#samples[0].at > WINDOW_S) this.#samples.shift();
    this.#show(now);
    showReasons(this.reasons, this.context.told ?? { status: "healthy" }, now, this.rate((figures) => figures.global.total_dropped));
  }

  /** Rise of a figure per second; null as long as there is one sample. */
  rate(of) {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    const seconds = last.at - first.at;
    return seconds > 0 ? Math.max(0, of(last.figures) - of(first.figures)) / seconds : null;
  }

  #byDoor(kind) {
    const doors = Object.keys(this.#samples.at(-1).figures.doors);
    const rates = doors.map((door) => [door, this.rate((figures) => figures.doors[door]?.[kind] ?? 0)]);
    return rates.filter(([, value]) => value > 0).map(([door, value]) => `${format.doorName(door)} ${format.rate(value)}`).join(", ");
  }

  #show(now) {
    const { cards } = this;
    const overall = now.global;
    const perSecond = (value) => (value === null ? format.ABSENT : `${format.rate(value)}/s`);
    cards.published.show(perSecond(this.rate((each) => each.global.total_published)), this.#byDoor("published") || `${format.count(overall.total_published)} since the start`);
    cards.delivered.show(perSecond(this.rate((each) => each.global.total_delivered)), this.#byDoor("delivered") || `${format.count(overall.total_delivered)} since the start`);
    const dropping = this.rate((each) => each.global.total_dropped);
    cards.dropped.show(perSecond(dropping), `${format.count(overall.total_dropped)} since the start`, dropping > 0 ? "bad" : "plain");
    const open = Object.entries(now.connections).filter(([, number]) => number > 0);
    cards.connections.show(format.count(open.reduce((sum, [, number]) => sum + number, 0)), open.map(([door, number]) => `${format.doorName(door)} ${format.count(number)}`).join(", "));
    cards.topics.show(format.count(overall.active_topics), `${format.count(overall.retained_messages)} with a retained value`);
    cards.slow.show(format.count(overall.slow_subscribers), `of ${format.counted(overall.active_subscribers, "subscriber")}`, overall.slow_subscribers > 0 ? "fair" : "plain");
    cards.latency.show(format.milliseconds(now.latency_ms.p99), `average ${format.milliseconds(now.latency_ms.avg)}`, severity(now.latency_ms.p99, 200, 1_000));
    cards.lag.show(format.milliseconds(now.loop_lag_ms.p99), `average ${format.milliseconds(now.loop_lag_ms.avg)}`, severity(now.loop_lag_ms.p99, 50, 200));
    cards.memory.show(format.size(now.process.memory_bytes), `${format.count(now.process.open_files)} of ${format.count(now.process.max_files)} files`);
    const { log } = now;
    if (log.durable) cards.log.show(format.size(log.stored_bytes), `to offset ${format.count(log.last_offset)}`, log.failing ? "bad" : "plain");
    else cards.log.show("In memory", "no data directory");
    this.#showBusiest(now.topics);
    this.context.figures = now;
  }

  #showBusiest(topics) {
    const rows = Object.entries(topics).map(([name, each]) => ({ name, ...each, rate: this.rate((figures) => figures.topics[name]?.messages_published ?? each.messages_published) }));
    rows.sort((a, b) => (b.rate ?? 0) - (a.rate ?? 0) || b.messages_published - a.messages_published);
    const values = (row) => [format.rate(row.rate), format.count(row.messages_published), format.count(row.subscriber_count), format.count(row.messages_dropped)];
    reconcile(this.table.body, rows, (row) => row.name,
      (row) => h("tr", {}, h("td", {}, topicLink(row.name)), values(row).map((text) => h("td", { class: "number", text }))),
      (element, row) => values(row).forEach((text, index) => setText(element.cells[index + 1], text)));
    this.busiest.hidden = rows.length === 0;
  }
}

/** Charts of the last hour. */
class Charts {
  constructor(context) {
    this.context = context;
    this.minutes = 60;
    const perSecond = (value) => `${format.rate(value)}/s`;
    this.charts = {
      published: new Chart("Messages in per second", { show: perSecond }),
      delivered: new Chart("Messages out per second", { show: perSecond }),
      dropped: new Chart("Dropped per second", { show: perSecond }),
      connections: new Chart("Connections", { show: format.count }),
      traffic: new Chart("Bytes per second", { show: (value) => `${format.size(value)}/s`, axis: format.size }),
      lag: new Chart("Loop lag", { show: format.milliseconds, axis: (value) => `${format.compact(value)} ms` }),
    };
    const range = h("select", { onchange: () => { this.minutes = Number(range.value); this.#draw(); } },
      Object.entries(RANGES).reverse().map(([value, text]) => h("option", { value, text })));
    range.value = "60";
    this.grid = h("div", { class: "charts" }, Object.values(this.charts).map((each) => each.element));
    this.element = h("section", {}, h("div", { class: "heading" }, h("h2", { text: "History" }), field("Range", range)), this.grid);
    poll(HISTORY_MS, async () => {
      const isFirst = this.history === undefined;
      this.history = await get("/api/v1/history", context);
      if (isFirst) range.value = this.minutes = fitting(this.history);
      this.#draw();
    }, context.signal, (error) => error.status > 0 && replace(this.grid, failure(error)));
  }

  #draw() {
    if (!this.history) return;
    const { series, interval_s: interval, now } = this.history;
    const wanted = Math.round((this.minutes * 60) / interval);
    const length = lengthOf(series);
    const start = Math.max(0, length - wanted);
    const end = Date.parse(now);
    const times = Array.from({ length: length - start }, (_, index) => end - (length - start - 1 - index) * interval * 1_000);
    const cut = (values) => (values ?? []).slice(start);
    const doors = (kind) => Object.entries(series[kind] ?? {}).map(([door, values]) => ({ name: format.doorName(door), colour: `door-${door}`, values: cut(values) }));
    const one = (name, values, colour) => ({ name, values: cut(values), colour });
    const { charts } = this;
    charts.published.draw(times, used(doors("published")));
    charts.delivered.draw(times, used(doors("delivered")));
    charts.dropped.draw(times, [one("Dropped", series.dropped, "bad")]);
    charts.connections.draw(times, [one("Connections", series.connections, "accent")]);
    charts.traffic.draw(times, [one("Received", series.bytes_received, "in"), one("Sent", series.bytes_sent, "out")]);
    charts.lag.draw(times, [one("Loop lag", series.loop_lag_ms, "accent")]);
  }
}

/** Doors that had any message; all of them if none had. */
function used(doors) {
  const some = doors.filter((each) => each.values.some((value) => value > 0));
  return some.length > 0 ? some : doors.slice(0, 1);
}

/** The shortest range that shows everything there is. */
function fitting({ series, interval_s: interval }) {
  const connections = series.connections ?? [];
  const first = connections.findIndex((value) => value !== null);
  const minutes = first < 0 ? 0 : ((connections.length - first) * interval) / 60;
  return Object.keys(RANGES).map(Number).find((each) => each >= minutes) ?? 60;
}

function lengthOf(series) {
  return Object.values(series).reduce((most, each) => Math.max(most, Array.isArray(each) ? each.length : lengthOf(each)), 0);
}

/** Health in words, each with its reason. */
function showReasons(list, told, now, dropping) {
  const found = [];
  const add = (kind, word, text) => found.push({ kind, word, text });
  const details = told.log?.details || told.details || "";
  if (told.status === "healthy") add("good", "Healthy", now ? `Running for ${format.duration(now.uptime_seconds)}. Messages are accepted at every door.` : "The server accepts messages.");
  else if (told.status === "degraded") add("fair", "Degraded", details || "Messages cannot be stored at the moment, or publishers wait for the disk.");
  else add("bad", "Unhealthy", details || "Files of the data directory are gone. The server needs a restart.");
  if (now) {
    const { outboxes } = now;
    if (dropping > 0) add("bad", "Dropping", `${format.rate(dropping)} deliveries per second are lost. The page Why has the reasons.`);
    if (now.global.slow_subscribers > 0) add("fair", "Slow", `${format.counted(now.global.slow_subscribers, "consumer")} cannot keep up; the fullest outbox is ${Math.round(outboxes.largest_saturation * 100)} % full.`);
    if (outboxes.publishers_held > 0) add("fair", "Blocked", `${format.counted(outboxes.publishers_held, "publisher")} wait for a slow consumer.`);
    if (now.loop_lag_ms.p99 >= 50) add(now.loop_lag_ms.p99 >= 200 ? "bad" : "fair", "Busy", `The event loop runs ${format.milliseconds(now.loop_lag_ms.p99)} late.`);
    if (now.process.open_files > now.process.max_files * 0.9) add("bad", "Files", "Nearly all files and sockets that the operating system allows are open.");
  }
  const key = (each) => `${each.word}`;
  reconcile(list, found, key, (each) => h("li", {}, badge(each.word, each.kind), h("span", { text: each.text })), (element, each) => {
    element.firstChild.className = `badge ${each.kind}`;
    setText(element.lastChild, each.text);
  });
}
