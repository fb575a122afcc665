// What a screen reader would stumble over: elements without names, landmarks, captions or valid references.
const found = [];
const seen = (each) => each.checkVisibility();
const say = (each, what) => found.push(`${what}: ${each.outerHTML.slice(0, 120)}`);
const nameOf = (each) => each.ariaLabel || [...(each.labels ?? [])].map((label) => label.textContent).join("") || each.textContent || each.alt;
for (const each of document.querySelectorAll("input, select, textarea, button, a[href]")) {
  if (seen(each) && !nameOf(each)?.trim()) say(each, "no name");
}
for (const each of document.querySelectorAll("img")) if (!each.hasAttribute("alt")) say(each, "no alt");
for (const each of document.querySelectorAll("table")) if (!each.caption?.textContent) say(each, "no caption");
for (const each of document.querySelectorAll("nav, [role=region], section[aria-label=''], aside")) if (!each.ariaLabel) say(each, "no label");
for (const kind of ["main", "header", "h1", "nav.pages"]) {
  if (document.querySelectorAll(kind).length !== 1) found.push(`not one ${kind}`);
}
const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`id ${id} twice`);
for (const name of ["for", "aria-controls", "aria-describedby", "aria-labelledby"]) {
  for (const each of document.querySelectorAll(`[${name}]`)) {
    for (const id of each.getAttribute(name).split(" ")) if (!ids.includes(id)) say(each, `${name} points nowhere`);
  }
}
for (const row of document.querySelectorAll("[role=row]")) {
  const isGrid = row.closest("[role=grid], [role=treegrid]");
  if (!isGrid || ![...row.children].every((cell) => /cell|header/.test(cell.role))) say(row, "a row without cells");
}
if (!document.documentElement.lang || !document.title.endsWith("Penstock")) found.push("no language or title");
return found;
