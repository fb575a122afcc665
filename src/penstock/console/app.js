/**
 * Penstock console: shell, login and the choice of the page by the address behind `#`.
 */

import { call, get, health, link, poll } from "./api.js";
import { announce, freshId, h, replace, setText } from "./dom.js";
import { ago, localTime } from "./format.js";
import { failure, notify, themeChoice } from "./widgets.js";
import * as login from "./pages/login.js";

const HEALTH_MS = 5_000;
const BANNER_MS = 1_000;

/** Pages in the order of the navigation; `right` is what a user needs to see one. */
const PAGES = [
  { name: "overview", label: "Overview" },
  { name: "topics", label: "Topics", right: "subscribe" },
  { name: "live", label: "Live", right: "subscribe" },
  { name: "publish", label: "Publish", right: "publish" },
  { name: "retained", label: "Retained", right: "subscribe" },
  { name: "clients", label: "Clients", right: "admin" },
  { name: "slow", label: "Slow consumers", right: "admin" },
  { name: "why", label: "Why", isAtAdminPort: true },
  { name: "log", label: "Log", right: "admin" },
  { name: "settings", label: "Settings", right: "admin" },
  { name: "cluster", label: "Cluster", right: "admin", isHidden: true },
];

class Shell {
  me = null;
  #page = new AbortController();
  #isFirst = true;
  #isAsking = false;
  #visible = new Set();

  constructor(root) {
    this.state = h("span", { class: "state", role: "status" });
    this.node = h("span", { class: "node" });
    this.user = h("span", { class: "user" });
    this.banner = h("div", { class: "banner", role: "alert", hidden: true });
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.list = h("ul", { id: "pages" });
    this.menu = h("button", { type: "button", class: "menu button", "aria-expanded": "false", "aria-controls": "pages", text: "Menu", onclick: () => this.#toggleMenu() });
    const mark = h("img", { src: "/ui/favicon.svg", alt: "", width: "26", height: "26" });
    const brand = h("a", { href: "#/overview", class: "brand" }, mark, h("span", { text: "Penstock" }));
    this.nav = h("nav", { class: "pages", "aria-label": "Pages" }, this.list);
    replace(root,
      h("header", { class: "top" }, this.menu, brand, this.node, this.state, h("span", { class: "spring" }), this.user, themeChoice()),
      this.banner,
      h("div", { class: "body" }, this.nav, this.main));
    document.getElementById("skip").addEventListener("click", (event) => {
      event.preventDefault();
      this.main.focus();
    });
    addEventListener("hashchange", () => this.route());
    link.addEventListener("change", () => this.#showBanner());
    link.addEventListener("login", () => this.#isAsking || this.#loginEnded());
    setInterval(() => this.#showBanner(), BANNER_MS);
  }

  /** Learn the user and the rights, then show the page of the address. */
  async start(isRetry = false) {
    try {
      this.welcome(await call("GET", "/api/v1/me", { isLogin: true }));
    } catch (error) {
      if (error.status === 401 && !isRetry) {
        await this.start(true); // the refusal of a login that has ended deletes its cookie
        return;
      }
      if (error.status === 401) {
        this.askLogin();
        return;
      }
      replace(this.main, failure(error));
      link.addEventListener("retry", () => this.start(), { once: true });
      setTimeout(() => this.me === null && link.retry(), 2_000);
    }
  }

  welcome(me) {
    this.me = me;
    this.#isAsking = false;
    setText(this.node, me.node_id ?? "");
    this.node.title = `Penstock ${me.version ?? ""} ${me.build ? `(${me.build})` : ""}`.trim();
    this.#showUser();
    this.#showPages();
    this.#watchHealth();
    this.route();
  }

  may(right) {
    const isElsewhere = ADMIN.has(right) && this.me?.has_admin_calls === false;
    return !right || (this.me?.rights?.[right] === true && !isElsewhere);
  }

  /** A login has ended: go on without one where the server accepts that, else show the form. */
  #loginEnded() {
    this.#leave();
    this.#isAsking = true;
    this.me = null;
    this.start();
  }

  /** Show the login form in place of the page; the address stays, so that the login leads back to it. */
  askLogin(isOptional = false) {
    this.#leave();
    this.#isAsking = true;
    this.me = null;
    this.nav.hidden = this.menu.hidden = true;
    replace(this.user);
    document.title = "Log in - Penstock";
    login.show(this.main, { welcome: (me) => this.welcome(me), cancel: isOptional && (() => this.start()) });
    this.#watchHealth();
  }

  async logOut() {
    try {
      await call("POST", "/api/v1/logout");
      announce("Logged out");
    } catch (error) {
      notify(error.message, "bad");
      return;
    }
    this.me = null;
    await this.start();
  }

  /** Show the page that the address names. */
  async route() {
    if (this.me === null) return;
    const { name, rest, query } = parseAddress(location.hash);
    const known = PAGES.find((each) => each.name === name);
    if (!known) {
      location.replace("#/overview");
      return;
    }
    this.#leave();
    const { signal } = this.#page;
    this.#closeMenu();
    this.#markPage(name);
    const isTopic = name === "topics" && rest !== "";
    const module = await import(`./pages/${isTopic ? "topic" : name}.js`);
    if (signal.aborted) return;
    const heading = h("h1", { tabindex: "-1", id: freshId("title") });
    const content = h("div", { class: `content page-${name}` });
    replace(this.main, heading, content);
    const context = {
      rest, query, signal, me: this.me, heading, may: (right) => this.may(right),
      title: (text) => { setText(heading, text); document.title = `${text} - Penstock`; },
      refresh: () => this.route(),
    };
    context.title(known.label);
    if (!this.#shows(known)) {
      replace(content, failure({ status: 403, message: this.#refusal(known) }));
    } else {
      module.show(content, context);
    }
    if (!this.#isFirst) heading.focus({ preventScroll: true });
    if (!this.#isFirst) scrollTo(0, 0);
    this.#isFirst = false;
  }

  #shows(page) {
    return this.may(page.right) && !(page.isAtAdminPort && this.me?.has_admin_calls === false);
  }

  #refusal({ right, isAtAdminPort = ADMIN.has(right) }) {
    if (this.me.has_admin_calls === false && isAtAdminPort) return "This page is at the server's admin port.";
    return `Your user has no right to see this page. It needs the right to ${RIGHTS[right]}.`;
  }

  #leave() {
    this.#page.abort();
    this.#page = new AbortController();
  }

  #showPages() {
    this.nav.hidden = this.menu.hidden = false;
    const shown = PAGES.filter((each) => this.#shows(each) && (!each.isHidden || this.#visible.has(each.name)));
    replace(this.list, shown.map((each) => h("li", {}, h("a", { href: `#/${each.name}`, "data-page": each.name, text: each.label }))));
    if (this.may("admin") && !this.#visible.has("cluster")) this.#lookForCluster();
  }

  async #lookForCluster() {
    try {
      const { node_count: nodes } = await get("/cluster/status");
      if (nodes < 2) return;
      this.#visible.add("cluster");
      this.#showPages();
      this.#markPage(parseAddress(location.hash).name);
    } catch {
      // One node, as far as this page can know.
    }
  }

  #showUser() {
    const { user, can_login: canLogin } = this.me;
    if (user) {
      replace(this.user, h("span", { class: "name", text: user }), h("button", { type: "button", class: "button quiet", text: "Log out", onclick: () => this.logOut() }));
    } else {
      replace(this.user, canLogin && h("button", { type: "button", class: "button quiet", text: "Log in", onclick: () => this.askLogin(true) }));
    }
  }

  #markPage(name) {
    for (const each of this.list.querySelectorAll("a")) {
      if (each.dataset.page === name) each.setAttribute("aria-current", "page");
      else each.removeAttribute("aria-current");
    }
  }

  #toggleMenu() {
    const isOpen = this.menu.getAttribute("aria-expanded") !== "true";
    this.menu.setAttribute("aria-expanded", String(isOpen));
    this.nav.classList.toggle("open", isOpen);
    if (isOpen) this.list.querySelector("a")?.focus();
  }

  #closeMenu() {
    this.menu.setAttribute("aria-expanded", "false");
    this.nav.classList.remove("open");
  }

  #watchHealth() {
    if (this.isWatching) return;
    this.isWatching = true;
    poll(HEALTH_MS, async () => this.#showState(await health()), new AbortController().signal);
  }

  #showState({ status }) {
    const kinds = { healthy: "good", degraded: "fair", unhealthy: "bad" };
    const word = status ? status[0].toUpperCase() + status.slice(1) : "";
    setText(this.state, word);
    this.state.className = `state ${kinds[status] ?? "plain"}`;
  }

  #showBanner() {
    const since = link.lostSince;
    document.body.classList.toggle("stale", since !== null);
    if (since === null) {
      this.banner.hidden = true;
      this.banner.replaceChildren();
      return;
    }
    if (this.banner.hidden) {
      this.since = h("span");
      replace(this.banner, h("strong", { text: "The server cannot be reached." }), " ", this.since, " What is shown below may be out of date. ",
        h("button", { type: "button", class: "button", text: "Retry now", onclick: () => link.retry() }));
      this.banner.hidden = false;
      this.state.className = "state bad";
      setText(this.state, "Unreachable");
    }
    setText(this.since, `Since ${localTime(since)} (${ago(since)}); retrying.`);
  }
}

/** Rights to calls that only the admin port has, if there is one. */
const ADMIN = new Set(["admin", "manage"]);
const RIGHTS = { admin: "subscribe to $SYS/#", publish: "publish to a topic", subscribe: "subscribe to a topic" };

/** Name of the page, the rest of the path, and the query of an address such as `#/clients/pump-7?x=1`. */
function parseAddress(hash) {
  const [, path, query] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash);
  const [name, ...parts] = path.split("/");
  const rest = parts.map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  }).join("/");
  return { name: name || "overview", rest, query: new URLSearchParams(query) };
}

new Shell(document.getElementById("app")).start();
