/* Where the work and the memory is. */

function workSection() {
  const { s } = section("work", "Work and memory", "Work & memory");
  s.append(
    el(
      "p",
      { class: "lead" },
      "From shapes and types; nothing is measured or estimated here. Multiply-adds are those of convolutions, matrix products and recurrent cells; other operations count as none.",
    ),
  );
  const by = new Map();
  ops.forEach((o) => {
    if (!by.has(o.type)) by.set(o.type, { t: o.type, n: 0, mac: 0, pb: 0, r: new Map() });
    const q = by.get(o.type);
    q.n++;
    q.mac += o.mac || 0;
    q.pb += o.pb;
    q.r.set(runner(o), (q.r.get(runner(o)) || 0) + (totalMac ? o.mac || 0 : 1));
  });
  const all = [...by.values()].sort((a, b) => b.mac - a.mac || b.pb - a.pb || b.n - a.n),
    rows = all.slice(0, 8),
    rest = all.slice(8);
  const mm = Math.max(1, ...rows.map((q) => q.mac)),
    mp = Math.max(1, ...rows.map((q) => q.pb));
  const two = el("div", { class: "two" });
  two.append(
    el(
      "div",
      null,
      el("h3", null, "By type of operation"),
      listing(
        "Multiply-adds and parameters by type of operation",
        ["Type", "How many", "Multiply-adds", "Parameters"],
        el(
          "tbody",
          null,
          rows.map((q) =>
            el(
              "tr",
              null,
              el("td", null, soft(q.t)),
              el("td", { class: "num", "data-l": "How many" }, int(q.n)),
              el(
                "td",
                { "data-l": "Multiply-adds" },
                el(
                  "div",
                  { class: "bar" },
                  el("span", null, work(q.mac)),
                  el(
                    "div",
                    null,
                    [...q.r].map(([r, v]) => el("i", { class: "p-" + r.cls, style: `width:${q.mac ? (100 * v) / mm : 0}%` })),
                  ),
                ),
              ),
              el(
                "td",
                { "data-l": "Parameters" },
                el(
                  "div",
                  { class: "bar" },
                  el("span", null, q.pb ? bytes(q.pb) : "0"),
                  el("div", null, el("b", { style: `width:${(100 * q.pb) / mp}%` })),
                ),
              ),
            ),
          ),
          rest.length
            ? el(
                "tr",
                null,
                el("td", { class: "dim" }, plural(rest.length, "other type")),
                el("td", { class: "num", "data-l": "How many" }, int(rest.reduce((a, q) => a + q.n, 0))),
                el(
                  "td",
                  { "data-l": "Multiply-adds" },
                  el("div", { class: "bar" }, el("span", null, work(rest.reduce((a, q) => a + q.mac, 0)))),
                ),
                el(
                  "td",
                  { "data-l": "Parameters" },
                  el("div", { class: "bar" }, el("span", null, bytes(rest.reduce((a, q) => a + q.pb, 0)))),
                ),
              )
            : null,
        ),
        /How/,
        "margin-top:4px",
      ),
    ),
  );
  const box = el("div");
  two.append(
    el(
      "div",
      null,
      el("h3", null, "Tensors alive along the run"),
      el(
        "p",
        { class: "note", style: "margin:2px 0 6px" },
        soft(`At most ${bytes(P.live[peak])}, while operation ${order[peak]} (${ops[order[peak]].type}) runs. Inputs, outputs and intermediate tensors; a driver may need more or less.`),
      ),
      box,
    ),
  );
  s.append(two);
  return () => {
    const W = box.clientWidth || 560,
      H = 210,
      l = 58,
      r = 6,
      t = 22,
      b = 34,
      hi = P.live[peak] * 1.05 || 1,
      x = (i) => l + (i / N) * (W - l - r),
      y = (v) => H - b - (v / hi) * (H - b - t);
    const g = sv("svg", {
      viewBox: `0 0 ${W} ${H}`,
      role: "img",
      "aria-label": `Bytes of tensors alive at each operation; at most ${bytes(P.live[peak])} at operation ${order[peak]}`,
    });
    const nice = (() => {
      const p = 10 ** Math.floor(Math.log10(hi / 3));
      return [1, 2, 5, 10].map((m) => m * p).find((v) => hi / v <= 4.2);
    })();
    for (let v = 0; v <= hi; v += nice)
      g.append(
        sv("line", { x1: l, x2: W - r, y1: y(v), y2: y(v), class: "ax" }),
        sv(
          "text",
          { x: l - 8, y: y(v) + 4, "text-anchor": "end" },
          v
            ? bytes(v)
                .replace(/\.0+(?=\D)/, "")
                .replace(/(\.\d*?[1-9])0+(?=\D)/, "$1")
            : "0",
        ),
      );
    let d = `M${x(0)} ${y(0)}`;
    P.live.forEach((v, i) => (d += `L${x(i).toFixed(1)} ${y(v).toFixed(1)}L${x(i + 1).toFixed(1)} ${y(v).toFixed(1)}`));
    d += `L${x(N)} ${y(0)}Z`;
    g.append(
      sv("path", {
        d,
        fill: "var(--line2)",
        "fill-opacity": 0.38,
        stroke: "var(--ink)",
        "stroke-width": N > 600 ? 0.6 : 1.2,
        "stroke-linejoin": "round",
      }),
    );
    const px = x(peak + 0.5);
    g.append(
      sv("circle", { cx: px, cy: y(P.live[peak]), r: 3.4, fill: "var(--ink)" }),
      sv(
        "text",
        {
          x: Math.min(W - 60, Math.max(l + 40, px)),
          y: y(P.live[peak]) - 9,
          "text-anchor": "middle",
          class: "ink",
          style: "font-weight:650",
        },
        bytes(P.live[peak]),
      ),
    );
    for (let i = 0; i < N;) {
      let j = i + 1;
      const q = runner(ops[order[i]]);
      while (j < N && runner(ops[order[j]]) === q) j++;
      g.append(sv("rect", { x: x(i), y: H - b + 8, width: Math.max(0.7, x(j) - x(i)), height: 8, fill: `var(--${q.cls})` }));
      i = j;
    }
    g.append(sv("text", { x: l, y: H - 4 }, "first operation"), sv("text", { x: W - r, y: H - 4, "text-anchor": "end" }, "last"));
    const h = sv("rect", { x: l, y: 0, width: W - l - r, height: H, fill: "transparent" });
    h.addEventListener("pointermove", (e) => {
      const q = g.getBoundingClientRect(),
        i = Math.max(0, Math.min(N - 1, Math.floor(((((e.clientX - q.left) * W) / q.width - l) / (W - l - r)) * N)));
      showTip(e.clientX, e.clientY, [
        el("div", null, `${order[i]} · ${ops[order[i]].type}`),
        el("div", null, bytes(P.live[i]) + " alive"),
      ]);
    });
    h.addEventListener("pointerleave", hideTip);
    h.addEventListener("click", (e) => {
      const q = g.getBoundingClientRect();
      select(
        order[Math.max(0, Math.min(N - 1, Math.floor(((((e.clientX - q.left) * W) / q.width - l) / (W - l - r)) * N)))],
        "chart",
      );
    });
    g.append(h);
    box.replaceChildren(g);
  };
}
