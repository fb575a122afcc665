/**
 * Small parts that pages share: explanations of terms, confirmations, notices, states, theme.
 */

import { announce, freshId, h } from "./dom.js";
import * as format from "./format.js";

// Terms

const TERMS = {
  door: "A front door is a protocol that clients connect by: MQTT, gRPC, HTTP, WebSocket, streams. All doors share one set of topics.",
  outbox: "The queue of messages that wait to be sent to one subscriber. When it is full, the subscriber's policy decides what is dropped.",
  "offline queue": "Messages kept for a client that is offline, or far behind, until it reconnects or its session expires.",
  "in flight": "Messages that were sent and not acknowledged by the client yet (QoS 1 and 2).",
  ring: "The newest messages of a topic, kept in memory for replay. Older ones are read from the log, if there is one.",
  hold: "A reader's claim on the log: retention deletes nothing behind the hold until it is moved, released, or lapses.",
  "loop lag": "How late the server's event loop runs its work. Above 50 ms the server is busy, above 200 ms it is overloaded.",
  sequence: "The number of a message within its topic, counting from 1.",
  offset: "The position of a message in the log, across all topics. The server's own messages take offsets too, and are not stored, so there are more offsets than messages.",
  epoch: "Rises with every start of a server that has a data directory.",
  cursor: "A position in the log that every door understands: reading after it continues there.",
  dropped: "Deliveries lost to a full outbox or another limit. Each is recorded with its reason; see Why.",
  "not delivered": "A message counts once for each subscriber that did not get it, whatever the reason.",
  retained: "The last value of a topic that was published with the retain flag. New subscribers get it at once.",
  will: "A message that the server publishes for a client whose connection is lost.",
  policy: "What happens when a subscriber's outbox is full: drop the oldest or the newest message, disconnect it, or block the publisher.",
  QoS: "Quality of service: 0 at most once, 1 at least once, 2 exactly once.",
  latency: "Time from a message's arrival until it was handed to a subscriber's connection.",
  session: "Subscriptions and queues of a client. It may outlive the connection.",
};

/** A term with an explanation that mouse, keyboard and touch can open. */
export function term(name, label = name) {
  const text = TERMS[name];
  if (!text) return label;
  const id = freshId("term");
  const note = h("span", { id, class: "note", popover: "auto", role: "tooltip", text });
  const button = h("button", { type: "button", class: "term", "aria-label": `Explain ${name}`, "aria-describedby": id, text: "?" });
  const show = () => {
    note.showPopover();
    const place = button.getBoundingClientRect();
    const left = Math.min(Math.max(8, place.left - 16), innerWidth - note.offsetWidth - 8);
    const below = place.bottom + 6;
    const top = below + note.offsetHeight > innerHeight ? place.top - note.offsetHeight - 6 : below;
    note.style.left = `${left}px`;
    note.style.top = `${top}px`;
  };
  const hide = () => note.isConnected && note.hidePopover();
  button.addEventListener("click", (event) => {
    event.stopPropagation();
    show();
  });
  button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && show());
  button.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
  button.addEventListener("blur", hide);
  return h("span", { class: "termed" }, label, " ", button, note);
}

// Confirmation

/**
 * Ask before something that cannot be undone; resolves to true if it was confirmed.
 * @param {{title: string, text: string | Node, action: string}} question
 */
export function confirm({ title, text, action }) {
  return new Promise((resolve) => {
    const heading = freshId("dialog");
    const before = document.activeElement;
    const dialog = h(
      "dialog",
      { "aria-labelledby": heading, class: "dialog" },
      h("form", { method: "dialog" },
        h("h2", { id: heading, text: title }),
        h("p", {}, text),
        h("div", { class: "actions" },
          h("button", { value: "no", class: "button", autofocus: true, text: "Cancel" }),
          h("button", { value: "yes", class: "button danger", text: action }))),
    );
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
      if (before?.isConnected) before.focus();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Notices

const NOTICE_MS = 6_000;

/** Show a short notice in the corner, and read it out. */
export function notify(text, kind = "good") {
  let stack = document.getElementById("notices");
  if (!stack) {
    stack = h("div", { id: "notices" });
    document.body.append(stack);
  }
  const notice = h("div", { class: `notice ${kind}`, text });
  stack.append(notice);
  announce(text);
  setTimeout(() => notice.remove(), NOTICE_MS);
}

/** A panel in place of content that could not be had. */
export function failure(error) {
  const titles = { 0: "Server unreachable", 401: "Please log in", 403: "Not allowed", 404: "Not here" };
  return h("div", { class: "panel bad", role: "alert" },
    h("strong", { text: titles[error.status] ?? "That did not work" }),
    h("p", { text: error.message }));
}

/** A calm line where a list is empty. */
export const nothing = (...text) => h("p", { class: "nothing" }, text);

// States

/** A word in a colour that says how good it is; the word alone says it, too. */
export const badge = (text, kind = "plain") => h("span", { class: `badge ${kind}`, text });

/** Kind of a figure by its thresholds. */
export const severity = (value, elevated, critical) => (value >= critical ? "bad" : value >= elevated ? "fair" : "plain");

/**
 * A card with a figure.
 * @returns {Element & {show: (value: string, note?: string, kind?: string) => void}}
 */
export function card(label, href = null) {
  const value = h("span", { class: "value", text: "-" });
  const note = h("span", { class: "under", text: "\u00a0" });
  const head = h("h3", { class: "label" }, label);
  const whole = h("div", { class: "card" }, head, href ? h("a", { href, class: "value-link" }, value) : value, note);
  whole.show = (text, under = "\u00a0", kind = "plain") => {
    if (value.textContent !== text) value.textContent = text;
    if (note.textContent !== under) note.textContent = under;
    value.className = `value ${kind}`;
  };
  return whole;
}

/** Names and values. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** The payload of a message, cut if it is very long. */
export function payloadView(message) {
  const shown = format.payload(message);
  const kinds = { json: "JSON", text: "text", bytes: "bytes", empty: "empty" };
  const limit = 20_000;
  const text = shown.pretty.length > limit ? `${shown.pretty.slice(0, limit)}\n... (cut here)` : shown.pretty;
  return h("div", { class: "payload" },
    h("div", { class: "muted small", text: `${kinds[shown.kind]}, ${format.size(shown.bytes)}` }),
    h("pre", { tabindex: "0", "aria-label": "Payload", text }));
}

/** Address of a topic's page. */
export const topicHref = (topic) => `#/topics/${topic.split("/").map(encodeURIComponent).join("/")}`;
export const topicLink = (topic) => h("a", { href: topicHref(topic), class: "topic", text: topic });
const clientHref = (id) => `#/clients/${encodeURIComponent(id)}`;
export const clientLink = (id) => (id ? h("a", { href: clientHref(id), class: "topic", text: id }) : h("span", { class: "muted", text: "-" }));

/**
 * Buttons for pages of a list that continues by name.
 * @param {(after: string | null) => void} go
 */
export function pager(go) {
  const before = [];
  let after = null;
  let next = null;
  const back = h("button", { type: "button", class: "button", text: "Previous", onclick: () => { after = before.pop() ?? null; go(after); } });
  const forth = h("button", { type: "button", class: "button", text: "Next", onclick: () => { before.push(after); after = next; go(after); } });
  const label = h("span", { class: "muted" });
  const whole = h("nav", { class: "pager", "aria-label": "Pages of the list" }, back, forth, label);
  return {
    whole,
    reset() { before.length = 0; after = null; },
    get after() { return after; },
    show(following, text) {
      next = following;
      back.disabled = before.length === 0;
      forth.disabled = following === null;
      back.hidden = forth.hidden = before.length === 0 && following === null;
      label.textContent = text;
    },
  };
}

// Theme

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };
const THEME_KEY = "penstock-theme";

/** A choice of the theme that this browser remembers. */
export function themeChoice() {
  const stored = read(THEME_KEY);
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  const choice = h("select", { class: "theme", "aria-label": "Theme", onchange: () => { apply(choice.value); write(THEME_KEY, choice.value); } },
    Object.entries(THEMES).map(([value, text]) => h("option", { value, text })));
  choice.value = stored in THEMES ? stored : "auto";
  apply(choice.value);
  return choice;
}

/** A value that this browser remembers; null where it must not. */
export function read(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function write(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Not remembered, then.
  }
}
