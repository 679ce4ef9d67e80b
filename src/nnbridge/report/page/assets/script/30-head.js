/* Head. */

/** What decides in place of elements. */
function checkTile(tile, c) {
  const check = c.checks[0];
  const tag = verdictTag(c.within);
  if (check.form === "boxes") {
    const worst = check.worst_iou == null ? "" : ` worst IoU ${(Math.floor(check.worst_iou * 1000) / 1000).toFixed(3)}`;
    return tile("Boxes found", int(check.found), "of " + int(check.reference), [tag, worst, check.extra ? `; ${int(check.extra)} more here` : ""]);
  }
  return tile("Same top class", int(check.agreed), "of " + int(check.samples), [tag, ` ${share(check.required, 1)} required`]);
}

function hero() {
  const v = verdict(),
    m = D.model;
  const icon = { "≈": "an estimate", "✓": "within tolerance", "✕": "a problem", "–": "not measured" };
  main.append(
    el(
      "div",
      { class: "hero" },
      el(
        "div",
        { class: "eyebrow" },
        name(m.file),
        el(
          "span",
          null,
          [
            m.format,
            m.bytes ? bytes(m.bytes) : null,
            plural(N, "operation"),
            totalMac ? work(totalMac) + " multiply-adds" : null,
            bytes(m.parameter_bytes) + " parameters",
          ]
            .filter(Boolean)
            .join(" · "),
        ),
      ),
      el("h1", null, soft(v.head)),
      el(
        "ul",
        { class: "say" },
        v.lines.map(([c, t, i]) =>
          el(
            "li",
            null,
            el(
              "span",
              {
                class: "ic " + c,
                role: icon[i] ? "img" : null,
                "aria-label": icon[i],
                "aria-hidden": icon[i] ? null : "true",
              },
              i,
            ),
            el("span", null, soft(t)),
          ),
        ),
      ),
    ),
  );
  const tile = (t, big, small, sub, bar) =>
    el(
      "li",
      { class: "tile" },
      el("div", { class: "t" }, t),
      el("div", { class: "v" }, big, " ", el("small", null, small)),
      bar || null,
      el("div", { class: "sub" }, sub),
    );
  const c = D.compare,
    w = c && worstOutput();
  main.append(
    el(
      "ul",
      { class: "tiles", "aria-label": "Key figures" },
      tile(
        "Operations on devices",
        int(onDevice.length),
        "of " + int(N),
        shown.length > 1
          ? el(
              "span",
              { class: "wherenow" },
              shown.map((r) => el("span", null, badge(r), int(r.n))),
            )
          : where(shown[0]),
        stack((r) => r.n),
      ),
      tile(
        "Work on devices",
        totalMac ? share(devMac, totalMac) : "–",
        "",
        (totalMac ? `of ${work(totalMac)} multiply-adds` : "no operation with multiply-adds that are counted") +
          (openMac ? `; ${openMac} operations of open shape not counted` : ""),
        stack((r) => r.mac),
      ),
      tile(
        "Partitions",
        int(partitionsOf(P, R)),
        `of ${plural(P.steps.length, "step")}`,
        el(
          "span",
          { class: "wherenow" },
          R.map((r) => [r, P.steps.filter((s) => R[s.r] === r).length])
            .filter(([, n]) => n)
            .map(([r, n]) => el("span", null, badge(r), int(n))),
        ),
      ),
      tile(
        "Copied between steps",
        bytes(P.crossing),
        "",
        P.steps.length > 1 ? `each run, at ${plural(P.steps.length - 1, "border")}` : "one step, no border",
      ),
      tile(
        "Peak activation memory",
        bytes(P.live[peak]),
        "",
        soft(`while operation ${order[peak]} (${ops[order[peak]].short}) runs; weights not counted`),
      ),
      c && c.checks.length
        ? checkTile(tile, c)
        : c
        ? tile("Largest difference", w.mismatches ? diffText(w) : "0", "", [
            verdictTag(c.within),
            w.mismatches ? ` ${allowText(w)} allowed` : ` equal to ${c.reference}’s`,
          ])
        : tile("Largest difference", "–", "", [
            "not compared; add ",
            el("span", { class: "mono", style: "white-space:nowrap" }, "--reference"),
          ]),
    ),
  );
}
