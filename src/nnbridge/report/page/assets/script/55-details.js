/* Details of one operation. */

const MAPPINGS = {
  wide: "wide: beyond what a phone’s client hands to NNAPI",
  host: "host: not handed to NNAPI",
};
const fact = (t, d) => (d ? [el("dt", null, t), el("dd", null, d)] : []);
const opLink = (i) => el("button", { class: "link", on: { click: () => select(i, "link") } }, soft(`${i} ${ops[i].short}`));
function tensorRow(x, role, inward) {
  const o = D.operands[x],
    rest = [];
  if (o.s) rest.push(`scale ${sig(o.s, 5)}, zero point ${o.z}`);
  if (o.q) rest.push(`${o.q} scales, one per channel`);
  if (o.b) rest.push(bytes(o.b));
  let from = null;
  if (inward)
    from = producer.has(x)
      ? ["from ", opLink(producer.get(x))]
      : o.l === "i"
        ? "model input"
        : o.l === "c"
          ? "constant"
          : o.l === "n"
            ? "omitted"
            : "";
  else {
    const to = readers(x);
    from = [
      o.l === "o" ? "model output" + (to.length ? "; " : "") : "",
      !to.length && o.l !== "o" ? "unread" : "",
      to.length
        ? ["to ", to.slice(0, 6).map((t, i) => [i ? ", " : "", opLink(t)]), to.length > 6 ? ` and ${to.length - 6} more` : ""]
        : "",
    ];
  }
  const v = o.v != null && (!Array.isArray(o.v) || o.v.length <= 8) && inward ? `= ${JSON.stringify(o.v)}` : "";
  return el(
    "div",
    { class: "ten" },
    el("span", { class: "r" }, role || "–"),
    el("span", { class: "sh" }, shortType(o) + " " + shape(o)),
    el("span", { class: "d" }, from, v ? " " + v : "", rest.length ? [" · ", rest.join(" · ")] : ""),
    o.n ? el("span", { class: "d" }, name(cutMid(o.n, 120))) : null,
  );
}
function inspect(box) {
  if (S.sel < 0) {
    const worth = ops
      .filter((o) => runner(o).place !== "device")
      .sort((a, b) => (b.mac || 0) - (a.mac || 0) || (b.ob || 0) - (a.ob || 0))
      .slice(0, 5);
    const heavy = ops
      .filter((o) => o.mac)
      .sort((a, b) => (b.mac || 0) - (a.mac || 0))
      .slice(0, 5);
    const far = D.layers
      ? ops
          .filter((o) => o.err && o.err.drift && o.err.drift.ne)
          .sort((a, b) => b.err.drift.rel - a.err.drift.rel)
          .slice(0, 5)
      : [];
    const block = (t, a, f) =>
      a.length
        ? [
            el("h4", null, t),
            a.map((o) =>
              el(
                "div",
                { class: "ten" },
                el("span", { class: "at" }, badge(runner(o)), opLink(o.id)),
                el("span", { class: "sh" }, f(o)),
              ),
            ),
          ]
        : null;
    const begin = [
      block("Off the devices, largest first", worth.length && onDevice.length ? worth : [], (o) =>
        o.mac ? work(o.mac) + " m.-a." : bytes(o.ob) + " out",
      ),
      block("Most multiply-adds", totalMac ? heavy : [], (o) => work(o.mac)),
      block(`Furthest from ${reference}`, far, (o) =>
        o.err.drift.steps != null ? plural(o.err.drift.steps, "step") : sig(o.err.drift.max, 2),
      ),
    ]
      .flat(3)
      .filter(Boolean);
    box.replaceChildren(
      el("h3", null, "Select an operation"),
      el(
        "p",
        { class: "dim", style: "margin-top:6px" },
        "Click an operation, search with /, or follow edges with the arrow keys." + (begin.length ? " Places to begin:" : ""),
      ),
      ...begin,
    );
    return;
  }
  const o = ops[S.sel],
    r = runner(o),
    k = P.steps[o.k],
    e = o.err;
  const refused = o.why.map((w) => P.reasons[w]);
  const ten = [],
    sc = [];
  o.i.forEach((x, i) => {
    const t = D.operands[x];
    if (TY(t).startsWith("TENSOR") || t.l !== "c") {
      if (t.l !== "n") ten.push(tensorRow(x, o.a[i], true));
    } else sc.push([o.a[i] || "input " + i, t.v]);
  });
  const err = (d) =>
    d
      ? !d.ne
        ? "0"
        : (d.steps != null ? plural(d.steps, "step") : sig(d.max, 2)) + `, ${share(d.ne, 1)} of values differ`
      : "not measured";
  box.replaceChildren(
    el("h3", null, badge(r), el("span", null, soft(o.type)), el("span", { class: "dim", style: "font-weight:450;font-size:14px" }, "operation " + o.id)),
    o.label ? el("p", { style: "margin-top:4px" }, name(o.label.length > 260 ? cutMid(o.label, 260) : o.label)) : "",
    el(
      "dl",
      { class: "kv" },
      el("dt", null, "Runs on"),
      el("dd", null, where(r) + (r.place === "NNAPI CPU" ? ` (${r.name})` : "")),
      el("dt", null, "Step"),
      el("dd", null, k ? `${o.k} of ${P.steps.length}, ${plural(k.ops.length, "operation")}` : "–"),
      el("dt", null, "Multiply-adds"),
      el("dd", null, o.mac == null ? "open shape" : o.mac ? `${work(o.mac)} (${share(o.mac, totalMac)})` : "none counted"),
      el("dt", null, "Parameters"),
      el("dd", null, bytes(o.pb)),
      el("dt", null, "Output"),
      el("dd", null, bytes(o.ob)),
      ...(D.layers
        ? [
            el("dt", null, "Own error"),
            el("dd", null, err(e && e.own)),
            el("dt", null, "Drift so far"),
            el("dd", null, e && e.boxes ? "compared as its boxes match" : err(e && e.drift)),
          ]
        : []),
      ...fact("Cause", e && e.why),
      ...fact("Note", e && e.note),
      ...fact("In the file", o.f && "operator " + clean(o.f)),
      ...fact("Inside", clean(within(o))),
      ...o.e.flatMap(([role, kinds]) =>
        fact(`Its ${role}`, kinds.map(([t, n]) => t + (n > 1 ? ` × ${n}` : "")).join(", ") || "empty"),
      ),
      ...fact("Mapping", MAPPINGS[o.m]),
      ...(D.against ? fact("In the other plan", againstText(S.sel)) : []),
    ),
    el(
      "div",
      { class: "blk" },
      el("h4", null, "Why not elsewhere"),
      refused.length
        ? el(
            "div",
            null,
            refused.map((q) => {
              const d = R.find((z) => z.name === q.device);
              return el(
                "div",
                { class: "rs", style: d ? `border-color:var(--${d.cls})` : "" },
                el("div", { class: "who" }, saidBy(q)),
                el("div", null, ruleNode(q)),
              );
            }),
          )
        : el("p", { class: "dim" }, "No other device was asked."),
    ),
    el(
      "div",
      { class: "cols" },
      el(
        "div",
        null,
        el("h4", null, "Inputs"),
        el("div", null, ten),
        sc.length
          ? el(
              "dl",
              { class: "sc" },
              sc.flatMap(([a, v]) => [el("dt", null, a), el("dd", null, v == null ? "–" : JSON.stringify(v))]),
            )
          : "",
      ),
      el(
        "div",
        null,
        el("h4", null, "Outputs"),
        el(
          "div",
          null,
          o.o.map((x, i) => tensorRow(x, o.o.length > 1 ? "output " + i : "output", false)),
        ),
      ),
    ),
  );
  box.scrollTop = 0;
}
