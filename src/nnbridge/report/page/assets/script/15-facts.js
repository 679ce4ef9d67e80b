/* The data, joined up: operations with their places, who computes and who reads each operand, sums over the whole model. */

const P = D.plan;
const ops = D.ops;
const R = [...P.runners, { name: "NNAPI runtime", place: "NNAPI runtime", key: "R" }];
const N = ops.length;
const order = P.order;
const pos = new Int32Array(N);
order.forEach((o, i) => (pos[o] = i));

const CLASSES = { "NNAPI CPU": "cpu", host: "host", "NNAPI runtime": "rt" };
function classed(runners) {
  let drivers = 0;
  for (const r of runners) Object.assign(r, { cls: CLASSES[r.place] || "d" + Math.min(4, ++drivers), n: 0, mac: 0 });
}
classed(R);
const runner = (o) => R[o.r < 0 ? R.length - 1 : o.r];

/** Refused, accepted by a slower device, fallen back, or not handed to NNAPI at all. */
const SORTS = { performance: "slower", fallback: "fallback" };
for (const r of P.reasons) r.sort = r.host ? "host" : SORTS[r.kind] || "refused";

const producer = new Map();
const used = new Map();
for (const source of D.sources) {
  // What enters a body comes from its IF or WHILE.
  if (source.parent != null) for (const x of source.inputs) producer.set(x, source.parent);
}
/** Operators of a file, which NNAPI has not, have their own names; where they run says that the host computes them. */
const plainType = (type) => type.replace(/^(org\.tensorflow\.lite|ai\.onnx)\./, "");
/** The name of a custom operator says what it is; its type is the same for all of them. */
const typeOf = (o) => (D.types[o.t].endsWith(".CUSTOM") && clean(o.f).replace(/^\d+ /, "")) || plainType(D.types[o.t]);
/** Outputs whose positions say nothing: they are detections, which are compared by matching boxes. */
const asBoxes = new Set(((D.compare && D.compare.outputs) || []).filter((o) => o.pass_by === "boxes").map((o) => o.operand));
const errorOf = (o, i) => {
  const e = D.layers && D.layers.rows[i];
  return e && o.o.some((x) => asBoxes.has(x)) ? { ...e, drift: null, boxes: true } : e;
};
ops.forEach((o, i) => {
  Object.assign(o, { id: i, type: typeOf(o), r: P.r[i], k: P.k[i], why: P.why[i], err: errorOf(o, i) });
  o.o.forEach((x) => producer.set(x, i));
  new Set(o.i).forEach((x) => {
    if ("cns".includes(D.operands[x].l)) return;
    if (!used.has(x)) used.set(x, []);
    used.get(x).push(i);
  });
  const r = runner(o);
  r.n++;
  r.mac += o.mac || 0;
  o.label = clean(o.n).replace(/^\d+: \S+ ?/, "") || (o.o.length ? clean(D.operands[o.o[0]].n) : "");
  o.short = o.type.split(".").pop(); // without a vendor extension's name
  o.find = `${i}: ${D.types[o.t]} ${o.type} ${o.n} ${o.f} ${o.o.map((x) => D.operands[x].n).join(" ")}`.toLowerCase();
});
const readers = (x) => used.get(x) || [];
/** The body that an operation is in. */
const within = (o) => D.sources[o.g].within;

const shown = R.filter((r) => r.n);
const devices = R.filter((r) => r.place === "device");
const onDevice = ops.filter((o) => runner(o).place === "device");
const sum = (a, f) => a.reduce((s, x) => s + (f(x) || 0), 0);
const totalMac = sum(ops, (o) => o.mac);
const openMac = ops.filter((o) => o.mac == null).length;
const devMac = sum(onDevice, (o) => o.mac);
const peak = P.live.reduce((b, v, i) => (v > P.live[b] ? i : b), 0);
const refusedBy = (o) => o.why.map((w) => P.reasons[w]).filter((r) => r.sort !== "slower");
const reference = (D.compare && D.compare.reference) || (D.layers && D.layers.reference) || "the reference";

/** Names without the path that most share, and of fused names (a;b;c) the first. */
const prefix = (() => {
  const m = new Map();
  for (const o of ops) {
    const p = o.label.split(";")[0].split("/");
    let q = "";
    for (let i = 0; i < p.length - 1; i++) {
      q += p[i] + "/";
      m.set(q, (m.get(q) || 0) + 1);
    }
  }
  let best = "";
  for (const [q, n] of m) if (n > N * 0.4 && q.length > best.length) best = q;
  return best;
})();
function brief(s) {
  const parts = s.split(";");
  const first = prefix && parts[0].startsWith(prefix) ? "…/" + parts[0].slice(prefix.length) : parts[0];
  return first + (parts.length > 1 ? " +" + (parts.length - 1) : "");
}
