/* What the table of operations shows of each, and the same as CSV. */

const reordered = order.some((o, i) => o !== i);
const errorText = (d) => (d ? (!d.ne ? "0" : d.steps != null ? String(d.steps) : d.max == null ? "∞" : sig(d.max, 2)) : "");
const side = (o, which) => o.err && o.err[which];
const byReason = (o) =>
  refusedBy(o)
    .map((r) => r.device + ruleText(r))
    .join();
function reasonCell(o) {
  const found = refusedBy(o);
  const full = found.map((r) => clean(r.device) + ": " + ruleText(r));
  const brief = found.map((r) => (devices.length > 1 ? clean(r.device) + ": " : "") + ruleText(r));
  return el("span", { title: full.join("\n") }, brief.join("; "));
}
const outputCell = (o) => (o.o.length ? shape(D.operands[o.o[0]]) + (o.o.length > 1 ? ` +${o.o.length - 1}` : "") : "");
const nameCell = (o) => el("span", { class: "name", title: cut(o.label, 400) }, cutMid(brief(o.label), 64));

/** A column: key, title, width, what it is sorted by, its cell; `right` for numbers, `down` where the largest come first. */
const COLUMNS = [
  {
    key: "pos",
    title: reordered ? "Order" : "#",
    width: "64px",
    by: (o) => pos[o.id],
    cell: (o) => String(pos[o.id]),
    right: true,
  },
  reordered && { key: "id", title: "#", width: "52px", by: (o) => o.id, cell: (o) => String(o.id), right: true },
  { key: "r", title: "On", width: "46px", by: (o) => o.r, cell: (o) => badge(runner(o)) },
  { key: "type", title: "Type", width: "184px", by: (o) => o.type, cell: (o) => o.type },
  { key: "label", title: "Name", width: "minmax(190px,1.5fr)", by: (o) => o.label, cell: nameCell },
  { key: "shape", title: "Output", width: "132px", by: (o) => o.ob || 0, cell: outputCell, down: true },
  { key: "mac", title: "Mult.-adds", width: "96px", by: (o) => o.mac || 0, cell: (o) => work(o.mac), right: true, down: true },
  {
    key: "pb",
    title: "Params",
    width: "88px",
    by: (o) => o.pb,
    cell: (o) => (o.pb ? bytes(o.pb) : "0"),
    right: true,
    down: true,
  },
  { key: "k", title: "Step", width: "62px", by: (o) => o.k, cell: (o) => (o.k < 0 ? "–" : String(o.k)), right: true },
  ...["own", "drift"].map(
    (which) =>
      D.layers && {
        key: which,
        title: which === "own" ? "Own err." : "Drift",
        width: which === "own" ? "82px" : "72px",
        by: (o) => (side(o, which) ? side(o, which).rel : -1),
        cell: (o) => errorText(side(o, which)),
        right: true,
        down: true,
      },
  ),
  { key: "why", title: "Refused because", width: "minmax(190px,1.3fr)", by: byReason, cell: reasonCell, down: true },
].filter(Boolean);

const CSV = {
  run_order: (o) => pos[o.id],
  index: (o) => o.id,
  type: (o) => o.type,
  name: (o) => clean(o.n),
  operator: (o) => clean(o.f),
  within: (o) => clean(within(o)),
  device: (o) => runner(o).name,
  place: (o) => runner(o).place,
  step: (o) => o.k,
  output_shape: (o) => o.o.map((x) => shape(D.operands[x])).join(" "),
  multiply_adds: (o) => o.mac,
  parameter_bytes: (o) => o.pb,
  output_bytes: (o) => o.ob,
  own_max: (o) => side(o, "own") && side(o, "own").max,
  drift_max: (o) => side(o, "drift") && side(o, "drift").max,
  reasons: (o) =>
    refusedBy(o)
      .map((r) => `${r.device}: ${ruleText(r)}`)
      .join("; "),
};
/** A cell that no spreadsheet takes for a formula; in many countries they read a semicolon as the end of a cell. */
function csvCell(value) {
  let text = clean(String(value ?? ""));
  if (isNaN(+text)) text = text.replace(/(^|;)([ \u3000]*[=+@\uff1d\uff0b\uff0d\uff20-])/g, "$1'$2");
  return '"' + text.replace(/"/g, '""') + '"';
}
function saveCsv(rows) {
  const lines = [Object.keys(CSV), ...rows.map((o) => Object.values(CSV).map((f) => csvCell(f(o))))];
  const href = URL.createObjectURL(new Blob([lines.map((l) => l.join(",")).join("\n") + "\n"], { type: "text/csv" }));
  const a = el("a", { href, download: clean(D.model.name) + ".csv" });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(href), 1e4);
}
