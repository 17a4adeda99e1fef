"use strict";
// Tables: a button in each heading sorts; what has no figure stays at the end.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const valueOf = (row, at) => row.cells[at].dataset.sort;
  heads.forEach((head, at) => head.querySelector("button")?.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending", words = "words" in head.dataset;
    const compare = words ? (a, b) => a < b ? -1 : a > b ? 1 : 0 : (a, b) => a - b;
    const rows = [...body.rows].sort((one, other) => {
      const a = valueOf(one, at), b = valueOf(other, at);
      if (!a || !b) return !a - !b;
      return down ? compare(b, a) : compare(a, b);
    });
    heads.forEach(each => each.hasAttribute("aria-sort") && each.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  }));
}

// Line plots: what each line says under the pointer, and lines that can be put away.
const plots = JSON.parse(document.getElementById("plots")?.textContent ?? "{}");
function rounded(value) {
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}
for (const [name, plot] of Object.entries(plots)) {
  const figure = document.getElementById(name), area = figure.querySelector(".area");
  const cursor = figure.querySelector(".cursor"), reading = figure.querySelector(".reading"), off = new Set();
  const place = value => plot.log ? Math.log(value / plot.low) / Math.log(plot.high / plot.low)
    : (value - plot.low) / (plot.high - plot.low);
  const words = value => plot.shares ? "p" + (100 - 100 * 10 ** -value).toPrecision(value < 2 ? 3 : 6).replace(/\.?0+$/, "") : rounded(value);
  area.addEventListener("pointermove", event => {
    const box = area.getBoundingClientRect(), x = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const at = plot.log ? plot.low * (plot.high / plot.low) ** x : plot.low + x * (plot.high - plot.low);
    cursor.hidden = false;
    cursor.style.left = x * 100 + "%";
    const said = plot.lines.filter(line => !off.has(line.label)).map(line => {
      const near = line.points.reduce((best, point) =>
        Math.abs(place(point[0]) - x) < Math.abs(place(best[0]) - x) ? point : best);
      return Math.abs(place(near[0]) - x) < .06 ? line.label + " " + rounded(near[1]) : null;
    });
    reading.textContent = `${words(at)} ${plot.unit}: `.replace(" :", ":") + said.filter(Boolean).join(", ");
  });
  area.addEventListener("pointerleave", () => { cursor.hidden = true; reading.textContent = ""; });
  for (const button of figure.querySelectorAll("[data-toggle]")) button.addEventListener("click", () => {
    const label = button.dataset.toggle, away = !off.has(label);
    off[away ? "add" : "delete"](label);
    button.setAttribute("aria-pressed", String(!away));
    for (const line of figure.querySelectorAll("[data-line]")) if (line.dataset.line === label) line.classList.toggle("off", away);
    for (const end of figure.querySelectorAll(".end")) if (end.textContent === label) end.classList.toggle("off", away);
  });
}

// On paper everything is open.
addEventListener("beforeprint", () => document.querySelectorAll("details:not([open])").forEach(each => { each.open = true; each.dataset.opened = ""; }));
addEventListener("afterprint", () => document.querySelectorAll("details[data-opened]").forEach(each => { each.open = false; delete each.dataset.opened; }));
