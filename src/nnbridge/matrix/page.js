"use strict";
(() => {
const make = (tag, properties, ...inside) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...inside);
  return made;
};
const plainText = (node) => node.textContent.toLowerCase();
const tables = [...document.querySelectorAll("table")].map((table) => {
  const heads = [...table.tHead.rows[0].cells];
  const rows = [...table.tBodies[0].rows].map((row) => ({
    row, cells: [...row.cells], name: plainText(row.cells[0]),
    text: [...row.cells].map((cell) => `${plainText(cell)} ${cell.title.toLowerCase()}`),
  }));
  return { table, heads, rows, names: heads.map(plainText), grid: table.className === "grid", box: table.parentElement };
});

/* Filter: a word that names columns but no row chooses columns; any other one chooses rows that have it. */
const filter = (typed) => {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0, all = 0;
  for (const { heads, rows, names, grid, box } of tables) {
    let columns = heads.map(() => true);
    const others = [];
    for (const word of words) {
      const named = names.map((name, k) => k === 0 || name.includes(word));
      const choosesColumns = grid && named.slice(1).some(Boolean) && !rows.some(({ name }) => name.includes(word));
      if (choosesColumns) columns = columns.map((on, k) => on && named[k]);
      else others.push(word);
    }
    let here = 0;
    for (const { row, cells, text } of rows) {
      const on = others.every((word) => text.some((part, k) => columns[k] && part.includes(word)));
      row.hidden = !on;
      here += on;
      cells.forEach((cell, k) => { cell.hidden = !columns[k]; });
    }
    heads.forEach((head, k) => { head.hidden = !columns[k]; });
    box.parentElement.hidden = here === 0;
    if (grid) { shown += here; all += rows.length; }
  }
  count.textContent = words.length ? `${shown} of ${all} rows` : "";
  tables.forEach(hint);
};

/* Sort: numbers from the largest, text from A; then the other way round; then as the page came. */
const sort = (found, column) => {
  const { heads, rows, table } = found;
  const value = ({ cells }) => {
    const cell = cells[column], number = Number(cell.dataset.v ?? (cell.textContent.trim() || NaN));
    return Number.isNaN(number) ? cell.textContent : number;
  };
  const numeric = rows.every((row) => typeof value(row) === "number");
  const order = numeric ? ["descending", "ascending", ""] : ["ascending", "descending", ""];
  const before = heads[column].getAttribute("aria-sort") || "";
  const now = order[(order.indexOf(before) + 1) % 3];
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  if (now) heads[column].setAttribute("aria-sort", now);
  const compare = (a, b) => (numeric ? value(a) - value(b) : String(value(a)).localeCompare(String(value(b)), "en", { numeric: true }));
  const sorted = [...rows];
  if (now) sorted.sort((a, b) => (now === "ascending" ? compare(a, b) : compare(b, a)));
  table.tBodies[0].append(...sorted.map(({ row }) => row));
};

/* Columns out of sight are announced. */
const hint = ({ heads, box, more }) => {
  const edge = box.getBoundingClientRect().right;
  const hidden = heads.filter((head) => !head.hidden && head.getBoundingClientRect().right > edge + 1).length;
  more.textContent = hidden ? `${hidden} more column${hidden === 1 ? "" : "s"} to the right →` : "";
};

/* Phones show (page.css) the first rows of a long table of text, and of wide grids no cells, until the reader asks for them or filters. */
const ROWS_ON_PHONES = 8;
const CELLS_ON_PHONES = 6;
const close = ({ rows, heads }) => {
  if (heads.length <= CELLS_ON_PHONES + 1) return;
  for (const { row, cells } of rows) {
    const button = make("button", { type: "button", className: "opens", ariaExpanded: "false" }, `${cells.length - 1} cells`);
    const open = (on) => {
      row.classList.toggle("closed", !on);
      button.ariaExpanded = String(on);
    };
    button.addEventListener("click", () => open(row.classList.contains("closed")));
    field.addEventListener("input", () => open(field.value !== ""));
    cells[0].append(" ", button);
    open(false);
  }
};
const fold = ({ table, rows, grid, box }) => {
  if (grid || rows.length <= ROWS_ON_PHONES + 1) return;
  table.classList.add("folded");
  const all = make("button", { type: "button", className: "unfold" }, `Show all ${rows.length} rows`);
  const unfold = () => {
    table.classList.remove("folded");
    all.remove();
  };
  all.addEventListener("click", unfold);
  field.addEventListener("input", unfold);
  box.append(all);
};

for (const found of tables) {
  found.heads.forEach((head, column) => {
    const button = make("button", { type: "button", className: "sort", ariaLabel: `Sort by ${head.textContent}` });
    button.addEventListener("click", () => sort(found, column));
    head.append(button);
  });
  found.more = make("p", { className: "more" });
  found.box.before(found.more);
  found.box.addEventListener("scroll", () => hint(found), { passive: true });
}
const field = make("input", { type: "search", id: "filter", placeholder: "model, device, n/a, failed, limit …" });
const count = make("output", {});
field.addEventListener("input", () => filter(field.value));
const first = document.querySelector("section");
if (first) first.before(make("div", { className: "tools" }, make("label", { htmlFor: "filter" }, "Filter"), field, count));
tables.filter(({ grid }) => grid).forEach(close);
tables.forEach(fold);
addEventListener("resize", () => tables.forEach(hint));
tables.forEach(hint);
})();
