/**
 * Line charts as SVG: one path per series, a crosshair for mouse and arrow keys, a summary for screen readers.
 */

import { h, replace, s, setText } from "./dom.js";
import { compact, localTime, utcTime } from "./format.js";

const WIDTH = 640;
const HEIGHT = 190;
const LEFT = 46;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 22;

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {string} colour class of the line
 * @property {(number | null)[]} values null where nothing is known
 */

export class Chart {
  #series = [];
  #times = [];
  #most = 1;
  #least = 0;
  #at = null;

  /**
   * @param {string} title
   * @param {object} [options]
   * @param {(value: number) => string} [options.show] a value as text
   * @param {boolean} [options.isFromZero] the axis starts at zero
   * @param {Node | string} [options.heading] in place of the title
   */
  constructor(title, { show = compact, axis = compact, isFromZero = true, heading = title } = {}) {
    this.title = title;
    this.show = show;
    this.axis = axis;
    this.isFromZero = isFromZero;
    this.lines = s("g", { class: "lines" });
    this.grid = s("g", { class: "grid" });
    this.cross = s("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM });
    this.cross.style.visibility = "hidden";
    this.plot = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", "aria-hidden": "true", preserveAspectRatio: "none" }, this.grid, this.lines, this.cross);
    this.labels = h("div", { class: "axis", "aria-hidden": "true" });
    this.readout = h("div", { class: "readout", "aria-live": "polite" });
    this.legend = h("ul", { class: "legend" });
    this.frame = h("div", { class: "plot-frame", tabindex: "0", role: "img", "aria-label": title }, this.plot, this.labels);
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, heading), this.frame, this.readout, this.legend);
    this.frame.addEventListener("pointermove", (event) => this.#point(event));
    this.frame.addEventListener("pointerleave", () => this.#move(null));
    this.frame.addEventListener("keydown", (event) => this.#onKey(event));
    this.frame.addEventListener("blur", () => this.#move(null));
  }

  /**
   * Draw series over times.
   * @param {number[]} times milliseconds, rising
   * @param {Series[]} series
   */
  draw(times, series) {
    this.#times = times;
    this.#series = series;
    const values = series.flatMap((each) => each.values).filter((value) => value !== null && Number.isFinite(value));
    let most = values.reduce((a, b) => Math.max(a, b), this.isFromZero ? 0 : -Infinity);
    let least = values.reduce((a, b) => Math.min(a, b), this.isFromZero ? 0 : Infinity);
    if (values.length === 0) [least, most] = [0, 1];
    if (most === least) [least, most] = this.isFromZero ? [0, most || 1] : [least - 1, most + 1];
    const ticks = ticksOf(least, most);
    this.#least = this.isFromZero ? 0 : Math.min(least, ticks[0]);
    this.#most = Math.max(most, ticks.at(-1));
    replace(this.lines, series.map((each) => s("path", { class: `line ${each.colour}`, d: this.#path(each.values) })));
    this.#drawAxes(ticks);
    this.#drawLegend();
    this.frame.setAttribute("aria-label", this.#summary());
    this.#move(this.#at);
  }

  #x(time) {
    const [first, last] = [this.#times[0], this.#times.at(-1)];
    return LEFT + ((time - first) / Math.max(1, last - first)) * (WIDTH - LEFT - RIGHT);
  }

  #y(value) {
    return HEIGHT - BOTTOM - ((value - this.#least) / (this.#most - this.#least)) * (HEIGHT - TOP - BOTTOM);
  }

  #path(values) {
    const parts = [];
    let isOpen = false;
    values.forEach((value, index) => {
      if (value === null || !Number.isFinite(value)) {
        isOpen = false;
        return;
      }
      parts.push(`${isOpen ? "L" : "M"}${this.#x(this.#times[index]).toFixed(1)} ${this.#y(value).toFixed(1)}`);
      if (!isOpen && (values[index + 1] ?? null) === null) parts.push("h.1");
      isOpen = true;
    });
    return parts.join("");
  }

  #drawAxes(ticks) {
    replace(this.grid, ticks.map((tick) => s("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: this.#y(tick), y2: this.#y(tick) })));
    const texts = ticks.map((tick) => {
      const label = h("span", { class: "tick", text: this.axis(tick) });
      label.style.top = `${(this.#y(tick) / HEIGHT) * 100}%`;
      return label;
    });
    if (this.#times.length > 1) {
      const [first, last] = [this.#times[0], this.#times.at(-1)];
      for (const share of [0, 0.5, 1]) {
        const when = new Date(first + (last - first) * share);
        const label = h("span", { class: `moment at-${share * 100}`, text: localTime(when, false).slice(0, last - first > 120_000 ? 5 : 8) });
        texts.push(label);
      }
    }
    replace(this.labels, texts);
  }

  #drawLegend() {
    const items = this.#series.length < 2 ? [] : this.#series;
    const names = items.map((each) => `${each.colour} ${each.name}`).join();
    if (this.legend.dataset.names === names) return;
    this.legend.dataset.names = names;
    replace(this.legend, items.map((each) => h("li", {}, h("span", { class: `swatch ${each.colour}`, "aria-hidden": "true" }), each.name)));
  }

  #summary() {
    const said = this.#series.map((each) => {
      const known = each.values.filter((value) => value !== null);
      if (known.length === 0) return `${each.name}: no values`;
      const most = known.reduce((a, b) => Math.max(a, b), -Infinity);
      return `${each.name}: now ${this.show(known.at(-1))}, highest ${this.show(most)}`;
    });
    return `${this.title}, line chart. ${said.join("; ")}. Arrow keys read single values.`;
  }

  #point(event) {
    if (this.#times.length === 0) return;
    const box = this.plot.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH;
    const [first, last] = [this.#times[0], this.#times.at(-1)];
    const time = first + ((x - LEFT) / (WIDTH - LEFT - RIGHT)) * (last - first);
    this.#move(nearest(this.#times, time));
  }

  #onKey(event) {
    const length = this.#times.length;
    const from = this.#at ?? length - 1;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: length - 1, Escape: null }[event.key];
    if (to === undefined || length === 0) return;
    event.preventDefault();
    this.#move(to === null ? null : Math.min(Math.max(0, to), length - 1));
  }

  #move(index) {
    this.#at = index !== null && index < this.#times.length ? index : null;
    this.cross.style.visibility = this.#at === null ? "hidden" : "visible";
    if (this.#at === null) {
      setText(this.readout, "");
      return;
    }
    const when = new Date(this.#times[this.#at]);
    const x = this.#x(this.#times[this.#at]);
    this.cross.setAttribute("x1", x);
    this.cross.setAttribute("x2", x);
    const values = this.#series.map((each) => {
      const value = each.values[this.#at] ?? null;
      return `${this.#series.length > 1 ? `${each.name} ` : ""}${value === null ? "-" : this.show(value)}`;
    });
    setText(this.readout, `${localTime(when)}   ${values.join("   ")}`);
    this.readout.title = utcTime(when);
  }
}

/** Three to six round values that span a range. */
function ticksOf(least, most) {
  const step = niceStep((most - least) / 4);
  const ticks = [];
  for (let tick = Math.floor(least / step) * step; tick < most + step * 0.999; tick += step) ticks.push(Number(tick.toPrecision(12)));
  return ticks;
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 2.5, 5, 10].find((each) => each * power >= rough) ?? 10;
  return factor * power;
}

function nearest(times, time) {
  let [low, high] = [0, times.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low > 0 && time - times[low - 1] < times[low] - time ? low - 1 : low;
}
