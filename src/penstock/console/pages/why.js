/** Why: what became of a message, in one sentence first; and what was not delivered recently. */

import { get, path, poll } from "../api.js";
import { field, h, reconcile, replace, table, time } from "../dom.js";
import * as format from "../format.js";
import { badge, clientLink, facts, failure, nothing, term, topicLink } from "../widgets.js";

const POLL_MS = 3_000;
const RECORDS = 50;

const REASONS = {
  "outbox-full": "the client was too slow; its outbox was full",
  "owed-full": "it was offline or behind, and its offline queue was full",
  "block-timeout": "it was too slow, and the publisher had waited as long as is allowed",
  disconnected: "its connection ended while the message waited",
  "not-connected": "it was offline, and the message was QoS 0",
  "session-ended": "its session or its subscription ended first",
  "packet-too-large": "larger than the client accepts",
  refused: "the client refused it",
  failed: "it could not be sent",
  evicted: "it left memory",
  expired: "its lifetime was over",
  retention: "it had left the log",
  "never-stored": "it was never in the log",
  "lost-uncommitted": "the server stopped before it was stored",
  damaged: "the log is damaged there",
  "not-authorized": "the client may not read the topic",
};
const KINDS = { "not-delivered": "bad", waiting: "fair", "in-flight": "fair", "not-authorized": "bad", published: "plain" };

export function show(content, context) {
  const { query } = context;
  const topic = h("input", { name: "topic", required: true, autocomplete: "off", spellcheck: "false", value: query.get("topic") ?? "" });
  const sequence = h("input", { name: "sequence", type: "number", min: "0", required: true, inputmode: "numeric", value: query.get("sequence") ?? "" });
  const client = h("input", { name: "client", autocomplete: "off", spellcheck: "false", value: query.get("client") ?? "" });
  const answer = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "tools" },
    field("Topic", topic), field(term("sequence", "Sequence"), sequence, "the number of the message in its topic"), field("Client (optional)", client),
    h("button", { class: "button primary", text: "Ask why" }));
  const ask = async () => {
    const asked = { topic: topic.value, sequence: sequence.value, client: client.value.trim() };
    history.replaceState(null, "", path("#/why", asked));
    try {
      replace(answer, explanation(await get(path("/api/v1/why", asked), context)));
    } catch (error) {
      if (!context.signal.aborted) replace(answer, failure(error));
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  replace(content, form, answer);
  if (topic.value && sequence.value) ask();
  if (context.may("admin")) content.append(records(context));
}

function explanation(told) {
  const { message } = told;
  const lost = told.rows.map((row) => h("tr", {},
    h("td", {}, clientLink(row.client_id)), h("td", {}, badge(row.reason, "bad"), " ", REASONS[row.reason] ?? ""),
    h("td", { text: [row.setting, row.policy].filter(Boolean).join(", ") || "-" }), h("td", {}, time(row.last_at))));
  const waiting = told.waiting.map((each) => h("tr", {}, h("td", {}, clientLink(each.client_id)), h("td", { text: each.place }), h("td", { class: "number", text: format.count(each.ahead) }), h("td", { text: each.connected ? "yes" : "no" })));
  return h("section", { class: "panel answer", "aria-label": "Answer" },
    h("p", { class: "sentence" }, badge(told.code, KINDS[told.code] ?? "plain"), " ", told.text),
    message && facts([["Topic", topicLink(told.topic)], ["Published", message.published_at && time(message.published_at)], ["Publisher", message.client_id && clientLink(message.client_id)], [term("QoS"), message.qos], [term("door", "Door"), message.door && format.doorName(message.door)], ["No longer readable", message.missing && (REASONS[message.missing] ?? message.missing)], ["Newest sequence", format.count(told.newest)]]),
    lost.length > 0 && [h("h3", { text: "Not delivered to" }), table("Not delivered to", [{ title: "Client" }, { title: "Reason" }, { title: "Setting, policy" }, { title: "When" }], lost).frame],
    waiting.length > 0 && [h("h3", { text: "Waiting for" }), table("Waiting for", [{ title: "Client" }, { title: "Where" }, { title: "Messages before it", class: "number" }, { title: "Connected" }], waiting).frame],
    told.filters.length > 0 && h("p", {}, "Subscriptions that match now: ", told.filters.map((each, index) => [index > 0 && ", ", h("code", { text: each })])),
    told.truncated && h("p", { class: "muted", text: "There are more than are shown." }));
}

/** Recent records of the ledger, and totals by reason. */
function records(context) {
  const reason = h("select", {}, h("option", { value: "", text: "All reasons" }), Object.keys(REASONS).map((each) => h("option", { value: each, text: each })));
  const totals = h("ul", { class: "totals", "aria-label": "Not delivered since the start, by reason" });
  const list = table("Not delivered recently", [{ title: "Topic" }, { title: "Sequences" }, { title: "Messages", class: "number" }, { title: "Client" }, { title: "Reason" }, { title: "Setting, policy" }, { title: "When" }]);
  const empty = nothing("Nothing is recorded: as far as is known, everything was delivered.");
  const problem = h("div");
  const again = poll(POLL_MS, async () => {
    const [page, figures] = await Promise.all([get(path("/api/v1/drops", { reason: reason.value, limit: RECORDS }), context), get(path("/metrics", { limit: 0 }), context)]);
    replace(problem);
    empty.hidden = page.drops.length > 0;
    list.frame.hidden = page.drops.length === 0;
    reconcile(list.body, page.drops, (each) => `${each.number}-${each.last}`, recordRow);
    const sums = Object.entries(figures.not_delivered).filter(([, number]) => number > 0);
    reconcile(totals, sums, ([name, number]) => `${name}-${number}`, ([name, number]) => h("li", {}, badge(name), " ", format.count(number)));
  }, context.signal, (error) => error.status > 0 && replace(problem, failure(error)));
  reason.addEventListener("change", again);
  return h("section", {}, h("div", { class: "heading" }, h("h2", {}, term("not delivered", "Not delivered recently")), field("Reason", reason)), totals, problem, list.frame, empty);
}

function recordRow(each) {
  const range = each.first === each.last ? format.count(each.last) : `${format.count(each.first)} to ${format.count(each.last)}`;
  const asked = path("#/why", { topic: each.topic, sequence: each.last, client: each.client_id.startsWith("$") ? "" : each.client_id });
  return h("tr", {},
    h("td", {}, each.topic ? topicLink(each.topic) : "-"),
    h("td", {}, each.topic ? h("a", { href: asked, text: range }) : `offsets ${range}`),
    h("td", { class: "number", text: format.count(each.count) }),
    h("td", {}, clientLink(each.client_id)), h("td", { title: REASONS[each.reason] ?? "", text: each.reason }),
    h("td", { text: [each.setting, each.policy].filter(Boolean).join(", ") || "-" }), h("td", { class: "tight" }, time(each.last_at)));
}
