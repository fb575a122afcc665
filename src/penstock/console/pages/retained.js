/** Retained values: look at them, and delete them. */

import { call, get, path } from "../api.js";
import { debounce, field, h, replace, table, time } from "../dom.js";
import * as format from "../format.js";
import { confirm, failure, notify, nothing, pager, payloadView, topicLink } from "../widgets.js";

const PAGE = 100;

export function show(content, context) {
  const filter = h("input", { placeholder: "#", autocomplete: "off", spellcheck: "false", value: context.query.get("filter") ?? "" });
  const problem = h("div");
  const detail = h("div", { class: "panel", hidden: true });
  const list = table("Retained values", [{ title: "Topic" }, { title: "Value" }, { title: "Size", class: "number" }, { title: "Published" }, { title: "Actions" }]);
  const empty = nothing("No retained values match.");
  const pages = pager(() => load());
  empty.hidden = true;

  async function load() {
    try {
      const page = await get(path("/api/v1/retained", { filter: filter.value.trim(), after: pages.after, limit: PAGE }), context);
      replace(problem);
      empty.hidden = page.retained.length > 0;
      replace(list.body, page.retained.map(row));
      pages.show(page.next, format.counted(page.matching, "retained value"));
    } catch (error) {
      if (!context.signal.aborted) replace(problem, failure(error));
    }
  }

  function row(value) {
    const shown = format.payload(value);
    return h("tr", {},
      h("td", {}, topicLink(value.topic)),
      h("td", { class: "value-cell", text: shown.text.length > 200 ? `${shown.text.slice(0, 200)}...` : shown.text }),
      h("td", { class: "number", text: format.size(shown.bytes) }),
      h("td", { class: "tight" }, time(value.published_at)),
      h("td", { class: "tight" },
        h("button", { type: "button", class: "button quiet", "aria-label": `Show ${value.topic}`, text: "Show", onclick: (event) => open(value, event.target) }), " ",
        context.may("publish") && h("button", { type: "button", class: "button quiet danger", "aria-label": `Delete ${value.topic}`, text: "Delete", onclick: () => remove(value.topic) })));
  }

  function open(value, opener) {
    const close = () => { detail.hidden = true; opener.focus(); };
    replace(detail, h("div", { class: "heading" }, h("h2", { tabindex: "-1", text: value.topic }), h("button", { type: "button", class: "button quiet", text: "Close", onclick: close })), payloadView(value));
    detail.hidden = false;
    detail.querySelector("h2").focus();
  }

  async function remove(topic) {
    const isSure = await confirm({ title: "Delete the retained value?", text: `New subscribers of ${topic} will not get it any more. Messages that were published stay in the log.`, action: "Delete" });
    if (!isSure) return;
    try {
      await call("DELETE", path("/api/v1/retained", { topic }));
      notify(`The retained value of ${topic} is deleted.`);
    } catch (error) {
      notify(error.message, "bad");
    }
    detail.hidden = true;
    await load();
  }

  filter.addEventListener("input", debounce(() => { pages.reset(); load(); }));
  const again = h("button", { type: "button", class: "button", text: "Load again", onclick: load });
  replace(content, h("div", { class: "tools" }, field("Filter", filter, "+ stands for one level, # for all below"), again), problem, detail, list.frame, empty, pages.whole);
  load();
}
