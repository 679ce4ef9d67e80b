/* The graph. */

function graphSection() {
  const { s, head } = section("graph", "Graph", "Graph");
  const t0 = performance.now(),
    g = layout();
  window.__layout = performance.now() - t0;
  const input = el("input", {
    type: "search",
    placeholder: "Search type, name, number",
    "aria-label": "Search operations",
    id: "q",
    autocomplete: "off",
    spellcheck: "false",
  });
  const nHits = el("span", { class: "hits", "aria-live": "polite" });
  const go = (d) => {
    const at = S.sel < 0 ? (d > 0 ? -1 : N) : pos[S.sel];
    for (let k = 1; k <= N; k++) {
      const o = order[(((at + d * k) % N) + N) % N];
      if (hit[o]) {
        select(o, "search");
        return;
      }
    }
  };
  const nextOff = (d) => {
    const test = (o) => (onDevice.length === N ? refusedBy(o).length : onDevice.length ? runner(o).place !== "device" : true);
    const at = S.sel < 0 ? -1 : pos[S.sel];
    for (let k = 1; k <= N; k++) {
      const o = order[(((at + d * k) % N) + N) % N];
      if (test(ops[o])) {
        select(o, "search");
        return;
      }
    }
  };
  head.append(
    el(
      "div",
      { class: "tools" },
      el("span", { class: "search" }, input),
      nHits,
      el("button", { class: "btn", on: { click: () => go(-1) }, "aria-label": "Previous hit" }, "↑"),
      el("button", { class: "btn", on: { click: () => go(1) }, "aria-label": "Next hit" }, "↓"),
      onDevice.length && onDevice.length < N
        ? el("button", { class: "btn", on: { click: () => nextOff(1) } }, "Next off the device")
        : null,
    ),
  );
  let timer;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      S.text = input.value.trim().toLowerCase();
      refilter();
      if (S.text && hits && (S.sel < 0 || !hit[S.sel])) go(1);
    }, 120);
  });
  input.addEventListener("keydown", (e) => {
    if (e.key === "Enter") {
      e.preventDefault();
      go(e.shiftKey ? -1 : 1);
    }
    if (e.key === "Escape") {
      input.value = "";
      S.text = "";
      refilter();
      cv.focus();
    }
  });
  const cv = el("canvas", {
    class: "main",
    tabindex: "0",
    role: "application",
    "aria-label": `Graph of ${N} operations. Arrow keys follow edges, N and P go in run order, Enter opens the details. The table of operations below has the same.`,
  });
  const over = el("canvas", { class: "over", "aria-hidden": "true" });
  const zb = (t, label, f) => el("button", { class: "btn sq", "aria-label": label, title: label, on: { click: f } }, t);
  const view = el(
    "div",
    { class: "gview" },
    cv,
    over,
    el(
      "div",
      { class: "gzoom" },
      zb("−", "Zoom out", () => zoom(1 / 1.35)),
      zb("+", "Zoom in", () => zoom(1.35)),
      zb("Map", "Map of the whole network", () => fitAll()),
      zb("1:1", "1:1, normal size", () => {
        g.fold(Infinity);
        center(S.sel >= 0 ? g.nodes[g.nodeOf.get(S.sel)] : null, 1);
      }),
    ),
  );
  const insp = el("aside", { class: "insp", "aria-label": "Details of the selected operation", tabindex: "0" });
  s.append(
    el("div", { class: "gbox" + (g.hi - g.lo < 620 ? " slim" : "") }, view, insp),
    el(
      "p",
      { class: "note noprint" },
      "Dashed edges cross a border between steps and carry their bytes. Map folds the whole network into columns. Drag to move; the wheel zooms once the graph has the focus, or with Ctrl. Arrow keys follow edges; ",
      el("kbd", null, "?"),
      " lists all keys.",
    ),
  );
  let W = 800,
    H = 600,
    k = 1,
    ox = 0,
    oy = 0,
    drawn = false;
  const clampView = () => {
    const m = 60;
    oy = Math.min(H - m, Math.max(m - g.H * k, oy));
    ox = Math.min(W - m - g.lo * k, Math.max(m - g.hi * k, ox));
  };
  const center = (n, z) => {
    if (z) k = z;
    if (n) {
      ox = W / 2 - n.x * k;
      oy = H / 2 - n.y * k;
    }
    clampView();
    draw();
  };
  const fitAll = () => {
    g.fold(Infinity);
    if (Math.min((W - 30) / g.width, (H - 30) / g.H) < 0.34 && g.H / g.width > 2) {
      const c = Math.max(2, Math.ceil(Math.sqrt(((W / H) * g.H) / (g.width + 90)) * 1.03));
      g.fold(Math.ceil((g.depth / c) * 1.1));
      k = Math.min(1, (W - 40) / (g.hi - g.lo + 20), (H - 90) / g.H);
      ox = W / 2 - ((g.lo + g.hi) / 2) * k;
      oy = Math.max(26 + (PITCH * k) / 2, (H - 60 - (g.H - PITCH) * k) / 2);
      draw();
      return;
    }
    k = Math.min(1, (W - 30) / (g.hi - g.lo + 20), (H - 30) / g.H);
    ox = W / 2 - ((g.lo + g.hi) / 2) * k;
    oy = (H - (g.H - PITCH) * k) / 2;
    draw();
  };
  const zoom = (f, cx = W / 2, cy = H / 2) => {
    const z = Math.max(0.004, Math.min(2.5, k * f));
    ox = cx - ((cx - ox) * z) / k;
    oy = cy - ((cy - oy) * z) / k;
    k = z;
    clampView();
    draw();
  };
  let frame = 0;
  let overview = true;
  /** The bar beside the graph is there while the graph is longer than the view; it never covers the graph. */
  function measureView() {
    const needed = !g.folded && g.H * k >= view.clientHeight * 0.98;
    if (needed !== overview) view.classList.toggle("alone", !(overview = needed));
    W = cv.clientWidth;
    H = cv.clientHeight;
  }
  function draw() {
    if (!frame)
      frame = requestAnimationFrame(() => {
        frame = 0;
        now();
      });
  }
  function now() {
    measureView();
    const t = performance.now();
    paintGraph(fit(cv, W, H), { W, H, k, ox, oy }, g);
    if (overview) paintOverview(over, { W, H, k, ox, oy }, g);
    window.__paint = performance.now() - t;
    let a = N,
      b = -1;
    const ya = -oy / k,
      yb = (H - oy) / k;
    for (const n of g.nodes)
      if (n.op != null && n.y > ya && n.y < yb) {
        const p = pos[n.op];
        if (p < a) a = p;
        if (p > b) b = p;
      }
    if (strip.view) strip.view(b >= a ? [a, b] : null);
  }
  const goOver = (e) => {
    const b = over.getBoundingClientRect(),
      y = ((e.clientY - b.top - 4) / (b.height - 8)) * g.H;
    oy = H / 2 - y * k;
    clampView();
    draw();
  };
  over.addEventListener("pointerdown", (e) => {
    over.setPointerCapture(e.pointerId);
    goOver(e);
  });
  over.addEventListener("pointermove", (e) => {
    if (e.buttons) goOver(e);
  });
  const pick = (e) => {
    const b = cv.getBoundingClientRect(),
      x = (e.clientX - b.left - ox) / k,
      y = (e.clientY - b.top - oy) / k;
    return g.nodes.findIndex((n) => n.op != null && Math.abs(n.x - x) <= n.w / 2 && Math.abs(n.y - y) <= Math.max(NH / 2, 4 / k));
  };
  const pointers = new Map();
  let moved = 0,
    dist = 0;
  cv.addEventListener("pointerdown", (e) => {
    cv.setPointerCapture(e.pointerId);
    pointers.set(e.pointerId, [e.clientX, e.clientY]);
    moved = 0;
    dist = 0;
  });
  cv.addEventListener("pointermove", (e) => {
    if (!pointers.has(e.pointerId)) {
      const n = pick(e);
      if (n >= 0) showTip(e.clientX, e.clientY, opTip(ops[g.nodes[n].op]));
      else hideTip();
      cv.style.cursor = n >= 0 ? "pointer" : "";
      return;
    }
    const p = pointers.get(e.pointerId),
      dx = e.clientX - p[0],
      dy = e.clientY - p[1];
    moved += Math.abs(dx) + Math.abs(dy);
    pointers.set(e.pointerId, [e.clientX, e.clientY]);
    hideTip();
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()],
        d = Math.hypot(a[0] - b[0], a[1] - b[1]),
        r = cv.getBoundingClientRect();
      if (dist) zoom(d / dist, (a[0] + b[0]) / 2 - r.left, (a[1] + b[1]) / 2 - r.top);
      dist = d;
    } else {
      cv.classList.add("drag");
      ox += dx;
      oy += dy;
      clampView();
      draw();
    }
  });
  const end = (e) => {
    if (!pointers.delete(e.pointerId)) return;
    cv.classList.remove("drag");
    dist = 0;
    if (moved < 6 && e.type === "pointerup") {
      const n = pick(e);
      select(n >= 0 ? g.nodes[n].op : -1, "graph");
    }
  };
  cv.addEventListener("dblclick", () => {
    if (g.folded && S.sel >= 0) {
      g.fold(Infinity);
      center(g.nodes[g.nodeOf.get(S.sel)], 0.95);
    }
  });
  cv.addEventListener("pointerup", end);
  cv.addEventListener("pointercancel", end);
  cv.addEventListener("pointerleave", hideTip);
  cv.addEventListener(
    "wheel",
    (e) => {
      if (!e.ctrlKey && !e.metaKey && document.activeElement !== cv) return;
      e.preventDefault();
      const b = cv.getBoundingClientRect();
      if (e.shiftKey) {
        oy -= e.deltaY;
        clampView();
        draw();
      } else zoom(Math.exp(-e.deltaY * 0.0016), e.clientX - b.left, e.clientY - b.top);
    },
    { passive: false },
  );
  const neighbour = (dir) => {
    const i = S.sel < 0 ? -1 : g.nodeOf.get(S.sel);
    if (i < 0) return select(order[0], "graph");
    const me = g.nodes[i];
    let c = [];
    if (dir === "up") c = g.inE[i].map((e) => g.edges[e].a);
    else if (dir === "down") c = g.outE[i].map((e) => g.edges[e].b);
    else c = g.layers[me.layer].filter((n) => n < g.nodes.length && (dir === "left" ? g.nodes[n].x < me.x : g.nodes[n].x > me.x));
    c = c.filter((n) => g.nodes[n].op != null);
    if (!c.length) return;
    c.sort((a, b) => Math.abs(g.nodes[a].x - me.x) - Math.abs(g.nodes[b].x - me.x));
    select(g.nodes[c[0]].op, "graph");
  };
  cv.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const f = {
      ArrowUp: () => neighbour("up"),
      ArrowDown: () => neighbour("down"),
      ArrowLeft: () => neighbour("left"),
      ArrowRight: () => neighbour("right"),
      "+": () => zoom(1.35),
      "=": () => zoom(1.35),
      "-": () => zoom(1 / 1.35),
      0: fitAll,
      Enter: () => {
        if (g.folded) {
          g.fold(Infinity);
          center(g.nodes[g.nodeOf.get(S.sel)] || null, 0.95);
        } else insp.focus();
      },
      Escape: () => select(-1, "graph"),
    }[e.key];
    if (f) {
      e.preventDefault();
      f();
    }
  });
  document.addEventListener("keydown", (e) => {
    if (e.target.matches("input,select,textarea") || e.ctrlKey || e.metaKey || e.altKey || !S.letters) return;
    const step = (d) => {
      const p = S.sel < 0 ? (d > 0 ? 0 : N - 1) : Math.max(0, Math.min(N - 1, pos[S.sel] + d));
      select(order[p], "keys");
    };
    const f = {
      "/": () => {
        input.focus();
        input.select();
        input.scrollIntoView({ block: "center" });
      },
      n: () => step(1),
      p: () => step(-1),
      r: () => nextOff(1),
      "?": () => $("help").click(),
    }[e.key];
    if (f) {
      e.preventDefault();
      f();
    }
  });
  function showSel(from) {
    if (S.sel < 0) return draw();
    const n = g.nodes[g.nodeOf.get(S.sel)],
      x = n.x * k + ox,
      y = n.y * k + oy;
    if (g.folded && k < 0.42) draw();
    else if (k < 0.42) center(n, 0.9);
    else if (x < 90 || x > W - 90 || y < 50 || y > H - 60) center(n);
    else draw();
  }
  S.listeners.push((w) => {
    if (w === "filter") {
      nHits.textContent = filtering() ? plural(hits, "hit") : "";
      draw();
    } else if (w.startsWith("select")) {
      inspect(insp);
      showSel();
    }
  });
  inspect(insp);
  let shownBefore;
  addEventListener("beforeprint", () => {
    shownBefore = [k, ox, oy, g.folded];
    fitAll();
    now();
  });
  addEventListener("afterprint", () => {
    if (!shownBefore[3]) g.fold(Infinity);
    [k, ox, oy] = shownBefore;
    now();
  });
  return () => {
    if (!view.clientWidth) return;
    const first = !drawn;
    measureView();
    drawn = true;
    if (first) {
      const whole = Math.min((W - 30) / (g.hi - g.lo + 20), (H - 30) / g.H);
      if (whole > 0.6) fitAll();
      else {
        k = Math.max(0.5, Math.min(0.95, (W - 80) / Math.min(g.hi - g.lo + 40, 900)));
        const off =
          onDevice.length && onDevice.length < N
            ? order.find((i) => runner(ops[i]).place !== "device")
            : order.find((i) => refusedBy(ops[i]).length && onDevice.length === N);
        const n = g.nodes[off == null ? 0 : off];
        ox = W / 2 - n.x * k;
        oy = Math.min(40 + (NH * k) / 2, H * 0.5 - n.y * k);
        if (S.sel >= 0) {
          showSel();
        }
      }
    }
    now();
  };
}
