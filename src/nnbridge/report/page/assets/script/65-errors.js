/* Error along the network. */

function errors() {
  const { s, head } = section("acc", "Error along the network", "Accuracy");
  const L = D.layers;
  if (!L) {
    s.append(
      el(
        "p",
        { class: "lead" },
        D.compare
          ? "Only the outputs were compared; the error of each operation was not measured."
          : "Not measured. With a reference, this chart shows how far each operation is from it: by its own rounding, and with what it inherits.",
      ),
      placeholder("own error and drift of each operation"),
    );
    return () => {};
  }
  const withD = ops.filter((o) => o.err && o.err.drift),
    bad = withD.filter((o) => o.err.drift.ne > 0),
    boxes = ops.filter((o) => o.err && o.err.boxes),
    none = N - withD.length - boxes.length;
  const quantity = (o) => o.err.drift.steps != null;
  const matched = boxes.length ? ` Detections, of ${list(boxes.map((o) => o.short))}, are not in the chart: they are compared as their boxes match.` : "";
  const missing = matched + (none
    ? ` ${plural(none, "operation")} ${none === 1 ? "has" : "have"} no tensor that ${L.reference} has, and ${none === 1 ? "is" : "are"} left out.`
    : "");
  if (!bad.length) {
    const reserved = reservation();
    s.append(
      el(
        "p",
        { class: "finding" },
        el("span", { class: reserved ? "dim" : "good" }, reserved ? "? " : "✓ "),
        el(
          "b",
          null,
          reserved
            ? `${reserved.finding} equals ${L.reference}’s in all ${plural(withD.length, "tensor")} compared`
            : `All ${plural(withD.length, "tensor")} compared are equal to ${L.reference}’s, bit for bit`,
        ),
        `, over ${plural(L.samples, "sample")}.` + missing,
      ),
    );
    return () => {};
  }
  const useSteps = withD.filter(quantity).length >= withD.length / 2 && bad.some(quantity);
  let unit = useSteps ? "steps" : "rel";
  const ownMax = ops
    .filter((o) => o.err && o.err.own && (unit === "rel" || o.err.own.steps != null))
    .reduce((m, o) => Math.max(m, unit === "steps" ? o.err.own.steps : o.err.own.rel), 0);
  const worst = bad
    .filter((o) => unit === "rel" || quantity(o))
    .reduce((a, b) => ((unit === "steps" ? b.err.drift.steps > a.err.drift.steps : b.err.drift.rel > a.err.drift.rel) ? b : a));
  const first = order.map((i) => ops[i]).find((o) => o.err && o.err.drift && o.err.drift.ne > 0);
  const ut = (v) => (unit === "steps" ? plural(v, "step") : share(v, 1) + " of its range");
  s.append(
    el(
      "p",
      { class: "finding" },
      el(
        "b",
        null,
        unit === "steps"
          ? `No operation errs by more than ${ut(ownMax)} on its own; together they drift by up to ${ut(worst.err.drift.steps)}`
          : `The largest difference is ${sig(worst.err.drift.max, 2)}, ${ut(worst.err.drift.rel)}`,
      ),
      ", at ",
      opLink(worst.id),
      first && first !== worst ? [". The first difference appears at ", opLink(first.id)] : "",
      ". ",
      missing.trim(),
    ),
  );
  const lg = el(
    "div",
    { class: "legend", style: "margin:2px 0 8px" },
    el(
      "span",
      null,
      el("i", { style: "background:var(--ink);width:20px;height:3px;border-radius:0" }),
      "drift: the whole network up to here",
    ),
    el(
      "span",
      null,
      el("i", { style: "background:var(--line2);width:8px;height:14px;border-radius:1px" }),
      `own error: this operation in isolation, on ${L.reference}’s inputs`,
    ),
  );
  if (useSteps) lg.append(el("span", null, el("i", { class: "allowed" }), "1 step: the tolerance of an output"));
  const box = el("div");
  s.append(lg, box);
  const seg = [
    ["steps", "steps of 8 bits"],
    ["rel", "share of range"],
  ].filter((u) => u[0] === "rel" || bad.some(quantity));
  if (seg.length > 1)
    head.append(
      el(
        "div",
        { class: "tools" },
        el(
          "div",
          { class: "seg" },
          seg.map(([u, t]) =>
            el(
              "button",
              {
                "aria-pressed": String(u === unit),
                on: {
                  click: (e) => {
                    unit = u;
                    [...e.target.parentNode.children].forEach((b) => b.setAttribute("aria-pressed", b === e.target));
                    draw();
                  },
                },
              },
              t,
            ),
          ),
        ),
      ),
    );
  s.append(
    el(
      "p",
      { class: "note" },
      `Largest difference of each output tensor over ${plural(L.samples, "sample")} (${clean(L.which)}), against ${L.reference}. Height is logarithmic; zero has a line of its own. A step is one unit of a quantised tensor, so it is worth more where the scale is coarse.`,
    ),
  );
  if (L.causes.length) {
    const most = 6;
    const more = L.causes.length - most;
    s.append(
      el("h3", { style: "margin-top:14px" }, "Causes"),
      el(
        "ul",
        { class: "causes" },
        L.causes.slice(0, most).map((c) => el("li", null, `${clean(c.sentence)} (${plural(c.operators, "operator")})`)),
        more > 0 ? el("li", { class: "dim" }, `and ${plural(more, "other")}`) : null,
      ),
    );
  }
  function draw() {
    const W = box.clientWidth || 1200,
      H = bad.length < 4 ? 150 : W < 600 ? 210 : 260,
      l = 58,
      r = 10,
      t = 12,
      b = 40,
      val = (d) => (d == null ? null : unit === "steps" ? d.steps : d.rel);
    const vals = ops.flatMap((o) => (o.err ? [val(o.err.own), val(o.err.drift)] : [])).filter((v) => v > 0);
    const hi = Math.max(...vals, unit === "steps" ? 2 : 1e-9),
      lo = unit === "steps" ? 1 : Math.min(...vals),
      zero = H - b - 2,
      base = zero - 16;
    const a0 = Math.log10(lo * 0.8),
      a1 = Math.log10(hi * 1.25),
      y = (v) => (v == null ? null : v === 0 ? zero : base - ((Math.log10(v) - a0) / (a1 - a0 || 1)) * (base - t)),
      x = (i) => l + ((i + 0.5) / N) * (W - l - r);
    const ticks =
      unit === "steps"
        ? [1, 2, 5, 10, 20, 50, 100, 200].filter((v) => v <= hi * 1.2)
        : Array.from({ length: 14 }, (_, i) => 10 ** (i - 12)).filter((v) => v >= lo * 0.8 && v <= hi * 1.25);
    const g = sv("svg", {
      viewBox: `0 0 ${W} ${H}`,
      role: "img",
      "aria-label": "Own error and drift of each operation in run order; the table of operations has the numbers",
    });
    const pct = (v) => (v >= 0.0001 ? +(v * 100).toPrecision(2) + " %" : v.toExponential(0).replace("+", ""));
    [...ticks, 0].forEach((v) =>
      g.append(
        sv("line", { x1: l, x2: W - r, y1: y(v), y2: y(v), class: "ax" }),
        sv("text", { x: l - 8, y: y(v) + 4, "text-anchor": "end" }, unit === "steps" ? v : v ? pct(v) : "0"),
      ),
    );
    if (unit === "steps") {
      const tol = y(1);
      g.append(sv("line", { x1: l, x2: W - r, y1: tol, y2: tol, stroke: "var(--bad)", "stroke-dasharray": "5 4" }));
    }
    const bw = Math.max(1, Math.min(8, ((W - l - r) / N) * 0.5));
    order.forEach((i, p) => {
      const e = ops[i].err,
        v = e && val(e.own);
      if (v > 0) g.append(sv("rect", { x: x(p) - bw / 2, y: y(v), width: bw, height: zero - y(v), fill: "var(--line2)" }));
    });
    let d = "",
      pen = false;
    order.forEach((i, p) => {
      const e = ops[i].err,
        v = e ? val(e.drift) : null;
      if (v == null) {
        pen = false;
        return;
      }
      d += (pen ? "L" : "M") + x(p).toFixed(1) + " " + y(v).toFixed(1);
      pen = true;
    });
    g.append(sv("path", { d, fill: "none", stroke: "var(--ink)", "stroke-width": 1.8, "stroke-linejoin": "round" }));
    if (N < 250)
      order.forEach((i, p) => {
        const e = ops[i].err,
          v = e ? val(e.drift) : null;
        if (v != null) g.append(sv("circle", { cx: x(p), cy: y(v), r: 2.6, fill: "var(--ink)" }));
      });
    const wy = val(worst.err.drift);
    if (wy > 0)
      g.append(
        sv(
          "text",
          {
            x: Math.min(W - 90, Math.max(l + 60, x(pos[worst.id]))),
            y: y(wy) - 8,
            "text-anchor": "middle",
            class: "ink",
            style: "font-weight:650",
          },
          (unit === "steps" ? plural(wy, "step") : pct(wy)) + ` at ${worst.id}`,
        ),
      );
    for (let i = 0; i < N;) {
      let j = i + 1;
      const q = runner(ops[order[i]]);
      while (j < N && runner(ops[order[j]]) === q) j++;
      g.append(
        sv("rect", {
          x: l + (i / N) * (W - l - r),
          y: H - b + 8,
          width: ((j - i) / N) * (W - l - r),
          height: 9,
          fill: `var(--${q.cls})`,
          stroke: "var(--surface)",
          "stroke-width": 0.6,
        }),
      );
      if (((j - i) / N) * (W - l - r) > 12)
        g.append(sv("text", { x: l + ((i + j) / 2 / N) * (W - l - r), y: H - b + 32, "text-anchor": "middle" }, q.key));
      i = j;
    }
    g.append(sv("text", { x: l - 8, y: H - b + 17, "text-anchor": "end" }, "runs on"));
    const cur = sv("line", { y1: t, y2: zero, stroke: "var(--ink)", "stroke-width": 1, opacity: 0 });
    g.append(cur);
    const hitr = sv("rect", {
      x: l,
      y: 0,
      width: W - l - r,
      height: H,
      fill: "transparent",
      style: "cursor:crosshair",
    });
    const at = (e) => {
      const q = g.getBoundingClientRect();
      return order[Math.max(0, Math.min(N - 1, Math.floor(((((e.clientX - q.left) * W) / q.width - l) / (W - l - r)) * N)))];
    };
    hitr.addEventListener("pointermove", (e) => {
      const o = ops[at(e)],
        f = (z) =>
          z
            ? (z.steps != null ? plural(z.steps, "step") + ", " : "") +
              sig(z.rel * 100, 2) +
              " % of range, " +
              share(z.ne, 1) +
              " differ"
            : "not measured";
      cur.setAttribute("x1", x(pos[o.id]));
      cur.setAttribute("x2", x(pos[o.id]));
      cur.setAttribute("opacity", 0.5);
      showTip(e.clientX, e.clientY, [
        el("div", null, `${o.id} · ${o.type} on ${runner(o).name}`),
        el("div", null, "drift: " + f(o.err && o.err.drift)),
        el("div", null, "own: " + f(o.err && o.err.own)),
      ]);
    });
    hitr.addEventListener("pointerleave", () => {
      hideTip();
      cur.setAttribute("opacity", 0);
    });
    hitr.addEventListener("click", (e) => {
      select(at(e), "chart");
    });
    g.append(hitr);
    box.replaceChildren(g);
  }
  return draw;
}
const placeholder = (t) =>
  el(
    "div",
    {
      style:
        "border:1.5px dashed var(--line2);border-radius:8px;padding:20px;color:var(--muted);font-size:14px;text-align:center",
    },
    "Not measured: ",
    t,
  );
