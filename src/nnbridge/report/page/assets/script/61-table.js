/* The table of operations: sorted, filtered; only the rows in sight are elements. On phones a row has three lines. */

const DRAWN_ABOVE = 8;
const PRINTED = 300;
const OF_THREE_LINES = 84;

/** Cells whose text is longer than they are: a type without its extension, a name's beginning and end; the title has all. */
function shorten(row) {
  for (const cell of row.querySelectorAll(".c-label,.c-type")) {
    const fits = () => cell.scrollWidth <= cell.clientWidth;
    if (fits()) continue;
    const inner = cell.firstElementChild || cell;
    const text = inner.textContent;
    cell.title = cell.title || inner.title || text;
    const short = cell.matches(".c-type") ? text.split(".").pop() : text;
    inner.textContent = short;
    let length = Math.ceil((short.length * cell.clientWidth) / cell.scrollWidth);
    while (!fits() && length > 6) inner.textContent = cutMid(short, length--);
  }
}

function table() {
  const { s, head } = section("ops", "Operations", "Operations");
  const order = { column: COLUMNS[0], dir: 1 };
  const small = matchMedia("(max-width:620px)");
  let rows = [];
  let typeOnly = "";
  const lineHeight = () => (small.matches ? OF_THREE_LINES : 32);

  const text = el("input", { type: "search", placeholder: "Filter by text", "aria-label": "Filter operations by text" });
  text.addEventListener("input", () => {
    S.text = text.value.trim().toLowerCase();
    refilter();
  });
  const choose = (label, values, change) =>
    el(
      "select",
      { "aria-label": label, on: { change: (e) => change(e.target.value) } },
      values.map(([v, t]) => el("option", { value: v }, t)),
    );
  const types = count(ops, (o) => o.type).sort((a, b) => (a[0] < b[0] ? -1 : 1));
  const byType = choose("Filter by type", [["", "All types"], ...types.map(([t, n]) => [t, `${t} (${n})`])], (value) => {
    typeOnly = value;
    build();
  });
  const sorting = choose(
    "Sort by",
    COLUMNS.map((c) => [c.key, "Sort: " + c.title]),
    (key) => sortBy(COLUMNS.find((c) => c.key === key)),
  );
  sorting.classList.add("phone");
  head.append(
    el(
      "div",
      { class: "tools" },
      text,
      byType,
      sorting,
      el("button", { class: "btn", on: { click: () => saveCsv(rows) } }, "Save as CSV"),
    ),
  );
  const total = el("span", { class: "dim", "aria-live": "polite", style: "font-size:14px" });
  const reasonChip = el("span", null);
  s.append(el("div", { class: "chips", style: "margin-top:8px;align-items:center" }, placeChips(), reasonChip, total));

  const grid = el("div", { class: "vt", role: "grid", "aria-label": "Operations", "aria-readonly": "true", "aria-rowcount": N + 1, tabindex: "-1" });
  const heads = el(
    "div",
    { class: "hd", role: "row" },
    COLUMNS.map((c) => headCell(c, sortBy)),
  );
  const pad = el("div", { class: "pad" });
  const body = el("div", { role: "rowgroup", class: "body" });
  const widths = (list, least) => {
    grid.style.setProperty("--cols", list.join(" "));
    grid.style.setProperty("--minw", least + "px");
  };
  const onScreen = () =>
    widths(
      COLUMNS.map((c) => c.width),
      D.layers ? 1180 : 1030,
    );
  onScreen();
  grid.append(heads, pad, body);
  s.append(grid);

  function sortBy(column) {
    order.dir = order.column === column ? -order.dir : column.down ? -1 : 1;
    order.column = column;
    build();
  }
  let [from, to] = [-1, -1];
  function paint(force) {
    const height = lineHeight();
    const a = Math.max(0, Math.floor(grid.scrollTop / height) - DRAWN_ABOVE);
    const b = Math.min(rows.length, a + Math.ceil(grid.clientHeight / height) + 2 * DRAWN_ABOVE + 2);
    if (!force && a === from && b === to) return;
    [from, to] = [a, b];
    body.style.top = heads.offsetHeight + a * height + "px";
    body.replaceChildren(...rows.slice(a, b).map((o, i) => rowOf(o, a + i)));
    for (const row of body.children) shorten(row);
  }
  function build() {
    const { column, dir } = order;
    rows = ops.filter((o) => hit[o.id] && (!typeOnly || o.type === typeOnly));
    rows.sort((a, b) => {
      const [x, y] = [column.by(a), column.by(b)];
      return (x < y ? -1 : x > y ? 1 : 0) * dir || pos[a.id] - pos[b.id];
    });
    for (const h of heads.children)
      h.setAttribute("aria-sort", h.dataset.k === column.key ? (dir > 0 ? "ascending" : "descending") : "none");
    sorting.value = column.key;
    pad.style.height = rows.length * lineHeight() + "px";
    total.textContent =
      rows.length === N ? plural(N, "operation") + " in all" : `${int(rows.length)} of ${plural(N, "operation")}`;
    reasonChip.replaceChildren(...(S.reason >= 0 ? [stopChip(chosen())] : []));
    grid.scrollTop = 0;
    paint(true);
  }
  function reveal(id) {
    const i = rows.findIndex((o) => o.id === id);
    if (i < 0) return;
    const height = lineHeight();
    const y = i * height;
    const inside = grid.clientHeight - heads.offsetHeight;
    if (y < grid.scrollTop) grid.scrollTop = y;
    else if (y + height > grid.scrollTop + inside) grid.scrollTop = y + height - inside;
    paint(true);
  }

  grid.addEventListener("scroll", () => paint());
  grid.addEventListener("click", (e) => {
    const r = e.target.closest(".row");
    if (r) select(+r.dataset.i, "table");
  });
  grid.addEventListener("keydown", (e) => {
    const r = e.target.closest(".row");
    if (!r) return;
    if (e.key === "Enter") {
      e.preventDefault();
      select(+r.dataset.i, "table");
      $("graph").scrollIntoView();
    }
    const d = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -1e9, End: 1e9 }[e.key];
    if (!d) return;
    e.preventDefault();
    const next = rows[Math.max(0, Math.min(rows.length - 1, rows.findIndex((o) => o.id === +r.dataset.i) + d))];
    if (!next) return;
    select(next.id, "table");
    reveal(next.id);
    body.querySelector(`[data-i="${next.id}"]`)?.focus({ preventScroll: true });
  });
  S.listeners.push((what) => {
    if (what === "filter") {
      if (text.value.trim().toLowerCase() !== S.text) text.value = S.text;
      build();
    } else if (what.startsWith("select")) {
      paint(true);
      if (!what.endsWith("table")) reveal(S.sel);
    }
  });
  small.addEventListener("change", build);
  addEventListener("beforeprint", () => {
    widths(
      COLUMNS.map((c) =>
        c.width.startsWith("minmax") ? "minmax(0,1.5fr)" : `minmax(0,${(parseInt(c.width) / 130).toFixed(2)}fr)`,
      ),
      0,
    );
    pad.style.height = "0";
    body.style.position = "static";
    const more = rows.length > PRINTED ? [el("p", null, `… and ${int(rows.length - PRINTED)} more rows`)] : [];
    body.replaceChildren(...rows.slice(0, PRINTED).map(rowOf), ...more);
  });
  addEventListener("afterprint", () => {
    onScreen();
    body.style.position = "";
    build();
  });
  return build;
}

function headCell(c, sortBy) {
  const props = { role: "columnheader", "data-k": c.key, class: c.right ? "r" : null, "aria-sort": "none" };
  return el("div", props, el("button", { on: { click: () => sortBy(c) } }, c.title));
}

function rowOf(o, i) {
  const props = {
    class: "row",
    role: "row",
    "aria-rowindex": i + 2,
    "aria-selected": String(o.id === S.sel),
    tabindex: o.id === S.sel || (S.sel < 0 && i === 0) ? "0" : "-1",
    "data-i": o.id,
  };
  return el(
    "div",
    props,
    COLUMNS.map((c) => el("div", { role: "gridcell", class: `c-${c.key}${c.right ? " r" : ""}`, "data-l": c.title }, c.cell(o))),
  );
}

/** One chip for each place, pressed while its operations are listed. */
function placeChips() {
  if (shown.length < 2) return [];
  const toggle = (r) => (e) => {
    const hidden = S.hidden.delete(r);
    if (!hidden) S.hidden.add(r);
    e.currentTarget.setAttribute("aria-pressed", hidden);
    refilter();
  };
  return shown.map((r) =>
    el(
      "button",
      { class: "chip", "aria-pressed": "true", on: { click: toggle(r) } },
      badge(r),
      el("span", null, `${where(r)} ${int(r.n)}`),
    ),
  );
}

function stopChip(group) {
  const stop = () => {
    S.reason = -1;
    refilter();
  };
  return el(
    "button",
    { class: "chip x", on: { click: stop } },
    el("span", { class: "vh" }, "Stop filtering by reason: "),
    `${cut(group.r.device + ": " + ruleText(group.r, Math.max(0, group.found.length - 1)), 80)} ✕`,
  );
}
