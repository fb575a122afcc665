/** Topics as a tree whose levels are loaded when they are opened, and a search over all topics. */

import { get, path, poll } from "../api.js";
import { debounce, field, h, replace, setText, time } from "../dom.js";
import * as format from "../format.js";
import { headOf, rowOf, VirtualList } from "../virtual.js";
import { failure, nothing, topicHref } from "../widgets.js";

const PAGE = 1_000;
const REFRESH_MS = 3_000;
const INDENT_PX = 18;
const COLUMNS = [["Topic", "name"], ["Last value", "last"], ["When", "when"], ["Messages/s", "rate number"], ["Messages", "count number"], ["Topics below", "below number"]];

export function show(content, context) {
  const search = h("input", { type: "search", placeholder: "Part of a name, or a filter with + and #", autocomplete: "off", spellcheck: "false" });
  const note = h("p", { class: "muted", role: "status" });
  const problem = h("div");
  const tree = new Tree(context, note, problem);
  search.value = context.query.get("search") ?? "";
  search.addEventListener("input", debounce(() => tree.search(search.value.trim())));
  search.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    tree.list.focus(0);
  });
  replace(content, h("div", { class: "tools" }, field("Search topics", search), note), problem, tree.list.element);
  tree.search(search.value.trim());
}

/** One level of the tree, and what is known below it. */
class Level {
  isOpen = false;
  isLoading = false;
  children = null;
  next = null;

  constructor(facts, depth, parent) {
    this.depth = depth;
    this.parent = parent;
    this.learn(facts);
  }

  learn(facts) {
    this.facts = facts;
    this.isParent = facts.topics > (facts.is_topic ? 1 : 0);
  }
}

class Tree {
  #root = new Level({ name: null, topic: null, topics: Infinity }, -1, null);
  #rows = [];
  #found = null;
  #asked = "";

  constructor(context, note, problem) {
    this.context = context;
    this.note = note;
    this.problem = problem;
    this.list = new VirtualList({
      label: "Topics", role: "treegrid", head: headOf(COLUMNS), make: makeRow,
      show: (row, index) => this.#show(row, index),
      onKey: (event, index) => this.#onKey(event, index),
      onOpen: (index, event) => this.#open(index, event),
    });
    poll(REFRESH_MS, () => this.#refresh(), context.signal, (error) => error.status > 0 && replace(this.problem, failure(error)));
  }

  /** Show the tree, or the topics that a text or a filter finds. */
  async search(text) {
    this.#asked = text;
    replace(this.problem);
    this.list.element.scrollTop = 0;
    if (text === "") {
      this.#found = null;
      if (this.#root.children === null) await this.#load(this.#root);
      else this.#flatten();
      return;
    }
    const found = { query: /[+#]/.test(text) ? { filter: text } : { search: text }, rows: [], next: null, isLoading: false };
    this.#found = found;
    this.#flatten();
    await this.#more(found, text);
  }

  async #more(found, text) {
    if (found.isLoading) return;
    found.isLoading = true;
    try {
      const page = await get(path("/api/v1/topics", { ...found.query, after: found.next, limit: PAGE }), this.context);
      if (this.#asked !== text) return;
      for (const each of page.topics) {
        found.rows.push(new Level({ name: each.name, topic: each.name, is_topic: true, topics: 1, published: each.published, sequence: each.sequence, rate: null, last: null }, 0, null));
      }
      found.next = page.next;
      found.matching = page.matching;
      replace(this.problem);
      this.#flatten();
    } catch (error) {
      if (!this.context.signal.aborted && this.#asked === text) replace(this.problem, failure(error));
    } finally {
      found.isLoading = false;
    }
  }

  async #load(level) {
    if (level.isLoading) return;
    level.isLoading = true;
    try {
      const page = await this.#page(level, level.next, PAGE);
      const fresh = page.levels.map((each) => new Level(each, level.depth + 1, level));
      const isMore = level.children !== null;
      level.children = isMore ? level.children : [];
      level.children.push(...fresh);
      level.next = page.next;
      replace(this.problem);
      if (isMore && level !== this.#root && this.#insert(level, fresh)) return;
    } catch (error) {
      if (!this.context.signal.aborted) replace(this.problem, failure(error));
    } finally {
      level.isLoading = false;
    }
    this.#flatten();
  }

  /** Put a further page of a level in place of its last row, without a walk over all rows. */
  #insert(level, fresh) {
    const at = this.#found ? -1 : this.#rows.findLastIndex((row) => row.more === level);
    if (at < 0) return false;
    this.#rows.splice(at, 1, ...fresh, ...(level.next === null ? [] : [{ more: level, depth: level.depth + 1 }]));
    this.list.refresh(this.#rows.length);
    return true;
  }

  #page(level, after, limit) {
    const query = new URLSearchParams({ limit });
    if (level !== this.#root) query.set("under", level.facts.topic);
    if (after !== null) query.set("after", after);
    return get(`/api/v1/topics/tree?${query}`, this.context);
  }

  #flatten() {
    const rows = [];
    const walk = (level) => {
      for (const child of level.children ?? []) {
        rows.push(child);
        if (child.isOpen) walk(child);
      }
      if (level.next !== null) rows.push({ more: level, depth: level.depth + 1 });
    };
    if (this.#found) {
      rows.push(...this.#found.rows);
      if (this.#found.next !== null) rows.push({ more: this.#found, depth: 0 });
      setText(this.note, this.#found.matching === undefined ? "Searching ..." : `${format.counted(this.#found.matching, "topic")} found`);
    } else {
      walk(this.#root);
      const total = this.#root.children?.reduce((sum, each) => sum + (each.facts.topics ?? 0), 0);
      setText(this.note, total === undefined ? "Loading ..." : rows.length === 0 ? "No topics yet" : `${format.counted(total, "topic")}${this.#root.next === null ? "" : " and more"}`);
    }
    this.#rows = rows;
    this.list.refresh(rows.length);
  }

  /** Load values and counts of the levels in sight again, and what came or went between them. */
  async #refresh() {
    if (this.#found !== null || this.#root.children === null) return;
    const [first, last] = this.list.sight;
    const ranges = new Map();
    for (const level of this.#rows.slice(first, last + 1)) {
      if (level.more) continue;
      const range = ranges.get(level.parent) ?? [level, level];
      ranges.set(level.parent, [range[0], level]);
    }
    if (ranges.size === 0) ranges.set(this.#root, null);
    let isOther = false;
    for (const [parent, range] of ranges) isOther = (await this.#refreshRange(parent, range)) || isOther;
    if (isOther) this.#flatten();
    else this.list.draw();
  }

  async #refreshRange(parent, range) {
    const { children } = parent;
    const from = range === null ? 0 : children.indexOf(range[0]);
    const to = range === null ? -1 : children.indexOf(range[1]);
    if (from < 0) return false;
    const isEnd = to === children.length - 1 && parent.next === null;
    const page = await this.#page(parent, from > 0 ? children[from - 1].facts.name : null, Math.max(1, to - from + 1 + (isEnd ? 50 : 0)));
    const known = new Map(children.slice(from, to + 1).map((each) => [each.facts.name, each]));
    const fresh = [];
    for (const each of page.levels) {
      const level = known.get(each.name);
      if (level) level.learn(each);
      fresh.push(level ?? new Level(each, parent.depth + 1, parent));
    }
    const isSame = fresh.length === to - from + 1 && fresh.every((level) => known.has(level.facts.name));
    if (isSame) return false;
    if (isEnd) {
      children.splice(from, children.length - from, ...fresh);
      parent.next = page.next;
    } else {
      const shown = new Set(fresh.map((level) => level.facts.name));
      children.splice(from, to - from + 1, ...fresh);
      for (let at = children.length - 1; at >= from + fresh.length; at -= 1) if (shown.has(children[at].facts.name)) children.splice(at, 1);
    }
    return true;
  }

  #show(row, index) {
    const level = this.#rows[index];
    const [name, last, when, rate, count, below] = row.children;
    if (level === undefined) return;
    row.classList.toggle("more", Boolean(level.more));
    name.style.paddingLeft = `${8 + level.depth * INDENT_PX}px`;
    row.setAttribute("aria-level", String(level.depth + 1));
    if (level.more) {
      row.removeAttribute("aria-expanded");
      setName(name, { text: "Loading more ..." });
      for (const cell of [last, when, rate, count, below]) setText(cell, "");
      if (this.#found) this.#more(this.#found, this.#asked);
      else this.#load(level.more);
      return;
    }
    const { facts } = level;
    if (level.isParent) row.setAttribute("aria-expanded", String(level.isOpen));
    else row.removeAttribute("aria-expanded");
    setName(name, { text: facts.name || "(empty level)", href: facts.is_topic ? topicHref(facts.topic) : null, isEmpty: facts.name === "" });
    const value = facts.last ? preview(facts.last) : "";
    setText(last, value);
    last.title = value;
    showWhen(when, facts.last?.at);
    setText(rate, facts.rate === null || facts.rate === undefined ? "" : facts.rate > 0 ? format.rate(facts.rate) : "0");
    setText(count, facts.is_topic ? countText(facts) : "");
    setText(below, level.isParent ? `${format.count(facts.topics - (facts.is_topic ? 1 : 0))}${facts.more ? "+" : ""}` : "");
  }

  #onKey(event, index) {
    const level = this.#rows[index];
    if (!level || level.more) return false;
    if (event.key === "ArrowRight" && level.isParent) {
      if (level.isOpen) this.list.focus(index + 1);
      else this.#toggle(level);
      return true;
    }
    if (event.key === "ArrowLeft") {
      if (level.isOpen) this.#toggle(level);
      else if (level.parent && level.parent !== this.#root) this.list.focus(this.#rows.indexOf(level.parent));
      return true;
    }
    return false;
  }

  #open(index, event) {
    const level = this.#rows[index];
    if (!level || level.more) return;
    const isKey = event.type === "keydown";
    if (level.isParent && !(isKey && level.facts.is_topic)) this.#toggle(level);
    else location.hash = topicHref(level.facts.topic);
  }

  #toggle(level) {
    level.isOpen = !level.isOpen;
    if (level.isOpen && level.children === null) this.#load(level);
    this.#flatten();
  }
}

function makeRow() {
  const row = rowOf(COLUMNS);
  row.firstChild.role = "rowheader";
  row.firstChild.append(h("span", { class: "caret", "aria-hidden": "true" }), h("a", { tabindex: "-1" }));
  return row;
}

function setName(cell, { text, href = null, isEmpty = false }) {
  const anchor = cell.lastChild;
  setText(anchor, text);
  if (href === null) anchor.removeAttribute("href");
  else if (anchor.getAttribute("href") !== href) anchor.setAttribute("href", href);
  anchor.classList.toggle("muted", isEmpty);
  anchor.title = text;
}

function showWhen(cell, iso) {
  if (!iso) {
    setText(cell, "");
    return;
  }
  const fresh = time(iso, true);
  const [shown] = cell.children;
  if (!shown) replace(cell, fresh);
  else {
    setText(shown, fresh.textContent);
    shown.title = fresh.title;
    shown.dateTime = iso;
  }
}

/** Number of messages; empty if the topic was not used since the server started, since it is not known then. */
function countText({ last, sequence, published }) {
  const known = last?.sequence ?? sequence ?? published;
  return known > 0 ? format.count(known) : "";
}

/** A value on one line; what was cut by the server says so. */
function preview(last) {
  if (last.data === undefined || last.data === null) return last.size ? format.size(last.size) : "null";
  const { text } = format.payload(last);
  return text.length > 200 ? `${text.slice(0, 200)}...` : text;
}
