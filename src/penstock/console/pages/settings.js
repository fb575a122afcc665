/** Settings in effect, where each is from, and those that wait for a restart. */

import { get } from "../api.js";
import { debounce, field, h, replace, setText, table } from "../dom.js";
import * as format from "../format.js";
import { badge, failure, nothing } from "../widgets.js";

export async function show(content, context) {
  const search = h("input", { type: "search", placeholder: "Name, value or origin", autocomplete: "off", spellcheck: "false", value: context.query.get("search") ?? "" });
  const changed = h("input", { type: "checkbox", id: "settings-changed" });
  const note = h("p", { class: "muted", role: "status" });
  const list = table("Settings in effect", [{ title: "Setting" }, { title: "Value" }, { title: "Origin" }]);
  const empty = nothing("No setting matches.");
  replace(content, h("div", { class: "tools" }, field("Search settings", search), h("div", { class: "check" }, changed, h("label", { for: changed.id, text: "Only those that are not defaults" }))), note, list.frame, empty);
  let told;
  try {
    told = await get("/api/v1/config", context);
  } catch (error) {
    if (!context.signal.aborted) replace(content, failure(error));
    return;
  }
  const rows = flatten(told.settings).map(([key, value]) => {
    const origin = told.origins[key] ?? "default";
    const waits = told.needs_restart.includes(key);
    const text = typeof value === "string" ? value : JSON.stringify(value);
    const row = h("tr", {}, h("th", { scope: "row" }, h("code", { text: key })),
      h("td", { class: "value-cell" }, value === null ? h("span", { class: "muted", text: "none" }) : text, waits && [" ", badge("changed: needs a restart", "fair")]), h("td", { text: origin }));
    return { row, isDefault: origin === "default", text: `${key} ${text} ${origin}`.toLowerCase() };
  });
  const draw = () => {
    const wanted = search.value.trim().toLowerCase();
    const shown = rows.filter((each) => each.text.includes(wanted) && !(changed.checked && each.isDefault));
    replace(list.body, shown.map((each) => each.row));
    empty.hidden = shown.length > 0;
    const restarts = told.needs_restart.length;
    setText(note, `${format.count(shown.length)} of ${format.counted(rows.length, "setting")}${restarts ? `; ${format.count(restarts)} changed and in effect at the next start` : ""}`);
  };
  search.addEventListener("input", debounce(draw, 80));
  changed.addEventListener("change", draw);
  draw();
}

/** Settings by dotted key. */
function flatten(settings, prefix = "") {
  return Object.entries(settings).flatMap(([name, value]) => {
    const isSection = typeof value === "object" && value !== null && !Array.isArray(value);
    return isSection ? flatten(value, `${prefix}${name}.`) : [[prefix + name, value]];
  });
}
