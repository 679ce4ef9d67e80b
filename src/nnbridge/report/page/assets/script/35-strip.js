/* The network in run order. */

const sections = [];
function section(id, title, nav, flat) {
  const h = el("h2", { id: id + "-h" }, title),
    head = el("div", { class: "head" }, h),
    s = el("section", { id, "aria-labelledby": id + "-h", class: flat ? "flat" : null }, head);
  sections.push([id, nav || title]);
  main.append(s);
  return { s, head };
}
function strip() {
  const { s, head } = section("strip", "The network in run order", "Overview");
  let byWork = false;
  const mk = (t, v) =>
    el(
      "button",
      {
        "aria-pressed": String(byWork === v),
        on: {
          click: (e) => {
            byWork = v;
            [...e.target.parentNode.children].forEach((b) => b.setAttribute("aria-pressed", b === e.target));
            place();
            draw();
          },
        },
      },
      t,
    );
  if (totalMac)
    head.append(
      el(
        "div",
        { class: "tools" },
        el("span", { class: "dim", style: "font-size:13.5px" }, "Width of an operation:"),
        el("div", { class: "seg" }, mk("equal", false), mk("its multiply-adds", true)),
      ),
    );
  const big = P.steps
    .map((k, i) => [k.bi, i])
    .filter((k) => k[0])
    .sort((a, b) => b[0] - a[0])[0];
  s.append(
    el(
      "p",
      { class: "lead" },
      P.steps.length > 1
        ? [
            "Lines below mark data copied between steps (longer = more). The box shows the part visible in the graph. ",
            el("b", null, `${bytes(P.crossing)} cross ${plural(P.steps.length - 1, "border")}`),
            big ? `, at most ${bytes(big[0])} at once, into step ${big[1]}.` : ".",
            D.sources.length > 1 ? " What enters or leaves a body is in the lines, not in the sum: it shares its memory with the tensor outside." : "",
          ]
        : "One step: nothing is handed over.",
    ),
  );
  s.append(
    el(
      "div",
      { class: "legend" },
      shown.map((r) =>
        el(
          "span",
          null,
          el("i", { class: "p-" + r.cls }),
          badge(r),
          el("span", null, r.place === "device" ? r.name : where(r)),
          el("span", { class: "n" }, `${int(r.n)} op${r.n === 1 ? "" : "s"}${totalMac ? ", " + share(r.mac, totalMac) : ""}`),
        ),
      ),
    ),
  );
  const cv = el("canvas", {
    role: "slider",
    tabindex: "0",
    "aria-label": `Band of ${plural(N, "operation")} in run order`,
    "aria-valuemin": 1,
    "aria-valuemax": Math.max(1, N),
  });
  const speak = () => {
    const o = ops[S.sel];
    cv.setAttribute("aria-valuenow", o ? pos[o.id] + 1 : 1);
    cv.setAttribute("aria-valuetext", o ? `operation ${o.id}, ${o.short}, on ${where(runner(o))}` : "none selected");
  };
  S.listeners.push(speak);
  speak();
  const box = el("div", { class: "strip" }, cv);
  s.append(box);
  const X = new Float64Array(N + 1);
  const H = P.steps.length > 1 ? 112 : 66;
  cv.style.height = H + "px";
  let W = 0;
  const top = 16,
    bar = 40;
  function place() {
    const floor = (totalMac / N) * 0.08;
    let t = 0;
    const w = order.map((i) => (byWork && totalMac ? Math.max(ops[i].mac || 0, floor) : 1)),
      all = w.reduce((a, b) => a + b, 0);
    X[0] = 0;
    w.forEach((x, i) => {
      t += x;
      X[i + 1] = t / all;
    });
  }
  const starts = P.steps.map((k) => pos[k.ops[0]]);
  function draw() {
    W = box.clientWidth || 1000;
    const c = fit(cv, W, H),
      x = (i) => X[i] * W;
    c.clearRect(0, 0, W, H);
    c.font = "600 12px ui-monospace,Menlo,Consolas,monospace";
    c.textAlign = "center";
    c.textBaseline = "middle";
    const runs = [];
    for (let i = 0; i < N;) {
      let j = i + 1;
      const r = runner(ops[order[i]]);
      while (j < N && runner(ops[order[j]]) === r) j++;
      runs.push([i, j, r]);
      i = j;
    }
    const rare = (r) => r.n / N;
    runs.sort((a, b) => rare(b[2]) - rare(a[2])); // the rare ones last and never thinner than they can be seen
    for (const [i, j, r] of runs) {
      const w = x(j) - x(i);
      c.fillStyle = w < 8 ? C[r.cls] : fill(c, r);
      c.fillRect(w < 1.6 ? (x(i) + x(j)) / 2 - 0.8 : x(i), top, Math.max(1.6, w), bar);
      if (x(j) - x(i) > 13) {
        c.fillStyle = C[r.cls];
        const m = (x(i) + x(j)) / 2;
        c.fillRect(m - 7, top + bar / 2 - 9, 14, 18);
        c.fillStyle = r.cls === "d2" ? C.on2 : C.onfill;
        c.fillText(r.key, m, top + bar / 2 + 0.5);
      }
    }
    if (filtering()) {
      c.fillStyle = C.surface;
      c.globalAlpha = 0.78;
      for (let i = 0; i < N;) {
        if (hit[order[i]]) {
          i++;
          continue;
        }
        let j = i;
        while (j < N && !hit[order[j]]) j++;
        c.fillRect(x(i), top, x(j) - x(i), bar);
        i = j;
      }
      c.globalAlpha = 1;
    }
    if (W / N > 10 || byWork) {
      c.fillStyle = C.surface;
      c.globalAlpha = 0.35;
      for (let i = 1; i < N; i++) if (x(i) - x(i - 1) > 3) c.fillRect(x(i) - 0.5, top, 1, bar);
      c.globalAlpha = 1;
    }
    const most = Math.max(1, ...P.steps.map((k) => k.bi || 0)),
      y0 = top + bar + 2,
      height = H - y0 - 22,
      labels = [];
    P.steps.forEach((k, i) => {
      if (!i) return;
      const at = x(starts[i]),
        h = k.bi ? Math.max(3, Math.sqrt(k.bi / most) * height) : 0;
      const thin = P.steps.length > W / 10;
      c.fillStyle = C.surface;
      if (!thin) c.fillRect(at - 1, top, 2, bar);
      c.fillStyle = C.ink;
      c.fillRect(at - 0.5, y0 - 2, thin ? 0.8 : 1.5, h + 2);
      if (!thin && h) {
        c.beginPath();
        c.arc(at + 0.25, y0 + h, 2.4, 0, 7);
        c.fill();
      }
      labels.push([k.bi, at, y0 + h + 9]);
    });
    c.font = "12px system-ui,sans-serif";
    c.fillStyle = C.ink;
    c.textBaseline = "middle";
    const ends = labels.map(([, x1, y1]) => [x1, y1]);
    const occupied = [],
      labelled = new Map();
    labels
      .sort((a, b) => b[0] - a[0])
      .slice(0, W < 600 ? 4 : 24)
      .forEach(([b, at]) => {
        if (!b) return;
        const t = bytes(b);
        labelled.set(t, (labelled.get(t) || 0) + 1);
        if (P.steps.length > 60 && labelled.get(t) > 1) return;
        const w = c.measureText(t).width / 2 + 5,
          m = Math.max(w, Math.min(W - w, at));
        if (occupied.some((q) => Math.abs(q[0] - m) < q[1] + w)) return;
        occupied.push([m, w]);
        // Below the lines of all borders that it would lie over.
        const y = ends.reduce((low, [x1, y1]) => (Math.abs(x1 - m) < w ? Math.max(low, y1) : low), 0);
        c.fillStyle = C.surface;
        c.fillRect(m - w + 3, Math.min(H - 7, y) - 6.5, 2 * w - 6, 13);
        c.fillStyle = C.ink;
        c.fillText(t, m, Math.min(H - 7, y));
      });
    if (view) {
      const [a, b] = view;
      c.strokeStyle = C.ink;
      c.lineWidth = 1.5;
      const l = x(a),
        r2 = Math.max(x(b + 1), l + 4);
      c.strokeRect(l + 0.75, top - 3.5, r2 - l - 1.5, bar + 7);
    }
    if (S.sel >= 0) {
      const m = (x(pos[S.sel]) + x(pos[S.sel] + 1)) / 2,
        w = Math.max(3, x(pos[S.sel] + 1) - x(pos[S.sel]));
      c.strokeStyle = C.ink;
      c.fillStyle = C.sel;
      c.lineWidth = 1;
      c.beginPath();
      c.moveTo(m, top - 1);
      c.lineTo(m - 7, top - 13);
      c.lineTo(m + 7, top - 13);
      c.closePath();
      c.fill();
      c.stroke();
      c.strokeStyle = C.sel;
      c.lineWidth = 2;
      c.strokeRect(m - w / 2, top, w, bar);
    }
  }
  let view = null;
  const at = (e) => {
    const b = cv.getBoundingClientRect(),
      f = (e.clientX - b.left) / b.width;
    let lo = 0,
      hi = N;
    while (hi - lo > 1) {
      const m = (lo + hi) >> 1;
      if (X[m] <= f) lo = m;
      else hi = m;
    }
    return order[Math.max(0, Math.min(N - 1, lo))];
  };
  cv.addEventListener("pointermove", (e) => {
    const o = ops[at(e)],
      k = P.steps[o.k];
    showTip(
      e.clientX,
      e.clientY,
      [
        ...opTip(o),
        k
          ? el(
              "div",
              null,
              `step ${o.k}: ${plural(k.ops.length, "operation")}, reads ${bytes(k.bi)}, passes on ${bytes(k.bo)}`,
            )
          : null,
      ].filter(Boolean),
    );
  });
  cv.addEventListener("pointerleave", hideTip);
  cv.addEventListener("click", (e) => select(at(e), "strip"));
  cv.addEventListener("keydown", (e) => {
    const d = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, Home: -N, End: N }[e.key];
    if (d) {
      e.preventDefault();
      const p = S.sel < 0 && Math.abs(d) === 1 ? 0 : Math.max(0, Math.min(N - 1, (pos[S.sel] ?? 0) + d));
      select(order[p], "strip");
    }
  });
  place();
  strip.view = (v) => {
    view = v;
    draw();
  };
  return draw;
}
