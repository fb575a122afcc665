/** Slow consumers: present and recent ones. */

import { get, poll } from "../api.js";
import { h, reconcile, replace, setText, table, time } from "../dom.js";
import * as format from "../format.js";
import { badge, clientLink, failure, nothing, term } from "../widgets.js";

const POLL_MS = 2_000;

export function show(content, context) {
  const problem = h("div");
  const note = h("p", { class: "muted", role: "status" });
  const list = table("Slow consumers", [
    { title: "Client" }, { title: "State" }, { title: term("door", "Door") }, { title: term("outbox", "In its outbox"), class: "number" }, { title: "Bytes", class: "number" },
    { title: "Oldest waits", class: "number" }, { title: term("dropped", "Dropped"), class: "number" }, { title: term("policy", "Policy") }, { title: "Slow since" }, { title: "Last slow" },
  ]);
  const empty = nothing("Every consumer keeps up.");
  empty.hidden = true;
  replace(content, h("p", {}, "Consumers that read more slowly than messages come. What is lost to them has a record under ", h("a", { href: "#/why", text: "Why" }), "."), note, problem, list.frame, empty);
  poll(POLL_MS, async () => {
    const told = await get("/api/v1/slow", context);
    replace(problem);
    setText(note, `${format.counted(told.count, "consumer")} slow now; ${format.count(told.total)} times since the server started.`);
    empty.hidden = told.slow.length > 0;
    list.frame.hidden = told.slow.length === 0;
    const newest = [...told.slow].reverse().sort((a, b) => Number(b.is_slow) - Number(a.is_slow));
    reconcile(list.body, newest, (each) => each.client_id, make, update);
  }, context.signal, (error) => error.status > 0 && replace(problem, failure(error)));
}

function make(client) {
  const row = h("tr", {}, h("td", {}, clientLink(client.client_id)), Array.from({ length: 9 }, (_, index) => h("td", { class: index > 1 && index < 6 ? "number" : "" })));
  update(row, client);
  return row;
}

function update(row, client) {
  const [, state, door, waiting, bytes, oldest, dropped, policy, since, last] = row.cells;
  const word = client.is_slow ? ["Slow", "fair"] : client.recovered ? ["Recovered", "good"] : ["Gone", "plain"];
  if (state.textContent !== word[0]) replace(state, badge(...word));
  setText(door, format.doorName(client.door));
  setText(waiting, format.count(client.waiting_messages));
  setText(bytes, format.size(client.waiting_bytes));
  setText(oldest, client.oldest_age_s > 0 ? format.duration(client.oldest_age_s) : "-");
  setText(dropped, format.count(client.dropped));
  setText(policy, client.policy);
  if (since.dataset.at !== client.since) {
    since.dataset.at = client.since;
    replace(since, time(client.since));
  }
  replace(last, time(client.last_slow_at, true));
}
