/* The table of operations. */

function table() {
  const { s, head } = section("ops", "Operations", "Operations");
  const types = [...new Set(ops.map((o) => o.type))].sort();
  let typeOnly = "",
    key = "pos",
    dir = 1,
    rows = [];
  const q = el("input", { type: "search", placeholder: "Filter by text", "aria-label": "Filter operations by text" });
  q.addEventListener("input", () => {
    S.text = q.value.trim().toLowerCase();
    refilter();
  });
  const ty = el(
    "select",
    {
      "aria-label": "Filter by type",
      on: {
        change: (e) => {
          typeOnly = e.target.value;
          build();
        },
      },
    },
    el("option", { value: "" }, "All types"),
    types.map((t) => el("option", { value: t }, `${t} (${ops.filter((o) => o.type === t).length})`)),
  );
  const chips =
    shown.length > 1
      ? shown.map((r) =>
          el(
            "button",
            {
              class: "chip",
              "aria-pressed": "true",
              on: {
                click: (e) => {
                  const on = S.hidden.has(r);
                  on ? S.hidden.delete(r) : S.hidden.add(r);
                  e.currentTarget.setAttribute("aria-pressed", on);
                  refilter();
                },
              },
            },
            badge(r),
            `${r.place === "device" ? r.name : where(r)} ${int(r.n)}`,
          ),
        )
      : [];
  const csv = el(
    "button",
    {
      class: "btn",
      on: {
        click: () => {
          const c = (v) => {
            let t = String(v == null ? "" : v);
            if (/^[=+\-@\t\r]/.test(t) && isNaN(+t)) t = "'" + t;
            return '"' + t.replace(/"/g, '""') + '"';
          };
          const head2 = [
            "run_order",
            "index",
            "type",
            "name",
            "device",
            "place",
            "partition",
            "output_shape",
            "multiply_adds",
            "parameter_bytes",
            "output_bytes",
            "own_max",
            "drift_max",
            "reasons",
          ];
          const text = [head2.join(",")]
            .concat(
              rows.map((o) =>
                [
                  pos[o.id],
                  o.id,
                  o.type,
                  clean(o.n),
                  runner(o).name,
                  runner(o).place,
                  o.k,
                  o.o.map((x) => shape(D.operands[x])).join(" "),
                  o.mac,
                  o.pb,
                  o.ob,
                  o.err && o.err.own ? o.err.own.max : "",
                  o.err && o.err.drift ? o.err.drift.max : "",
                  refusedBy(o)
                    .map((r) => r.device + ": " + ruleText(r))
                    .join("; "),
                ]
                  .map(c)
                  .join(","),
              ),
            )
            .join("\n");
          const a = el("a", {
            href: URL.createObjectURL(new Blob([text], { type: "text/csv" })),
            download: clean(D.model.name) + ".csv",
          });
          document.body.append(a);
          a.click();
          a.remove();
          setTimeout(() => URL.revokeObjectURL(a.href), 1e4);
        },
      },
    },
    "Save as CSV",
  );
  head.append(el("div", { class: "tools" }, q, ty, csv));
  const count = el("span", { class: "dim", "aria-live": "polite", style: "font-size:14px" }),
    rchip = el("span", null);
  s.append(el("div", { class: "chips", style: "margin-top:8px;align-items:center" }, chips, rchip, count));
  const small = matchMedia("(max-width:620px)");
  const layersOn = !!D.layers,
    reordered = order.some((o, i) => o !== i);
  const eText = (d) => (d ? (d.max === 0 ? "0" : d.steps != null ? String(d.steps) : sig(d.max, 2)) : "");
  const cols = [
    ["pos", reordered ? "Order" : "#", "64px", (o) => pos[o.id], (o) => String(pos[o.id]), "r"],
    ...(reordered ? [["id", "#", "52px", (o) => o.id, (o) => String(o.id), "r"]] : []),
    ["r", "On", "46px", (o) => o.r, (o) => badge(runner(o))],
    ["type", "Type", "184px", (o) => o.type, (o) => o.type],
    [
      "label",
      "Name",
      "minmax(190px,1.5fr)",
      (o) => o.label,
      (o) => el("span", { class: "name", title: cut(o.label, 400) }, cutMid(brief(o.label), 64)),
    ],
    [
      "shape",
      "Output",
      "132px",
      (o) => o.ob,
      (o) => (o.o.length ? shape(D.operands[o.o[0]]) + (o.o.length > 1 ? ` +${o.o.length - 1}` : "") : ""),
    ],
    ["mac", "Mult.-adds", "96px", (o) => o.mac || 0, (o) => work(o.mac), "r"],
    ["pb", "Params", "88px", (o) => o.pb, (o) => (o.pb ? bytes(o.pb) : "0"), "r"],
    ["k", "Part.", "62px", (o) => o.k, (o) => String(o.k), "r"],
    ...(layersOn
      ? [
          ["own", "Own err.", "82px", (o) => (o.err && o.err.own ? o.err.own.rel : -1), (o) => eText(o.err && o.err.own), "r"],
          [
            "drift",
            "Drift",
            "72px",
            (o) => (o.err && o.err.drift ? o.err.drift.rel : -1),
            (o) => eText(o.err && o.err.drift),
            "r",
          ],
        ]
      : []),
    [
      "why",
      "Refused because",
      "minmax(190px,1.3fr)",
      (o) =>
        refusedBy(o)
          .map((r) => r.device + ruleText(r))
          .join(),
      (o) => {
        const w = refusedBy(o);
        return el(
          "span",
          { title: w.map((r) => clean(r.device) + ": " + ruleText(r)).join("\n") },
          w.map((r) => (devices.length > 1 ? clean(r.device) + ": " : "") + ruleText(r)).join("; "),
        );
      },
    ],
  ];
  const vt = el("div", {
    class: "vt",
    role: "grid",
    "aria-label": "Operations",
    "aria-rowcount": N + 1,
    tabindex: "-1",
  });
  vt.style.setProperty("--cols", cols.map((c) => c[2]).join(" "));
  vt.style.setProperty("--minw", (layersOn ? 1180 : 1030) + "px");
  const hd = el(
    "div",
    { class: "hd", role: "row" },
    cols.map((c) =>
      el(
        "div",
        {
          role: "columnheader",
          "data-k": c[0],
          class: c[5] || null,
          "aria-sort": c[0] === key ? "ascending" : "none",
        },
        el(
          "button",
          {
            on: {
              click: () => {
                if (key === c[0]) dir = -dir;
                else {
                  key = c[0];
                  dir = ["mac", "pb", "own", "drift", "shape", "why"].includes(key) ? -1 : 1;
                }
                build();
              },
            },
          },
          c[1],
        ),
      ),
    ),
  );
  const pad = el("div", { class: "pad" }),
    body = el("div", { role: "rowgroup", style: "position:absolute;left:0;right:0;min-width:var(--minw)" });
  vt.append(hd, pad, body);
  s.append(vt);
  const RH = 32;
  let from = -1,
    to = -1;
  const row = (o, i) =>
    el(
      "div",
      {
        class: "row",
        role: "row",
        "aria-rowindex": i + 2,
        "aria-selected": String(o.id === S.sel),
        tabindex: o.id === S.sel || (S.sel < 0 && i === 0) ? "0" : "-1",
        "data-i": o.id,
      },
      cols.map((c) => el("div", { role: "gridcell", class: c[5] || null }, c[4](o))),
    );
  function paint(force) {
    const top = vt.scrollTop,
      a = Math.max(0, Math.floor(top / RH) - 8),
      b = Math.min(rows.length, a + Math.ceil(vt.clientHeight / RH) + 18);
    if (!force && a === from && b === to) return;
    from = a;
    to = b;
    body.style.top = hd.offsetHeight + a * RH + "px";
    body.replaceChildren(...rows.slice(a, b).map((o, i) => row(o, a + i)));
  }
  function build() {
    rows = ops.filter((o) => hit[o.id] && (!typeOnly || o.type === typeOnly));
    const c = cols.find((x) => x[0] === key);
    rows.sort((a, b) => {
      const x = c[3](a),
        y = c[3](b);
      return (x < y ? -1 : x > y ? 1 : 0) * dir || pos[a.id] - pos[b.id];
    });
    hd.querySelectorAll("[data-k]").forEach((h) =>
      h.setAttribute("aria-sort", h.dataset.k === key ? (dir > 0 ? "ascending" : "descending") : "none"),
    );
    pad.style.height = rows.length * RH + "px";
    count.textContent =
      rows.length === N ? plural(N, "operation") + " in all" : `${int(rows.length)} of ${plural(N, "operation")}`;
    const rs = S.reason >= 0 ? P.reasons[S.reason] : null;
    rchip.replaceChildren(
      ...(rs
        ? [
            el(
              "button",
              {
                class: "chip x",
                on: {
                  click: () => {
                    S.reason = -1;
                    refilter();
                  },
                },
                "aria-label": "Stop filtering by reason",
              },
              `${cut(rs.device + ": " + ruleText(rs), 80)} ✕`,
            ),
          ]
        : []),
    );
    vt.scrollTop = 0;
    paint(true);
  }
  vt.addEventListener("scroll", () => paint());
  vt.addEventListener("click", (e) => {
    const r = e.target.closest(".row");
    if (r) select(+r.dataset.i, "table");
  });
  vt.addEventListener("keydown", (e) => {
    const d = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -1e9, End: 1e9 }[e.key],
      r = e.target.closest(".row");
    if (e.key === "Enter" && r) {
      e.preventDefault();
      select(+r.dataset.i, "table");
      $("graph").scrollIntoView();
    }
    if (!d || !r) return;
    e.preventDefault();
    const i = rows.findIndex((o) => o.id === +r.dataset.i),
      j = Math.max(0, Math.min(rows.length - 1, i + d));
    if (!rows[j]) return;
    select(rows[j].id, "table");
    reveal(rows[j].id);
    body.querySelector(`[data-i="${rows[j].id}"]`)?.focus({ preventScroll: true });
  });
  function reveal(id) {
    const i = rows.findIndex((o) => o.id === id);
    if (i < 0) return;
    const y = i * RH,
      h = vt.clientHeight - hd.offsetHeight;
    if (y < vt.scrollTop) vt.scrollTop = y;
    else if (y + RH > vt.scrollTop + h) vt.scrollTop = y + RH - h;
    paint(true);
  }
  S.listeners.push((w) => {
    if (w === "filter") {
      if (q.value.trim().toLowerCase() !== S.text) q.value = S.text;
      build();
    } else if (w.startsWith("select")) {
      paint(true);
      if (!w.endsWith("table")) reveal(S.sel);
    }
  });
  const wide = cols.map((c) => c[2]).join(" "),
    narrow = cols
      .map((c) => (c[2].startsWith("minmax") ? "minmax(0,1.5fr)" : `minmax(0,${(parseInt(c[2]) / 130).toFixed(2)}fr)`))
      .join(" ");
  addEventListener("beforeprint", () => {
    vt.style.setProperty("--cols", narrow);
    vt.style.setProperty("--minw", "0px");
    const keep = rows.slice(0, 300);
    pad.style.height = "0";
    body.style.position = "static";
    body.replaceChildren(
      ...keep.map((o, i) => row(o, i)),
      ...(rows.length > 300 ? [el("p", null, `… and ${rows.length - 300} more rows`)] : []),
    );
  });
  addEventListener("afterprint", () => {
    vt.style.setProperty("--cols", wide);
    vt.style.setProperty("--minw", (layersOn ? 1180 : 1030) + "px");
    body.style.position = "absolute";
    build();
  });
  return build;
}
