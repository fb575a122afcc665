/**
 * Elements, built without HTML text: data can never become markup.
 */

import { ago, localTime, utcTime } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * Element with attributes and children.
 *
 * `on...` are listeners, `class`, `text` and properties such as `value` are set as such; false, null and undefined
 * are left out. Children are nodes, texts, or lists of them.
 */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function s(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "required", "selected", "readOnly"]);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Replace the children of an element. */
export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Set a text only if it differs: nothing is drawn, or read out, without need. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A moment in local time, with UTC on hover. `relative` shows how long ago it was. */
export function time(iso, relative = false) {
  if (!iso) return h("span", { class: "muted", text: "-" });
  const when = new Date(iso);
  const text = relative ? ago(when) : localTime(when);
  const title = relative ? `${localTime(when, true)}, ${utcTime(when)}` : utcTime(when);
  return h("time", { datetime: iso, title, text });
}

let made = 0;

/** An id that no other element has. */
export const freshId = (prefix) => `${prefix}-${(made += 1)}`;

/** A field with its label and, if there is one, a hint that screen readers read with it. */
export function field(label, control, hint = null) {
  const id = control.id || freshId("field");
  control.id = id;
  const note = hint && h("span", { class: "hint", id: `${id}-hint` }, hint);
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, note);
}

/**
 * A real table.
 * @param {string} caption for screen readers
 * @param {{title: string | Node, class?: string}[]} columns
 */
export function table(caption, columns, rows = []) {
  const head = h("tr", {}, columns.map((each) => h("th", { scope: "col", class: each.class }, each.title)));
  const body = h("tbody", {}, rows);
  const whole = h("table", {}, h("caption", { class: "unseen", text: caption }), h("thead", {}, head), body);
  const frame = h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, whole);
  return { frame, body, whole };
}

/**
 * Update a list of elements by key in place: those that stay are kept with their focus and selection.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => Element} make
 * @param {(element: Element, item: T) => void} [update]
 */
export function reconcile(parent, items, keyOf, make, update = () => {}) {
  const known = new Map([...parent.children].map((each) => [each.dataset.key, each]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let element = known.get(key);
    if (element) {
      known.delete(key);
      update(element, item);
    } else {
      element = make(item);
      element.dataset.key = key;
    }
    if (element === at) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
  }
  for (const left of known.values()) left.remove();
}

/** Read a text out by screen readers, politely. */
export function announce(text) {
  const region = document.getElementById("announcer");
  if (region) region.textContent = text;
}

/** Call a function at most once per frame, and no more often than every `leastMs`. */
export function throttle(draw, leastMs = 0) {
  let isDue = false;
  let last = -Infinity;
  const run = (now) => {
    if (now - last < leastMs) {
      requestAnimationFrame(run);
      return;
    }
    isDue = false;
    last = now;
    draw();
  };
  return () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(run);
  };
}

/** Call a function when nothing has changed for a while. */
export function debounce(act, ms = 250) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...given), ms);
  };
}
