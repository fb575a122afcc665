/**
 * Numbers, sizes, times and payloads as text for people.
 *
 * Units are those of the command line. A value that is not known is shown as `-`.
 */

export const ABSENT = "-";

const counts = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SIZES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
const MINUTE = 60;
const HOUR = 3_600;
const DAY = 86_400;

const isAbsent = (value) => value === null || value === undefined || Number.isNaN(value);

/** A whole number: `12,345`. */
export const count = (number) => (isAbsent(number) ? ABSENT : counts.format(number));

/** A rate without its unit: `1,234`, and below ten with one decimal place. */
export function rate(perSecond) {
  if (isAbsent(perSecond)) return ABSENT;
  return perSecond > 0 && perSecond < 9.95 ? perSecond.toFixed(1) : counts.format(perSecond);
}

/** A number of bytes: `512 B`, `1.5 KiB`. */
export function size(bytes) {
  if (isAbsent(bytes)) return ABSENT;
  const unit = SIZES.find(([least]) => bytes >= least);
  return unit ? `${(bytes / unit[0]).toFixed(1)} ${unit[1]}` : `${counts.format(bytes)} B`;
}

/** A short time: `0.12 ms`, `12.3 ms`, `1,234 ms`. */
export function milliseconds(time) {
  if (isAbsent(time)) return ABSENT;
  if (time < 10) return `${time.toFixed(2)} ms`;
  return time < 100 ? `${time.toFixed(1)} ms` : `${counts.format(time)} ms`;
}

/** A long time in its two largest units: `42 s`, `3 min 05 s`, `2 h 07 min`, `12 d 03 h`. */
export function duration(seconds) {
  if (isAbsent(seconds)) return ABSENT;
  const whole = Math.trunc(seconds);
  const two = (number) => String(number).padStart(2, "0");
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return `${Math.trunc(whole / MINUTE)} min ${two(whole % MINUTE)} s`;
  if (whole < DAY) return `${Math.trunc(whole / HOUR)} h ${two(Math.trunc((whole % HOUR) / MINUTE))} min`;
  return `${Math.trunc(whole / DAY)} d ${two(Math.trunc((whole % DAY) / HOUR))} h`;
}

/** `1 message`, `1,234 messages`. */
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A compact number for an axis: `950`, `12k`, `1.5M`. */
export function compact(number) {
  for (const [least, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(number) >= least) return `${Number((number / least).toPrecision(3))}${unit}`;
  }
  return String(Number(number.toPrecision(3)));
}

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const day = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });

/** Time of day in the browser's zone; with its date if it is another day. */
export function localTime(when, isWithDate = when.toDateString() !== new Date().toDateString()) {
  return isWithDate ? `${day.format(when)}, ${clock.format(when)}` : clock.format(when);
}

export const utcTime = (when) => `${when.toISOString().replace("T", " ").replace("Z", "")} UTC`;

/** `now`, `12 s ago`, `3 min ago`, `in 2 h`. */
export function ago(when, now = new Date()) {
  const seconds = (now - when) / 1_000;
  const far = Math.abs(seconds);
  if (far < 2) return "now";
  const [unit, name] = [[DAY, "d"], [HOUR, "h"], [MINUTE, "min"], [1, "s"]].find(([least]) => far >= least);
  const text = `${Math.floor(far / unit)} ${name}`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

const DOORS = {
  mqtt: "MQTT", sidecar: "gRPC", grpc: "gRPC", web: "Web", http: "HTTP", websocket: "WebSocket", streams: "Streams",
};

/** Name of a front door as people know its protocol. */
export const doorName = (door) => DOORS[door] ?? door;

const strict = new TextDecoder("utf-8", { fatal: true });
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f]/;
const HEX_BYTES = 256;

/** Bytes of base64. */
function bytesOf(base64) {
  const text = atob(base64);
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

const isBytes = (data) => typeof data === "object" && data !== null && typeof data.$bytes === "string";

/**
 * The payload of a message for people.
 * @param {{data: any, encoding?: "text"}} message
 * @returns {{kind: "json" | "text" | "bytes" | "empty", text: string, pretty: string, bytes: number}}
 *   `text` fits one line, `pretty` is the whole payload.
 */
export function payload({ data, encoding }) {
  if (encoding === "text") {
    if (data === "") return { kind: "empty", text: "(empty)", pretty: "(empty)", bytes: 0 };
    return { kind: "text", text: data, pretty: data, bytes: new Blob([data]).size };
  }
  if (!isBytes(data)) {
    const text = JSON.stringify(data) ?? "";
    const pretty = typeof data === "object" ? JSON.stringify(data, null, 2) : text;
    return { kind: "json", text, pretty, bytes: new Blob([text]).size };
  }
  const bytes = bytesOf(data.$bytes);
  if (bytes.length === 0) return { kind: "empty", text: "(empty)", pretty: "(empty)", bytes: 0 };
  try {
    const text = strict.decode(bytes);
    if (!CONTROLS.test(text)) return { kind: "text", text, pretty: text, bytes: bytes.length };
  } catch {
    // Not UTF-8: shown as hexadecimal below.
  }
  const shown = [...bytes.subarray(0, HEX_BYTES)].map((byte) => byte.toString(16).padStart(2, "0"));
  const rest = bytes.length > HEX_BYTES ? ` ... (${size(bytes.length)})` : "";
  const lines = [];
  for (let at = 0; at < shown.length; at += 16) {
    lines.push(`${at.toString(16).padStart(4, "0")}  ${shown.slice(at, at + 16).join(" ")}`);
  }
  return { kind: "bytes", text: `0x ${shown.slice(0, 32).join(" ")}${rest}`, pretty: lines.join("\n") + rest, bytes: bytes.length };
}

const MOST_PATHS = 50;

/** Numbers in a payload by path: `value` for a bare number, `vibration.x` for a field. */
export function numbersIn(data) {
  const found = new Map();
  const value = isBytes(data) ? numberOf(payload({ data }).text) : data;
  const walk = (each, path, depth) => {
    if (found.size >= MOST_PATHS) return;
    if (typeof each === "number" && Number.isFinite(each)) found.set(path || "value", each);
    else if (typeof each === "boolean") found.set(path || "value", Number(each));
    else if (typeof each === "object" && each !== null && depth < 4) {
      for (const [name, below] of Object.entries(each)) walk(below, path ? `${path}.${name}` : name, depth + 1);
    } else if (typeof each === "string" && path === "") {
      const number = numberOf(each);
      if (typeof number === "number") found.set("value", number);
    }
  };
  walk(value, "", 0);
  return found;
}

/** The number that a text is, or the JSON object in it; otherwise null. */
function numberOf(text) {
  const trimmed = text.trim();
  if (/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(trimmed)) return Number(trimmed);
  if (!trimmed.startsWith("{")) return null;
  try {
    return JSON.parse(trimmed);
  } catch {
    return null;
  }
}
