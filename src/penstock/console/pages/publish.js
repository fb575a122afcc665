/** Publish one message, and see its receipt. */

import { call } from "../api.js";
import { announce, field, h, replace, time } from "../dom.js";
import * as format from "../format.js";
import { badge, facts, failure, term, topicLink } from "../widgets.js";

const MOST_RECEIPTS = 20;
const SAMPLES = { json: '{"celsius": 21.5}', text: "hello", base64: "aGVsbG8=" };

export function show(content, context) {
  const { query } = context;
  const topic = h("input", { name: "topic", value: query.get("topic") ?? "", required: true, autocomplete: "off", spellcheck: "false", maxlength: "4096" });
  const kind = h("select", { name: "kind" }, h("option", { value: "json", text: "JSON" }), h("option", { value: "text", text: "Text" }), h("option", { value: "base64", text: "Bytes (base64)" }));
  const payload = h("textarea", { name: "payload", rows: "7", spellcheck: "false", placeholder: SAMPLES.json });
  const qos = h("select", { name: "qos" }, ["0, at most once", "1, at least once", "2, exactly once"].map((text, value) => h("option", { value, text })));
  const retain = h("input", { type: "checkbox", name: "retain", id: "publish-retain" });
  const ttl = h("input", { type: "number", name: "ttl", min: "0", step: "any", placeholder: "none", inputmode: "decimal" });
  const problem = h("div");
  const receipts = h("ol", { class: "receipts" });
  const button = h("button", { class: "button primary", text: "Publish" });
  qos.value = "1";
  kind.addEventListener("change", () => { payload.placeholder = SAMPLES[kind.value]; check(); });
  const check = () => {
    const wrong = complaint(kind.value, payload.value);
    payload.setCustomValidity(wrong);
    return wrong;
  };
  payload.addEventListener("input", check);
  payload.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  const form = h("form", { class: "panel form" },
    field("Topic", topic), field("Payload is", kind), field("Payload", payload, "Ctrl+Enter publishes"),
    h("div", { class: "pair" }, field(term("QoS"), qos), field("Lifetime in seconds", ttl)),
    h("div", { class: "check" }, retain, h("label", { for: retain.id }, "Retain: keep as the topic's last value")),
    problem, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    replace(problem);
    const wrong = check();
    if (wrong) {
      payload.reportValidity();
      return;
    }
    button.disabled = true;
    try {
      const text = requestText({ topic: topic.value, kind: kind.value, payload: payload.value, qos: Number(qos.value), retain: retain.checked, ttl: ttl.value });
      const receipt = await call("POST", "/api/v1/publish", { text });
      receipts.prepend(receiptItem(receipt, payload.value));
      while (receipts.children.length > MOST_RECEIPTS) receipts.lastElementChild.remove();
      section.hidden = false;
      announce(`Published as message ${receipt.sequence}`);
    } catch (error) {
      replace(problem, failure(error));
    } finally {
      button.disabled = false;
    }
  });
  const section = h("section", { hidden: true }, h("h2", { text: "Receipts" }), receipts);
  replace(content, form, section);
  check();
}

/** What is wrong with a payload; empty if nothing is. */
function complaint(kind, text) {
  try {
    if (kind === "json") JSON.parse(text);
    if (kind === "base64") atob(text);
  } catch (error) {
    return kind === "json" ? `Not valid JSON: ${error.message}` : "Not valid base64";
  }
  return "";
}

/** The request as JSON text: a JSON payload goes into it as it was written, with all digits of its numbers. */
function requestText({ topic, kind, payload, qos, retain, ttl }) {
  const fields = { topic, qos, retain };
  if (ttl !== "" && Number(ttl) > 0) fields.ttl_ms = Math.round(Number(ttl) * 1_000);
  if (kind === "text") return JSON.stringify({ ...fields, payload });
  if (kind === "base64") return JSON.stringify({ ...fields, data: { $bytes: payload.replace(/\s/g, "") } });
  return `${JSON.stringify(fields).slice(0, -1)},"data":${payload}}`;
}

function receiptItem(receipt, payload) {
  const why = `#/why?${new URLSearchParams({ topic: receipt.topic, sequence: receipt.sequence })}`;
  return h("li", { class: "panel" },
    facts([
      ["Topic", topicLink(receipt.topic)],
      [term("sequence", "Sequence"), format.count(receipt.sequence)],
      ["At", time(new Date().toISOString())],
      ["Subscribers", format.count(receipt.subscribers)],
      ["Stored", receipt.stored ? badge("stored in the log", "good") : badge("in memory only")],
      ["Payload", payload.length > 120 ? `${payload.slice(0, 120)}...` : payload],
    ]),
    h("a", { href: why, text: "Who did not get it?" }));
}
