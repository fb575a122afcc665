/** The log: its state, size, retention and holds. */

import { call, get, inPath, path, poll } from "../api.js";
import { h, reconcile, replace, setText, table, time } from "../dom.js";
import * as format from "../format.js";
import { badge, card, confirm, facts, failure, notify, nothing, term } from "../widgets.js";

const POLL_MS = 3_000;

export function show(content, context) {
  const cards = { state: card("State"), size: card("Size"), newest: card(term("offset", "Newest offset")), queued: card("Waiting for the disk"), holds: card(term("hold", "Holds")) };
  const about = h("div");
  const problem = h("div");
  const list = table("Holds", [{ title: "Name" }, { title: "Owner" }, { title: term("offset", "Offset"), class: "number" }, { title: "Behind", class: "number" }, { title: "Filters" }, { title: "Lapses" }, { title: "Actions" }]);
  const empty = nothing("No reader holds the log: retention alone decides what is deleted.");
  const holds = h("section", {}, h("h2", {}, term("hold", "Holds")), list.frame, empty);
  replace(content, problem, h("section", { class: "cards", "aria-label": "The log now" }, Object.values(cards)), about, holds);
  let settings = null;

  const again = poll(POLL_MS, async () => {
    settings ??= (await get("/api/v1/config", context)).settings;
    const figures = await get(path("/metrics", { limit: 0 }), context);
    const { log } = figures;
    replace(problem);
    cards.state.show(log.failing ? "Failing" : log.durable ? "Durable" : "In memory", log.durable ? `durability: ${settings.durability}` : "no data directory", log.failing ? "bad" : "plain");
    holds.hidden = !log.durable;
    if (!log.durable) {
      cards.size.show("-");
      cards.newest.show("-");
      cards.queued.show("-");
      cards.holds.show("-");
      replace(about, nothing("This server keeps messages in memory only. With a data directory (", h("code", { text: "data_dir" }), ") it has a log on disk, and messages survive a restart."));
      return;
    }
    const [position, earliest, told] = await Promise.all([
      get("/api/v1/log/position?at=latest", context), get("/api/v1/log/position?at=earliest", context), get("/api/v1/log/holds", context),
    ]);
    cards.size.show(format.size(log.stored_bytes), `limit ${settings.log.retention_bytes ? format.size(settings.log.retention_bytes) : "none"}`);
    cards.newest.show(format.count(log.last_offset), `oldest ${format.count(log.first_offset)}`);
    cards.queued.show(format.size(log.queued_bytes), `limit ${format.size(settings.log.queued_bytes)}`);
    cards.holds.show(format.count(log.holds), log.holds ? `furthest is ${format.counted(log.hold_lag_messages, "message")} behind` : "none");
    const pairs = [
      [term("epoch", "Epoch"), format.count(position.epoch)],
      ["Kept for", settings.log.retention_s ? format.duration(settings.log.retention_s) : "no limit"], ["Kept up to", settings.log.retention_bytes ? format.size(settings.log.retention_bytes) : "no limit"],
      ["Topics kept", settings.log.capture.join(", ")], ["Data directory", h("code", { text: settings.data_dir })], ["Log id", h("code", { text: position.log_id })],
      [term("cursor", "Cursor of the end"), h("code", { text: position.cursor })], ["Cursor of the beginning", h("code", { text: earliest.cursor })],
    ];
    if (!about.contains(document.activeElement)) replace(about, facts(pairs));
    showHolds(told.holds, position.offset);
  }, context.signal, (error) => error.status > 0 && replace(problem, failure(error)));

  function showHolds(found, newest) {
    empty.hidden = found.length > 0;
    list.frame.hidden = found.length === 0;
    reconcile(list.body, found, (each) => `${each.owner}/${each.name}`, makeRow, (row, hold) => update(row, hold, newest));
    for (const row of list.body.rows) update(row, found.find((each) => `${each.owner}/${each.name}` === row.dataset.key), newest);
  }

  function makeRow(hold) {
    const release = h("button", { type: "button", class: "button quiet danger", "aria-label": `Release ${hold.name}`, text: "Release", onclick: () => remove(hold) });
    const reader = readerOf(hold.name);
    return h("tr", {}, h("td", {}, hold.name, reader && [" ", badge(reader)]), h("td", { text: hold.owner || "-" }), h("td", { class: "number" }), h("td", { class: "number" }), h("td", { text: (hold.filters ?? []).join(", ") || "#" }), h("td"), h("td", {}, release));
  }

  function update(row, hold, newest) {
    setText(row.cells[2], format.count(hold.offset));
    setText(row.cells[3], format.counted(Math.max(0, newest - hold.offset), "message"));
    replace(row.cells[5], time(hold.lapses_at, true));
  }

  async function remove(hold) {
    const isSure = await confirm({ title: "Release the hold?", text: `Retention may delete what ${hold.name} has not read. A reader that is still at work will miss it.`, action: "Release" });
    if (!isSure) return;
    try {
      await call("DELETE", `/api/v1/log/holds/${inPath(hold.name)}`);
      notify(`The hold ${hold.name} is released.`);
    } catch (error) {
      notify(error.message, "bad");
    }
    again();
  }
}

/** The pipeline that a hold belongs to, by its name. */
function readerOf(name) {
  if (name.startsWith("lake-")) return "lake archive";
  return name.startsWith("insights-") ? "insights" : null;
}
