/**
 * List of any length: only the rows in sight are elements.
 *
 * Rows have one height, so the place of each follows from its number. One row has the focus at a time and the
 * arrow keys move it, as the ARIA grid patterns describe.
 */

import { h, throttle } from "./dom.js";

const SPARE = 6;

/** Header row of columns: pairs of a title and a class. */
export function headOf(columns) {
  const cells = columns.map(([title, kind]) => h("span", { role: "columnheader", class: `cell ${kind}`, text: title }));
  return h("div", { role: "row", class: "row-head", "aria-rowindex": "1" }, cells);
}

/** Empty row of the same columns. */
export const rowOf = (columns) => h("div", {}, columns.map(([, kind]) => h("span", { role: "gridcell", class: `cell ${kind}` })));

export class VirtualList {
  #rows = new Map();
  #count = 0;
  #active = 0;

  /**
   * @param {object} options
   * @param {string} options.label of the list, for screen readers
   * @param {"treegrid" | "grid"} options.role
   * @param {() => Element} options.make an empty row
   * @param {(row: Element, index: number) => void} options.show fills a row
   * @param {(event: KeyboardEvent, index: number) => boolean} [options.onKey] true if the key was used
   * @param {(index: number, event: Event) => void} [options.onOpen] Enter or click
   * @param {Element} [options.head] header row
   */
  constructor({ label, role, make, show, onKey = () => false, onOpen = () => {}, head = null, onScroll = () => {} }) {
    this.#make = make;
    this.#show = show;
    this.onKey = onKey;
    this.onOpen = onOpen;
    this.space = h("div", { class: "space", role: "rowgroup" });
    const headGroup = head && h("div", { role: "rowgroup", class: "grid-head" }, head);
    this.element = h("div", { class: "virtual", role, "aria-label": label, tabindex: "-1" }, headGroup, this.space);
    this.draw = throttle(() => this.drawNow());
    this.element.addEventListener("scroll", () => { this.draw(); onScroll(); }, { passive: true });
    this.element.addEventListener("keydown", (event) => this.#onKeyDown(event));
    this.space.addEventListener("click", (event) => this.#onClick(event));
    this.space.addEventListener("focusin", (event) => this.#onFocus(event));
    this.resized = new ResizeObserver(() => { this.#height = 0; this.draw(); });
    this.resized.observe(this.element);
  }

  #make;
  #show;
  #height = 0;

  get rowHeight() {
    if (this.#height === 0) {
      this.#height = parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 34;
    }
    return this.#height;
  }

  get count() {
    return this.#count;
  }

  get active() {
    return this.#active;
  }

  /** Numbers of the first and the last row in sight. */
  get sight() {
    const top = this.element.scrollTop;
    const first = Math.floor(top / this.rowHeight);
    return [first, Math.min(this.#count - 1, Math.ceil((top + this.element.clientHeight) / this.rowHeight))];
  }

  /** Set the number of rows, and draw those in sight again. */
  refresh(count) {
    this.#count = count;
    this.#active = Math.min(this.#active, Math.max(0, count - 1));
    this.element.setAttribute("aria-rowcount", String(count + 1));
    this.draw();
  }

  drawNow() {
    if (!this.element.isConnected) return;
    const height = `${this.#count * this.rowHeight}px`;
    if (this.space.style.height !== height) this.space.style.height = height;
    const [from, to] = this.sight;
    const first = Math.max(0, from - SPARE);
    const last = Math.min(this.#count - 1, to + SPARE);
    const free = [];
    for (const [index, row] of this.#rows) {
      const isKept = index >= first && index <= last;
      if (isKept) continue;
      this.#rows.delete(index);
      if (index === this.#active && row.contains(document.activeElement) && index < this.#count) this.#rows.set(index, row);
      else free.push(row);
    }
    for (let index = first; index <= last; index += 1) {
      let row = this.#rows.get(index);
      if (!row) {
        row = free.pop() ?? this.#newRow();
        this.#rows.set(index, row);
        row.style.transform = `translateY(${index * this.rowHeight}px)`;
        row.dataset.index = String(index);
        row.setAttribute("aria-rowindex", String(index + 2));
      } else if (row.dataset.height !== String(this.rowHeight)) {
        row.style.transform = `translateY(${index * this.rowHeight}px)`;
      }
      row.dataset.height = String(this.rowHeight);
      row.tabIndex = index === this.#active ? 0 : -1;
      this.#show(row, index);
    }
    for (const row of free) row.remove();
  }

  #newRow() {
    const row = this.#make();
    row.classList.add("row");
    row.setAttribute("role", "row");
    this.space.append(row);
    return row;
  }

  /** Move the focus to a row, and scroll it into sight. */
  focus(index) {
    if (this.#count === 0) return;
    this.#active = Math.min(Math.max(0, index), this.#count - 1);
    this.reveal(this.#active);
    this.drawNow();
    this.#rows.get(this.#active)?.focus({ preventScroll: true });
  }

  reveal(index) {
    const top = index * this.rowHeight;
    const head = this.element.firstElementChild === this.space ? 0 : this.element.firstElementChild.offsetHeight;
    const room = this.element.clientHeight - head;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + this.rowHeight > this.element.scrollTop + room) this.element.scrollTop = top + this.rowHeight - room;
  }

  #onKeyDown(event) {
    if (event.target.closest(".row") === null || event.altKey || event.ctrlKey || event.metaKey) return;
    if (this.onKey(event, this.#active)) {
      event.preventDefault();
      return;
    }
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.#count, End: this.#count };
    if (event.key in moves) {
      event.preventDefault();
      this.focus(this.#active + moves[event.key]);
    } else if (event.key === "Enter" && !event.target.closest("a, button")) {
      event.preventDefault();
      this.onOpen(this.#active, event);
    }
  }

  #onClick(event) {
    const row = event.target.closest(".row");
    if (row && !event.target.closest("a")) this.onOpen(Number(row.dataset.index), event);
  }

  #onFocus(event) {
    const row = event.target.closest(".row");
    if (row) this.#active = Number(row.dataset.index);
  }
}
