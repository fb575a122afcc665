/**
 * Penstock for web pages: subscribe and publish over one WebSocket that mends itself.
 *
 *     import { connect } from "/penstock.js";
 *
 *     const client = connect("/ws", { onGap: (statement) => console.warn("missed", statement) });
 *     await client.subscribe("sensors/#", ({ topic, data }) => console.log(topic, data));
 *     await client.publish("sensors/kitchen", { celsius: 21.5 });
 *
 * When the connection breaks it is made again, and every subscription goes on behind the last message that
 * its handler got: each message comes once, and in order. What the server cannot give any more it names, and
 * `onGap` is called. A publication is sent once: if its response is lost with the connection, its promise rejects.
 */

/**
 * @typedef {object} Message what a handler gets
 * @property {string} topic
 * @property {any} data the JSON value that was published, or text; any other payload is a `Uint8Array`
 * @property {"text"} [encoding] there if `data` is a text that was published as it is, and not as a JSON string
 * @property {string} id the same for every subscriber of this message
 * @property {number} sequence counts the messages of a topic
 * @property {string} cursor the place of this message: `subscribe` with `after` goes on behind it
 */

/**
 * @typedef {object} Statement what a replay brought, and what it could not bring
 * @property {string | null} after where it began
 * @property {string | null} next where it ended
 * @property {number} served how many messages it brought
 * @property {boolean} is_complete
 * @property {{topic: string, first: number | null, last: number, reason: string}[]} missing sequences
 * @property {{first: number, last: number, reason: string}[]} gaps places of the log that are lost
 * @property {string} [reason] why nothing is known of what was missed: `epoch-changed`
 */

/**
 * @typedef {object} Options
 * @property {string} [token] credentials, where the server needs them: `btoa("user:password")`
 * @property {(state: State) => void} [onState] the connection is made, open, waiting to be made again, or closed
 * @property {(statement: Statement, subscription: Subscription) => void} [onGap] messages are missing, and why
 * @property {(error: PenstockError, subscription: Subscription) => void} [onEnd] the server ended one: why
 * @property {(error: PenstockError) => void} [onError] an error without a request, or refused credentials
 * @property {number} [retryMs] how long to wait before connecting again; it doubles with each attempt (1000)
 * @property {number} [maxRetryMs] how long to wait at most (30000)
 * @property {number} [silenceMs] how long to hear nothing before asking whether the server is there (20000)
 * @property {number} [maxWaiting] how many publications may wait for a connection (1000)
 */

/** @typedef {"connecting" | "open" | "waiting" | "closed"} State */
/** @typedef {(message: Message) => void} Handler */
/** @typedef {{ after?: string, lastN?: number }} Start */
/** @typedef {{ request_type: string, topic: string, message: string, cursor?: string }} Ack */
/** @typedef {{ resolve: (answer: any) => void, reject: (error: PenstockError) => void }} Promised */

const CALLBACKS = { onState: () => {}, onGap: () => {}, onEnd: console.error, onError: console.error };
const LIMITS = { retryMs: 1_000, maxRetryMs: 30_000, silenceMs: 20_000, maxWaiting: 1_000 };

/**
 * Connect to a server, and stay connected.
 * @param {string} [url] of the server, or of its `/ws`; without it, of the server that the page is from
 * @param {Options} [options]
 */
export function connect(url = "/ws", options = {}) {
  return new Client(url, options);
}

/** What went wrong: `code` is for programs, `message` for people. */
export class PenstockError extends Error {
  /** @param {string} code @param {string} message @param {Record<string, any>} [details] */
  constructor(code, message, details = {}) {
    super(message);
    this.name = "PenstockError";
    this.code = code;
    this.details = details;
  }
}

/** One topic or filter that a client listens to. */
export class Subscription {
  /** `live` once the replay is complete. @type {"waiting" | "asked" | "replaying" | "live"} */ state = "waiting";
  isConfirmed = false; // the page was notified

  /** @param {string} filter @param {Handler} handler @param {Start} start @param {Promised} promised */
  constructor(filter, handler, { after, lastN = 0 }, promised) {
    this.filter = filter;
    this.handler = handler;
    this.lastN = lastN;
    this.promised = promised;
    this.cursor = after; // where it is: keep it, and a later visit of the page can go on with it as `after`
  }
}

/** A connection to one server, and everything that outlives its breaks. */
export class Client {
  /** @type {State} */ state = "connecting";
  /** @type {Map<string, Subscription>} */ #subscriptions = new Map(); // by their filters
  /** @type {Map<string, Promised>} */ #requests = new Map(); // sent, and not answered
  /** @type {(Promised & { publication: object })[]} */ #publications = []; // not sent: there is no connection
  /** @type {WebSocket | undefined} */ #socket;
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #timer; // until connecting again, or of silence
  /** @type {PenstockError | undefined} */ #ending; // why it is closed
  /** @type {string | undefined} */ #complaint; // error of the last attempt to connect
  #attempts = 0;
  #lastId = 0;
  #address;
  #options;

  /** @param {string} url @param {Options} options */
  constructor(url, options) {
    if (!globalThis.WebSocket) throw new PenstockError("UNSUPPORTED", "no WebSocket: take a browser, or Node 22");
    this.#address = addressOf(url, options.token);
    this.#options = { ...CALLBACKS, ...LIMITS, ...options };
    this.#connect();
    queueMicrotask(() => this.#ending ?? guarded(() => this.#options.onState(this.state))); // now the page has it
  }

  /**
   * Get the messages of a topic, or of all topics that a filter with `+` and `#` matches.
   * @param {string} filter
   * @param {Handler} handler
   * @param {Start} [start] go on behind a cursor, or begin with the last messages; else only new ones come
   * @returns {Promise<Subscription>} when the server has agreed
   */
  subscribe(filter, handler, start = {}) {
    if (this.#ending) return Promise.reject(this.#ending);
    if (this.#subscriptions.has(filter)) return Promise.reject(refusal(`already subscribed to '${filter}'`));
    if (filter.startsWith("$share/")) return Promise.reject(refusal("pages are no members of groups"));
    return new Promise((resolve, reject) => {
      this.#subscriptions.set(filter, new Subscription(filter, handler, start, { resolve, reject }));
      this.#ask();
    });
  }

  /** Get no more messages of a filter: its handler is not called any more. @param {string} filter */
  async unsubscribe(filter) {
    const subscription = this.#subscriptions.get(filter);
    if (subscription) this.#remove(subscription, refusal(`unsubscribed from '${filter}' meanwhile`));
    if (!subscription || subscription.state === "waiting") return;
    await this.#request({ type: "unsubscribe", filter }).catch(() => {}); // it is over either way
    this.#ask();
  }

  /**
   * Publish a JSON value, or bytes as a `Uint8Array`. Without a connection it waits for the next one.
   * @param {string} topic
   * @param {any} data
   * @returns {Promise<Ack>} when the server has it
   */
  publish(topic, data) {
    const publication = { type: "publish", topic, data: data instanceof Uint8Array ? wrap(data) : data };
    if (this.state === "open") return this.#request(publication);
    if (this.#ending) return Promise.reject(this.#ending);
    if (this.#publications.length >= this.#options.maxWaiting) return Promise.reject(crowded());
    return new Promise((resolve, reject) => this.#publications.push({ publication, resolve, reject }));
  }

  /** End the connection and everything on it, for good. @param {PenstockError} [error] rejects pending promises */
  close(error = new PenstockError("CLOSED", "the client was closed")) {
    if (this.#ending) return;
    this.#ending = error;
    this.#leave();
    this.#enter("closed");
    for (const subscription of [...this.#subscriptions.values()]) this.#remove(subscription, error);
    for (const { reject } of this.#publications.splice(0)) reject(error);
  }

  // The connection

  #connect() {
    this.#socket = new WebSocket(this.#address);
    this.#socket.onmessage = ({ data }) => this.#read(JSON.parse(data));
    this.#socket.onclose = this.#socket.onerror = () => this.#lose(); // browsers tell both, Node one of them
    this.#watch(true);
    this.#enter("connecting");
  }

  #reconnect() {
    this.#leave();
    const delay = Math.min(this.#options.retryMs * 2 ** this.#attempts++, this.#options.maxRetryMs);
    this.#timer = setTimeout(() => this.#connect(), delay * (0.5 + Math.random() / 2)); // not all pages at once
    this.#enter("waiting");
  }

  /** A WebSocket does not report why it never opened, but HTTP does. Refused credentials end it. */
  async #lose() {
    if (this.state === "open") return this.#reconnect();
    const socket = this.#socket;
    if (socket) socket.onclose = socket.onerror = null;
    const error = await refusalOf(this.#address);
    if (socket !== this.#socket || this.state !== "connecting") return; // it was given up meanwhile
    if (error && error.code !== "ORIGIN_UNKNOWN") this.close(error);
    else this.#reconnect();
    if (error && error.code !== this.#complaint) guarded(() => this.#options.onError(error)); // once
    this.#complaint = error?.code;
  }

  /** Forget the connection. What it did not answer may have been heard, or not. */
  #leave() {
    clearTimeout(this.#timer);
    if (this.#socket) this.#socket.onmessage = this.#socket.onclose = this.#socket.onerror = null;
    this.#socket?.close();
    for (const subscription of this.#subscriptions.values()) subscription.state = "waiting";
    const error = new PenstockError("CONNECTION_LOST", "the connection broke before the answer came");
    for (const { reject } of this.#requests.values()) reject(error);
    this.#requests.clear();
  }

  /** @param {State} state */
  #enter(state) {
    if (state === this.state) return;
    this.state = state;
    guarded(() => this.#options.onState(state));
  }

  /** A dead connection says nothing: after some silence ask, then give it up. @param {boolean} isAsked */
  #watch(isAsked) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      if (isAsked) return this.#reconnect();
      this.#socket?.send('{"type":"ping"}');
      this.#watch(true);
    }, this.#options.silenceMs);
  }

  /** @param {Record<string, any>} request @returns {Promise<Ack>} */
  #request(request) {
    const id = String(++this.#lastId);
    return new Promise((resolve, reject) => {
      const text = JSON.stringify({ ...request, request_id: id }); // what is no JSON is never sent
      this.#requests.set(id, { resolve, reject });
      this.#socket?.send(text);
    });
  }

  /** @param {Record<string, any>} said */
  #read(said) {
    this.#watch(false);
    if (said.type === "event") this.#deliver(said);
    if (said.type === "info") this.#note(said.message, said.details ?? {});
    const request = this.#requests.get(said.request_id);
    this.#requests.delete(said.request_id);
    if (said.type === "ack") request?.resolve(said);
    if (said.type !== "error") return;
    const error = new PenstockError(said.code, said.message, said.details);
    const subscription = this.#subscriptions.get(error.details.filter); // whose replay failed, if no request is pending
    if (request) request.reject(error);
    else if (subscription) this.#refuse(subscription, error);
    else guarded(() => this.#options.onError(error));
  }

  /** @param {string} message @param {Record<string, any>} details */
  #note(message, details) {
    const subscription = this.#subscriptions.get(details.filter ?? details.topic);
    if (this.state === "connecting") {
      this.#attempts = 0;
      this.#enter("open"); // the server has greeted us
      this.#ask();
      const publications = this.#publications.splice(0);
      for (const { publication, resolve, reject } of publications) this.#request(publication).then(resolve, reject);
    } else if (message === "replay_complete") {
      if (subscription?.state === "replaying") this.#complete(subscription, details.statement);
    } else if (subscription && message === `Topic '${details.topic}' was deleted`) {
      this.#end(subscription, new PenstockError("TOPIC_DELETED", message, details));
    }
  }

  /** Ask for those that wait. Of two that overlap one replays at a time: so it is clear whose a message is. */
  #ask() {
    if (this.state !== "open") return;
    const all = [...this.#subscriptions.values()];
    const busy = all.filter(({ state }) => state === "asked" || state === "replaying");
    for (const waiting of all.filter(({ state }) => state === "waiting")) {
      if (busy.some(({ filter }) => overlap(filter, waiting.filter))) continue;
      busy.push(waiting);
      this.#join(waiting);
    }
  }

  /** @param {Subscription} subscription */
  async #join(subscription) {
    const { filter, cursor, lastN } = subscription;
    const start = cursor ? { after: cursor } : lastN ? { last_n: lastN } : null;
    subscription.state = "asked";
    try {
      const ack = await this.#request({ type: "subscribe", filter, ...start });
      subscription.isConfirmed = true;
      subscription.state = start ? "replaying" : "live";
      if (!start) subscription.cursor = ack.cursor;
      subscription.promised.resolve(subscription);
    } catch (/** @type {any} */ error) {
      const isWanted = error.code !== "CONNECTION_LOST" && this.#subscriptions.get(filter) === subscription;
      if (isWanted) this.#refuse(subscription, error);
    }
    this.#ask();
  }

  /** @param {Subscription} subscription @param {Statement} statement */
  #complete(subscription, statement) {
    subscription.state = "live";
    subscription.cursor = statement.next ?? subscription.cursor;
    if (!statement.is_complete) guarded(() => this.#options.onGap(statement, subscription));
    this.#ask();
  }

  /** @param {Subscription} subscription @param {PenstockError} error */
  #refuse(subscription, error) {
    if (error.code === "RATE_LIMITED") return this.#postpone(subscription, error.details.retry_after_seconds);
    if (error.details.code !== "invalid-cursor") return this.#end(subscription, error);
    // The server has begun anew and does not know where we were: all that it has is new to us.
    const lost = { after: subscription.cursor ?? null, next: null, served: 0, is_complete: false };
    const statement = { ...lost, missing: [], gaps: [], reason: "epoch-changed" };
    subscription.cursor = undefined;
    subscription.lastN = 1_000; // the most that can be asked for
    subscription.state = "waiting";
    guarded(() => this.#options.onGap(statement, subscription));
    this.#ask();
  }

  /** @param {Subscription} subscription @param {number} seconds */
  async #postpone(subscription, seconds) {
    const socket = this.#socket;
    await new Promise((resolve) => setTimeout(resolve, seconds * 1_000));
    if (socket !== this.#socket) return; // all were asked for anew
    subscription.state = "waiting";
    this.#ask();
  }

  /** @param {Subscription} subscription @param {PenstockError} error */
  #end(subscription, error) {
    this.#remove(subscription, error);
    if (subscription.isConfirmed) guarded(() => this.#options.onEnd(error, subscription)); // else its promise says so
    this.#ask();
  }

  /** @param {Subscription} subscription @param {PenstockError} error for the page, if it still waits for it */
  #remove(subscription, error) {
    this.#subscriptions.delete(subscription.filter);
    subscription.promised.reject(error);
  }

  /** @param {Record<string, any>} event */
  #deliver({ topic, data, encoding, message_id: id, sequence, cursor }) {
    const message = { topic, data: unwrap(data), ...(encoding && { encoding }), id, sequence, cursor };
    for (const subscription of this.#receivers(topic, cursor)) {
      if (this.#subscriptions.get(subscription.filter) !== subscription) continue; // another handler has ended it
      subscription.cursor = cursor;
      guarded(() => subscription.handler(message));
    }
  }

  // The subscriptions of a message. The server sends it once for all live ones, and once more for one that replays.
  /** @param {string} topic @param {string} cursor */
  #receivers(topic, cursor) {
    const matching = [...this.#subscriptions.values()].filter(({ filter }) => overlap(filter, topic));
    const live = matching.filter((each) => each.state === "live" && isBefore(each.cursor, cursor));
    return live.length ? live : matching.filter(({ state }) => state === "replaying");
  }
}

const crowded = () => new PenstockError("NOT_CONNECTED", "too many publications wait for a connection");
const hidden = () => new PenstockError("ORIGIN_UNKNOWN", "pages from here may not read why: see http.cors_origins");
const refusal = (/** @type {string} */ why) => new PenstockError("SUBSCRIBE_FAILED", why);

/** Call a function of the page; if it throws, that is for the page to see, and we go on. @param {() => void} call */
function guarded(call) {
  try {
    call();
  } catch (error) {
    setTimeout(() => { throw error; });
  }
}

/** @param {string} url @param {string} [token] */
function addressOf(url, token) {
  const address = new URL(url, globalThis.location?.href);
  address.protocol = address.protocol.replace("http", "ws");
  if (address.pathname === "/") address.pathname = "/ws";
  if (token) address.searchParams.set("access_token", token); // a page cannot send headers with a WebSocket
  return address.href;
}

/** Why a server refuses a connection: its events need the same token, and report it. @param {string} address */
async function refusalOf(address) {
  const url = new URL(`api/v1/events${new URL(address).search}`, address.replace("ws", "http"));
  const ask = (/** @type {RequestMode} */ mode) => fetch(url, { mode, credentials: "omit" });
  try {
    const { status } = await ask("cors");
    if (status === 401) return new PenstockError("BAD_CREDENTIALS", "the server does not accept this `token`");
    if (status === 403) return new PenstockError("NOT_AUTHORIZED", "the server does not let this page in");
  } catch {
    return ask("no-cors").then(hidden, () => undefined); // there is a response, or no server
  }
}

/** Whether two filters match a common topic; a topic is a filter, too. @param {string} one @param {string} other */
function overlap(one, other) {
  const [ours, theirs] = [one.split("/"), other.split("/")];
  if ((one[0] === "$" || other[0] === "$") && ours[0] !== theirs[0]) return false; // wildcards do not reach there
  for (let level = 0; ; level++) {
    const [our, their] = [ours[level], theirs[level]];
    if (our === "#" || their === "#") return true;
    if (our === undefined || their === undefined) return our === their;
    if (our !== their && our !== "+" && their !== "+") return false;
  }
}

/** True if a cursor is before another, or of another log. @param {string} [one] @param {string} [other] */
function isBefore(one = "", other = "") {
  const [ours, theirs] = [one, other].map((text) => atob(text.replaceAll("-", "+").replaceAll("_", "/")));
  return ours < theirs || ours.slice(0, 9) !== theirs.slice(0, 9); // which name the log; then comes the place
}

/** @param {Uint8Array} bytes */
const wrap = (bytes) => ({ $bytes: btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")) });

/** @param {any} data */
function unwrap(data) {
  const isWrapped = typeof data?.$bytes === "string" && Object.keys(data).length === 1;
  return isWrapped ? Uint8Array.from(atob(data.$bytes), (byte) => byte.charCodeAt(0)) : data;
}
