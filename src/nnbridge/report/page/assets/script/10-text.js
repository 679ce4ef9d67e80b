/* Words and numbers. */

const D = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const main = $("main");

/** What the reader chose earlier; a file that was opened from a disk may not have a store. */
function stored(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(key);
    localStorage.setItem(key, value);
  } catch {
    /* then it holds for this page only */
  }
  return null;
}

const NB = "\u00a0";
/** A name as text that cannot change its surroundings: controls and direction marks become visible. */
const clean = (s) =>
  String(s).replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (c) => "⟨" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩",
  );
const cut = (s, n) => {
  s = clean(s);
  return s.length > n ? s.slice(0, n - 1) + "…" : s;
};
const cutMid = (s, n) => {
  s = clean(s);
  if (s.length <= n) return s;
  const a = Math.ceil(n * 0.35);
  return s.slice(0, a) + "…" + s.slice(s.length - (n - a - 1));
};
const sig = (x, n = 3) => {
  if (x == null) return "not finite";
  if (x === 0) return "0";
  const a = Math.abs(x);
  return a >= 1e-3 && a < 1e5 ? String(+x.toPrecision(n)) : x.toExponential(n - 1).replace(/\.?0*e\+?/, "e");
};
const int = (x) => Math.round(x).toLocaleString("en-GB");
const scaled = (x, units, base) => {
  let i = 0;
  while (x >= base && i < units.length - 1) {
    x /= base;
    i++;
  }
  return (i === 0 ? int(x) : x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2)) + NB + units[i];
};
const bytes = (x) => (x == null ? "open" : scaled(x, ["B", "kB", "MB", "GB"], 1000));
const work = (x) => (x == null ? "open" : x === 0 ? "0" : scaled(x, ["", "k", "M", "G", "T"], 1000).trim());
const share = (a, b) => {
  if (!b) return "–";
  const p = (100 * a) / b;
  if (p === 0) return "0" + NB + "%";
  if (p === 100) return "100" + NB + "%";
  if (p < 0.01) return "<0.01" + NB + "%";
  if (p > 99.99) return ">99.99" + NB + "%";
  const d = p < 1 || p > 99 ? 2 : 1;
  return p.toFixed(d) + NB + "%";
};
const plural = (n, one, many) => int(n) + NB + (n === 1 ? one : many || one + "s");
const ms = (x) => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x >= 1 ? x.toFixed(2) : x.toFixed(3));
const list = (a) => (a.length < 2 ? a.join("") : a.slice(0, -1).join(", ") + " and " + a[a.length - 1]);
const shape = (o) => (o.d.length ? o.d.map((d) => d || "?").join("×") : TY(o).startsWith("TENSOR") ? "?" : o.l === "s" ? "" : "scalar");
const TY = (o) => D.types[o.t];
const shortType = (o) =>
  o.f ||
  TY(o)
    .replace("TENSOR_", "")
    .toLowerCase()
    .replace("quant8_asymm_signed", "qint8")
    .replace("quant8_asymm", "quint8")
    .replace("quant8_symm_per_channel", "qint8 per channel")
    .replace("quant16_symm", "qint16");

/** Elements are made only here; text goes in as text nodes, so that no name can become markup. */
function el(tag, props, ...kids) {
  const e = document.createElement(tag);
  for (const k in props || {}) {
    const v = props[k];
    if (v == null || v === false) continue;
    if (k === "on") for (const n in v) e.addEventListener(n, v[n]);
    else if (k === "class") e.className = v;
    else if (k === "style") e.style.cssText = v;
    else e.setAttribute(k, v === true ? "" : v);
  }
  for (const kid of kids.flat(9)) if (kid != null && kid !== false) e.append(kid);
  return e;
}
/** Rows of a table that a phone shows before the reader asks for all. */
const ROWS_ON_PHONES = 5;
/** Cells that say that there is nothing; a column of them goes, and phones leave each of them out. */
const NOTHING = new Set(["", "–", "0", "0" + NB + "%", "0" + NB + "B"]);
/**
 * A table that scrolls sideways; the columns that `numbers` matches are right-aligned. On phones a row is a few lines of its
 * own, and a long table has its first rows and a button.
 */
function listing(caption, columns, body, numbers = null, style = null) {
  const rows = [...body.rows].filter((row) => row.cells.length === columns.length);
  const empty = columns.map((_, k) => k > 0 && rows.length > 0 && rows.every((row) => row.cells[k].dataset.l && NOTHING.has(row.cells[k].textContent)));
  for (const row of rows)
    [...row.cells].forEach((cell, k) => {
      if (empty[k]) cell.remove();
      else if (cell.dataset.l && NOTHING.has(cell.textContent)) cell.classList.add("nothing");
    });
  const head = columns
    .filter((_, k) => !empty[k])
    .map((t) => el("th", { scope: "col", class: numbers && numbers.test(t) ? "num" : null }, t || el("span", { class: "vh" }, "Filter")));
  const table = el("table", { class: "rows", style }, el("caption", { class: "vh" }, caption), el("thead", null, el("tr", null, head)), body);
  const box = el("div", { class: "scroll" }, table);
  if (body.rows.length <= ROWS_ON_PHONES + 1) return box;
  table.classList.add("folded");
  const all = el(
    "button",
    {
      class: "btn unfold noprint",
      on: {
        click: () => {
          table.classList.remove("folded");
          all.remove();
        },
      },
    },
    `Show all ${body.rows.length} rows`,
  );
  box.append(all);
  return box;
}
const NS = "http://www.w3.org/2000/svg";
function sv(tag, props, ...kids) {
  const e = document.createElementNS(NS, tag);
  for (const k in props || {})
    if (k === "on") for (const n in props.on) e.addEventListener(n, props.on[n]);
    else if (props[k] != null) e.setAttribute(k, props[k]);
  for (const kid of kids.flat(9)) if (kid != null) e.append(kid);
  return e;
}
const LONG_WORD = 16;
/** A text whose long names go to the next line as a whole; those longer than a line break after the signs within them. */
const soft = (s) =>
  clean(s)
    .split(/(?<=\s)(?=\S)/)
    .map((word) => {
      const parts = word.length > LONG_WORD ? word.split(/(?<=[_/:;])(?=\w)|(?<=\.)(?=[A-Za-z])/) : [word];
      return parts.length > 1 || /^\(?--/.test(word) ? el("span", { class: "long" }, parts.flatMap((part, i) => (i ? [el("wbr"), part] : [part]))) : word;
    });
const name = (s) => el("span", { class: "name" }, soft(s));
