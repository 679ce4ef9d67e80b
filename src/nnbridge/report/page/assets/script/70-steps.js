/* Steps. */

function steps() {
  const { s } = section("parts", "Steps", "Steps");
  const T = D.times,
    K = P.steps;
  const total = T ? T.steps.reduce((a, t) => a + t[0], 0) : 0;
  s.append(
    el(
      "p",
      { class: "lead" },
      "In the order in which they run; those of devices are the partitions. ",
      T
        ? [
            el("b", null, `${ms(total)} ms in all`),
            `, median of ${plural(T.runs, "run")} on this workstation (${T.machine}), where devices are emulated. `,
            el("b", null, "A phone’s times differ; compare rows, not sums."),
          ]
        : "Times were not measured.",
    ),
  );
  const most = T ? Math.max(...T.steps.map((t) => t[0])) : 1,
    mb = Math.max(1, ...K.map((k) => k.bi || 0));
  const mk = (k, i) => {
    const r = R[k.r],
      mac = k.ops.reduce((a, o) => a + (ops[o].mac || 0), 0),
      kinds = new Map();
    k.ops.forEach((o) => kinds.set(ops[o].type, (kinds.get(ops[o].type) || 0) + 1));
    const t = T && T.steps[i];
    return el(
      "tr",
      null,
      el(
        "td",
        { "data-l": "Step" },
        el("span", { style: "white-space:nowrap" }, `${i} `, badge(r), " ", r.place === "device" ? name(r.name) : where(r)),
      ),
      el(
        "td",
        { "data-l": "Operations" },
        k.ops.length > 1 ? el("b", null, int(k.ops.length) + ": ") : "",
        [...kinds]
          .sort((a, b) => b[1] - a[1])
          .slice(0, 3)
          .map(([a, n]) => a + (n > 1 ? NB + "×" + NB + n : ""))
          .join(", ") + (kinds.size > 3 ? `, ${kinds.size - 3} more types` : ""),
        k.ops.length === 1
          ? [
              " ",
              el(
                "button",
                {
                  class: "link dim noprint",
                  on: {
                    click: () => {
                      select(k.ops[0], "link");
                      $("graph").scrollIntoView();
                    },
                  },
                },
                "operation " + k.ops[0],
              ),
            ]
          : "",
      ),
      el("td", { "data-l": "Multiply-adds", class: "num" }, share(mac, totalMac)),
      el(
        "td",
        { "data-l": "Reads" },
        el(
          "div",
          { class: "bar" },
          el("span", null, k.bi ? bytes(k.bi) : "–"),
          el("div", null, el("b", { style: `width:${(100 * k.bi) / mb}%` })),
        ),
      ),
      el("td", { "data-l": "Passes on", class: "num" }, k.bo ? bytes(k.bo) : "–"),
      T
        ? el(
            "td",
            { "data-l": "Time" },
            el(
              "div",
              { class: "bar", title: `${ms(t[1])} to ${ms(t[2])} ms` },
              el("span", null, ms(t[0]) + NB + "ms"),
              el("div", null, el("i", { class: "p-" + r.cls, style: `width:${(100 * t[0]) / most}%` })),
            ),
          )
        : null,
    );
  };
  const CAP = 14,
    body = el("tbody", null, K.slice(0, CAP).map(mk));
  s.append(
    listing(
      "Steps in run order",
      ["Step", "Operations", "Mult.-adds", "Reads", "Passes on", ...(T ? ["Time"] : [])],
      body,
      /Mult|Passes/,
    ),
  );
  if (K.length > CAP) {
    const b = el(
      "button",
      {
        class: "btn",
        style: "margin-top:10px",
        on: {
          click: () => {
            body.append(...K.slice(CAP).map((k, i) => mk(k, i + CAP)));
            b.remove();
          },
        },
      },
      `Show all ${K.length} steps`,
    );
    s.append(b);
    addEventListener("beforeprint", () => b.isConnected && K.length <= 80 && b.click());
  }
  if (T && shown.length > 1)
    s.append(
      el(
        "p",
        { class: "note" },
        "Time by place: " +
          shown
            .filter((r) => K.some((k) => R[k.r] === r))
            .map((r) => {
              const v = K.reduce((a, k, i) => a + (R[k.r] === r ? T.steps[i][0] : 0), 0);
              return `${r.key} ${r.place === "device" ? r.name : where(r)} ${ms(v)} ms (${share(v, total)})`;
            })
            .join("; ") +
          ".",
      ),
    );
}
