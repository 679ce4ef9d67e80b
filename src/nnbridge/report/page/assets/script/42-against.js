/* Another plan of the same model, beside this one: what moves, and where to. */

const A = D.against;
if (A) {
  classed(A.runners);
  A.runners.push({ name: "NNAPI runtime", place: "NNAPI runtime", key: "R", cls: "rt", n: 0, mac: 0 });
  for (const r of A.reasons) r.sort = r.host ? "host" : SORTS[r.kind] || "refused";
}
const otherRunner = (i) => A.runners.at(A.r[i]);
const refuses = (r) => r.sort !== "slower";
/** Why an operation runs on none of a plan's devices: refusals, or what is faster where a device would accept it. */
const whyOff = (why, reasons) => {
  const all = why.map((w) => reasons[w]);
  return all.some(refuses) ? all.filter(refuses) : all;
};
function againstText(i) {
  const why = A.why[i].map((w) => A.reasons[w]).filter(refuses).map((r) => `${saidBy(r)}: ${ruleText(r)}`);
  return `on ${where(otherRunner(i))}` + (why.length ? ` (${why.join("; ")})` : "");
}
const rank = (r) => (r.place === "device" ? 1 : 0);

/** Operations in both plans. Of a body that only one plan cuts, the other runs all on its IF's or WHILE's device. */
function pairs() {
  const own = order.map((i) => {
    const o = ops[i];
    const [whyA, whyB] = [whyOff(o.why, P.reasons), whyOff(A.why[i], A.reasons)];
    return { id: i, type: o.type, mac: o.mac, a: runner(o), b: otherRunner(i), whyA, whyB };
  });
  const inner = A.inner.map((o) => {
    const outer = ops[o.of];
    const b = A.runners.at(o.r);
    const [whyA, whyB] = [whyOff(outer.why, P.reasons), whyOff(o.why, A.reasons)];
    return { id: o.of, inner: true, type: plainType(clean(o.t)), mac: o.mac, a: runner(outer), b, whyA, whyB };
  });
  // A body follows its IF or WHILE.
  const bodies = new Map(inner.map((p) => [p.id, []]));
  for (const p of inner) bodies.get(p.id).push(p);
  return own.flatMap((p) => [p, ...(bodies.get(p.id) || [])]);
}

function againstSection() {
  if (!A) return null;
  const both = pairs();
  const total = both.length;
  const macs = sum(both, (p) => p.mac);
  for (const { b, mac } of both) {
    b.n++;
    b.mac += mac || 0;
  }
  const places = A.runners.filter((r) => r.n);
  const mine = both.filter((p) => rank(p.a));
  const theirs = both.filter((p) => rank(p.b));
  const { s } = section("against", "Compared with another device", "Other device");
  const head = headline(A, A.runners);
  const change = (t, a, b, f) => `${t} ${f(a)} → ${f(b)}`;
  s.append(
    el("p", { class: "finding" }, el("b", null, head)),
    el(
      "p",
      { class: "lead" },
      [
        change("Operations on devices", mine.length, theirs.length, int),
        macs &&
          change(
            "multiply-adds",
            sum(mine, (p) => p.mac),
            sum(theirs, (p) => p.mac),
            (v) => share(v, macs),
          ),
        change("partitions", partitionsOf(P, R), partitionsOf(A, A.runners), int),
        change("steps", P.steps.length, A.steps.length, int),
        change("bytes that cross borders", P.crossing, A.crossing, bytes),
      ]
        .filter(Boolean)
        .join("; ") + ".",
    ),
  );
  const cv = el("canvas", {
    role: "img",
    "aria-label": `Two bands of ${total} operations, this plan above the other one; the table below has what differs.`,
  });
  const box = el("div", { class: "strip" }, cv);
  s.append(
    el(
      "div",
      { class: "legend" },
      places.map((r) => el("span", null, "second bar: ", badge(r), where(r), el("span", { class: "n" }, int(r.n)))),
    ),
    box,
  );
  s.append(movedTable(both, macs));
  return () => drawBands(cv, box, both);
}

/** Operations whose kind of place differs, those that only one plan runs on a device first. */
function movedTable(both, macs) {
  const moved = new Map();
  for (const p of both) {
    const { a, b, type, inner } = p;
    if (a.name === b.name && a.place === b.place) continue;
    const why = rank(a) && !rank(b) ? p.whyB : !rank(a) && rank(b) ? p.whyA : [];
    const key = [a.name, b.name, type, !!inner, why.map((r) => r.device + ruleKey(r))].join("|");
    if (!moved.has(key)) moved.set(key, { a, b, type, inner, why, ops: [] });
    moved.get(key).ops.push(p);
  }
  if (!moved.size) return el("p", { class: "note" }, "Every operation runs on the same device in both plans.");
  const weight = (m) => [rank(m.a) !== rank(m.b) ? 1 : 0, sum(m.ops, (o) => o.mac), m.ops.length];
  const rows = [...moved.values()].sort((x, y) => {
    const [p, q] = [weight(x), weight(y)];
    const k = p.findIndex((v, i) => v !== q[i]);
    return k < 0 ? 0 : q[k] - p[k];
  });
  const nowrap = { style: "white-space:nowrap" };
  const cell = (r) => el("span", nowrap, badge(r), " ", where(r));
  const at = (m) => [...new Set(m.ops.map((p) => p.id))];
  const row = (m) =>
    el(
      "tr",
      null,
      el("td", { "data-l": "Here" }, cell(m.a)),
      el("td", { "data-l": "There" }, cell(m.b)),
      el(
        "td",
        { class: "wide" },
        `${m.type}${m.ops.length > 1 ? NB + "×" + NB + int(m.ops.length) : ""}, ${m.inner ? "in bodies of" : "at"} `,
        at(m).slice(0, 3).map((id, i) => [i ? ", " : "", opLink(id)]),
        at(m).length > 3 ? " …" : "",
      ),
      el(
        "td",
        { "data-l": "Multiply-adds", class: "num" },
        share(
          sum(m.ops, (o) => o.mac),
          macs,
        ),
      ),
      el("td", { class: "wide" }, m.why.length ? m.why.map((r) => el("div", null, clean(r.device), ": ", ruleNode(r))) : ""),
    );
  const listed = (some, title) =>
    listing(
      title,
      ["Here", "There", "Operations", "Mult.-adds", "Why not on a device"],
      el(
        "tbody",
        null,
        some.slice(0, 40).map(row),
        some.length > 40 ? el("tr", null, el("td", { class: "dim wide" }, `… and ${some.length - 40} more groups`)) : null,
      ),
      /Mult/,
    );
  const gained = rows.filter((m) => rank(m.a) !== rank(m.b));
  const others = rows.filter((m) => rank(m.a) === rank(m.b));
  return el(
    "div",
    null,
    gained.length
      ? listed(gained, "Operations that only one plan runs on a device")
      : el("p", { class: "note" }, "No operation moves on or off the devices."),
    others.length
      ? el(
          "details",
          null,
          el(
            "summary",
            null,
            `On another device, or elsewhere off the devices: ${plural(
              sum(others, (m) => m.ops.length),
              "operation",
            )}`,
          ),
          listed(others, "Operations that run elsewhere of the same kind"),
        )
      : null,
  );
}

function drawBands(cv, box, both) {
  const W = box.clientWidth || 1000;
  const H = 62;
  cv.style.height = H + "px";
  const c = fit(cv, W, H);
  const x = (i) => (i / both.length) * W;
  [(p) => p.a, (p) => p.b].forEach((of, band) => {
    const runs = [];
    for (let i = 0; i < both.length;) {
      let j = i + 1;
      const r = of(both[i]);
      while (j < both.length && of(both[j]) === r) j++;
      runs.push([i, j, r]);
      i = j;
    }
    for (const [i, j, r] of runs.sort((a, b) => b[2].n - a[2].n)) {
      const w = Math.max(1.6, x(j) - x(i));
      const y = 4 + band * 30;
      c.fillStyle = w < 8 ? C[r.cls] : fill(c, r);
      c.fillRect(x(i), y, w, 24);
      if (w <= 13) continue;
      c.fillStyle = C[r.cls];
      c.fillRect(x(i) + w / 2 - 7, y + 3, 14, 18);
      c.fillStyle = onColour(r);
      c.font = "600 12px ui-monospace,Menlo,Consolas,monospace";
      c.textAlign = "center";
      c.textBaseline = "middle";
      c.fillText(r.key, x(i) + w / 2, y + 12.5);
    }
  });
}
