/** Clients: a list with search, one client in detail, and the end of its connection. */

import { call, get, path, poll } from "../api.js";
import { debounce, field, h, reconcile, replace, setText, table, time } from "../dom.js";
import * as format from "../format.js";
import { badge, clientLink, confirm, facts, failure, notify, nothing, pager, term, topicLink } from "../widgets.js";

const POLL_MS = 3_000;
const PAGE = 100;

export function show(content, context) {
  if (context.rest !== "") showOne(content, context, context.rest);
  else showList(content, context);
}

const COLUMNS = [
  { title: "Client" }, { title: "State" }, { title: term("door", "Door") }, { title: "User" }, { title: "Address" }, { title: "Since" },
  { title: "Subscriptions", class: "number" }, { title: term("outbox", "Outbox"), class: "number" }, { title: term("offline queue", "Offline queue"), class: "number" },
];

function showList(content, context) {
  const search = h("input", { type: "search", placeholder: "Part of a client id", autocomplete: "off", spellcheck: "false", value: context.query.get("search") ?? "" });
  const connected = h("select", {}, [["", "All"], ["true", "Connected"], ["false", "Offline"]].map(([value, text]) => h("option", { value, text })));
  const problem = h("div");
  const list = table("Clients", COLUMNS);
  const empty = nothing("No clients match.");
  const pages = pager(() => again());
  const again = poll(POLL_MS, async () => {
    const asked = { search: search.value.trim(), connected: connected.value, after: pages.after, limit: PAGE };
    const page = await get(path("/api/v1/clients", asked), context);
    replace(problem);
    empty.hidden = page.clients.length > 0;
    reconcile(list.body, page.clients, (each) => each.client_id, makeRow, updateRow);
    pages.show(page.next, `${format.count(page.matching)} of ${format.counted(page.total, "client")}`);
  }, context.signal, (error) => error.status > 0 && replace(problem, failure(error)));
  const changed = () => { pages.reset(); again(); };
  search.addEventListener("input", debounce(changed));
  connected.addEventListener("change", changed);
  replace(content, h("div", { class: "tools" }, field("Search clients", search), field("Show", connected)), problem, list.frame, empty, pages.whole);
}

function makeRow(client) {
  const row = h("tr", {}, h("td", {}, clientLink(client.client_id)), Array.from({ length: 8 }, (_, index) => h("td", { class: index > 4 ? "number" : "" })));
  updateRow(row, client);
  return row;
}

function updateRow(row, client) {
  const [, state, door, user, address, since, subscriptions, outbox, queue] = row.cells;
  const word = stateOf(client);
  if (state.textContent !== word[0]) replace(state, badge(...word));
  setText(door, format.doorName(client.door));
  setText(user, client.user ?? "-");
  setText(address, client.address ?? "-");
  const moment = client.connected_at ?? client.left_at;
  if (since.dataset.at !== String(moment)) {
    since.dataset.at = String(moment);
    replace(since, time(moment));
  }
  setText(subscriptions, format.count(client.subscriptions));
  setText(outbox, format.count(client.waiting_messages));
  setText(queue, format.count(client.owed_messages));
}

const stateOf = (client) => (client.is_slow ? ["Slow", "fair"] : client.connected ? ["Connected", "good"] : ["Offline", "plain"]);

function showOne(content, context, id) {
  context.title(id);
  const about = h("div");
  const actions = h("div", { class: "actions", hidden: true });
  const filters = table("Subscriptions", [{ title: "Filter" }, { title: term("QoS"), class: "number" }, { title: term("policy", "Policy") }, { title: "Options" }]);
  const lost = table("Not delivered to this client", [{ title: "Topic" }, { title: "Sequences" }, { title: "Reason" }, { title: "When" }]);
  const lostSection = h("section", { hidden: true }, h("h2", {}, term("not delivered", "Not delivered recently")), lost.frame);
  const filtersSection = h("section", {}, h("h2", { text: "Subscriptions" }), filters.frame);
  const end = async (isSession) => {
    const isSure = await confirm({
      title: isSession ? "End the session?" : "Disconnect the client?",
      text: isSession ? `${id} is disconnected, and its subscriptions and its offline queue are deleted.` : `The connection of ${id} ends. The client may connect again at once.`,
      action: isSession ? "End the session" : "Disconnect",
    });
    if (!isSure) return;
    try {
      const done = await call("DELETE", path("/api/v1/client", { client_id: id, end_session: isSession ? "true" : null }));
      notify(done.session_ended ? `The session of ${id} has ended.` : done.disconnected ? `${id} was disconnected.` : `${id} was not connected.`);
    } catch (error) {
      notify(error.message, "bad");
    }
    again();
  };
  replace(actions,
    h("button", { type: "button", class: "button danger", text: "Disconnect", onclick: () => end(false) }),
    h("button", { type: "button", class: "button danger", text: "End the session", onclick: () => end(true) }));
  replace(content, h("p", {}, h("a", { href: "#/clients", text: "All clients" })), about, actions, filtersSection, lostSection);
  const again = poll(POLL_MS, async () => {
    const [client, drops] = await Promise.all([
      get(path("/api/v1/client", { client_id: id }), context),
      get(path("/api/v1/drops", { client: id, limit: 20 }), context),
    ]);
    actions.hidden = !context.may("manage");
    filtersSection.hidden = client.filters.length === 0;
    if (!about.contains(document.activeElement)) replace(about, clientFacts(client));
    reconcile(filters.body, client.filters, (each) => JSON.stringify(each), (each) => h("tr", {},
      h("td", {}, h("a", { href: `#/live?${new URLSearchParams({ filter: each.filter })}`, class: "topic", text: each.filter })), h("td", { class: "number", text: each.qos }), h("td", { text: each.policy }),
      h("td", { text: [each.no_local && "no local", each.retain_as_published && "retain as published", each.identifier && `identifier ${each.identifier}`].filter(Boolean).join(", ") || "-" })));
    showLost(lost.body, drops.drops);
    lostSection.hidden = drops.drops.length === 0;
  }, context.signal, (error) => {
    if (error.status === 0) return;
    actions.hidden = filtersSection.hidden = true;
    replace(about, error.status === 404 ? nothing("There is no session of this client. It may have disconnected, or was never here.") : failure(error));
  });
}

function clientFacts(client) {
  const { will } = client;
  return facts([
    ["State", badge(...stateOf(client))], [term("door", "Door"), format.doorName(client.door)], ["User", client.user], ["Address", client.address],
    ["Connected", client.connected_at && time(client.connected_at)], ["Disconnected", client.left_at && time(client.left_at)],
    ["Session expires", client.expires_at && time(client.expires_at)],
    ["Session kept after disconnect", client.expiry_s > 1e9 ? "forever" : format.duration(client.expiry_s)],
    [term("outbox", "Outbox"), `${format.counted(client.waiting_messages, "message")}, ${format.size(client.waiting_bytes)}`],
    [term("offline queue", "Offline queue"), format.counted(client.owed_messages, "message")],
    [term("in flight", "In flight"), format.count(client.in_flight)],
    will && [term("will", "Will"), h("span", {}, topicLink(will.topic), ` QoS ${will.qos}, ${format.size(will.payload_bytes)}`)],
  ].filter(Boolean));
}

function showLost(body, drops) {
  reconcile(body, drops, (each) => `${each.number}-${each.last}`, (each) => {
    const asked = new URLSearchParams({ topic: each.topic, sequence: each.last, client: each.client_id });
    const range = each.first === each.last ? format.count(each.last) : `${format.count(each.first)} to ${format.count(each.last)}`;
    return h("tr", {}, h("td", {}, each.topic ? topicLink(each.topic) : "-"),
      h("td", {}, each.topic ? h("a", { href: `#/why?${asked}`, text: range }) : `offsets ${range}`),
      h("td", { text: each.reason }), h("td", {}, time(each.last_at)));
  });
}
