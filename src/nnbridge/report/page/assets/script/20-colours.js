/* Colours for canvases. */

let C = {};
const patterns = new Map();
function readColours() {
  const s = getComputedStyle(document.documentElement),
    get = (k) => s.getPropertyValue("--" + k).trim();
  C = {};
  const names = "bg surface sunk ink muted line line2 sel edge node d1 d2 d3 d4 cpu host rt onfill on2 hatch bad good";
  for (const k of names.split(" ")) C[k] = get(k);
  patterns.clear();
}
function fill(ctx, r) {
  if (r.cls === "d1") return C.d1;
  if (patterns.has(r.cls)) return patterns.get(r.cls);
  const k = devicePixelRatio > 1 ? 2 : 1,
    t = document.createElement("canvas"),
    c = t.getContext("2d"),
    n = 8 * k;
  t.width = t.height = n;
  c.fillStyle = C[r.cls];
  c.fillRect(0, 0, n, n);
  c.strokeStyle = C.hatch;
  c.fillStyle = C.hatch;
  c.lineWidth = 1.8 * k;
  const line = (a, b, d, e) => {
    c.beginPath();
    c.moveTo(a * k, b * k);
    c.lineTo(d * k, e * k);
    c.stroke();
  };
  if (r.cls === "cpu" || r.cls === "host") {
    line(-2, 10, 10, -2);
    line(-2, 2, 2, -2);
    line(6, 10, 10, 6);
  }
  if (r.cls === "host") {
    line(-2, -2, 10, 10);
  }
  if (r.cls === "d2") line(4, 0, 4, 8);
  if (r.cls === "d3") {
    line(0, 2, 8, 2);
    line(0, 6, 8, 6);
  }
  if (r.cls === "d4" || r.cls === "rt") {
    c.beginPath();
    c.arc(4 * k, 4 * k, 1.7 * k, 0, 7);
    c.fill();
  }
  const p = ctx.createPattern(t, "repeat");
  p.setTransform(new DOMMatrix().scale(1 / k));
  patterns.set(r.cls, p);
  return p;
}
function fit(canvas, w, h) {
  const k = devicePixelRatio || 1;
  canvas.width = Math.round(w * k);
  canvas.height = Math.round(h * k);
  const c = canvas.getContext("2d");
  c.setTransform(k, 0, 0, k, 0, 0);
  return c;
}
const badge = (r) => el("span", { class: "bd p-" + r.cls, title: r.name, "aria-hidden": "true" }, r.key);
const where = (r) =>
  r.place === "NNAPI CPU"
    ? "NNAPI’s CPU"
    : r.place === "host"
      ? D.plan.counts.host.replace("'", "’")
      : r.place === "NNAPI runtime"
        ? "NNAPI’s runtime"
        : clean(r.name);
const stack = (f) => {
  const t = shown.reduce((s, r) => s + f(r), 0);
  return el(
    "div",
    { class: "stack", "aria-hidden": "true" },
    t ? shown.filter((r) => f(r)).map((r) => el("i", { class: "p-" + r.cls, style: `flex:${f(r) / t} 1 0` })) : null,
  );
};
