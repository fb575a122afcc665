// Texts whose contrast to what is behind them is below the first argument.
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const parse = (colour) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, index) => sum + v * [0.2126, 0.7152, 0.0722][index], 0);
const behind = (each) => {
  for (let at = each; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour[3] > 250) return colour;
  }
  return [255, 255, 255, 255];
};
const found = {};
for (const each of document.querySelectorAll("body *")) {
  const hasText = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!hasText || !each.checkVisibility() || each.closest(":disabled, .unseen, [popover], option, .skip")) continue;
  const [a, b] = [light(parse(getComputedStyle(each).color)), light(behind(each))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < arguments[0]) found[`${each.tagName}.${each.className} ${each.textContent.slice(0, 30)}`] = ratio;
}
return found;
