/* Why not. */

function whySection() {
  const { s } = section("why", devices.length ? "Why not on a device" : "Why not elsewhere", "Why not");
  const g = groups(),
    lost = g.filter((x) => x.r.sort !== "slower"),
    slower = g.filter((x) => x.r.sort === "slower");
  const nOff = N - onDevice.length;
  // Without a device, or where all fell back, nothing is left but the asked devices' names.
  const asked = new Set([...P.asked, ...devices.map((d) => d.name)]);
  const ofDevice = (x) => x.r.sort === "host" || asked.has(x.r.device);
  const lostDev = lost.filter(ofDevice);
  const lostOther = lost.filter((x) => !ofDevice(x));
  if (!lostDev.length)
    s.append(
      el(
        "p",
        { class: "lead" },
        P.asked.length ? "No device refused anything." : "No device was asked; --device names those to ask.",
      ),
    );
  else
    s.append(
      el(
        "p",
        { class: "lead" },
        el(
          "b",
          null,
          nOff
            ? `${plural(nOff, "operation")} ${nOff === 1 ? "does" : "do"} not run on a device`
            : "Every operation runs on a device, though not on each",
        ),
        nOff && totalMac ? `, ${share(totalMac - devMac, totalMac)} of the multiply-adds. ` : ". ",
        "One row is one reason, the costliest first. Steps and bytes are those that run off the devices because of it. Show marks a reason’s operations everywhere on this page.",
      ),
    );
  const table = (rows, head) => {
    const body = el(
      "tbody",
      null,
      rows.map((x) => {
        const kinds = new Map(),
          by = new Map();
        x.ops.forEach((o) => {
          kinds.set(o.type, (kinds.get(o.type) || 0) + 1);
          by.set(runner(o), (by.get(runner(o)) || 0) + 1);
        });
        const r = x.r;
        const act = el(
          "button",
          {
            class: "btn",
            "aria-pressed": "false",
            "data-reason": x.i,
            on: {
              click: () => {
                S.reason = S.reason === x.i ? -1 : x.i;
                refilter();
              },
            },
          },
          "Show",
        );
        const bars = (f) => {
          const t =
            rows.reduce(
              (m, y) =>
                Math.max(
                  m,
                  y.ops.reduce((a, o) => a + f(o), 0),
                ),
              0,
            ) || 1;
          return el(
            "div",
            { "aria-hidden": "true" },
            [...by.keys()].map((q) =>
              el("i", {
                class: "p-" + q.cls,
                style: `width:${(100 * x.ops.filter((o) => runner(o) === q).reduce((a, o) => a + f(o), 0)) / t}%`,
              }),
            ),
          );
        };
        return el(
          "tr",
          { "data-r": x.i },
          el(
            "td",
            { class: "wide" },
            x.devs.map((n) => {
              const q = R.find((z) => z.name === n);
              return el(
                "div",
                { class: "dev" },
                q ? badge(q) : null,
                el("span", { class: "name", style: `min-width:${Math.min(24, n.length)}ch` }, clean(n)),
              );
            }),
          ),
          el("td", { class: "wide reason" }, ruleNode(r, x.found)),
          el(
            "td",
            { class: "wide" },
            [...kinds]
              .sort((a, b) => b[1] - a[1])
              .slice(0, 5)
              .map(([k, n]) => `${k}${n > 1 ? NB + "×" + NB + n : ""}`)
              .join(", ") + (kinds.size > 5 ? ` and ${plural(kinds.size - 5, "other type")}` : ""),
          ),
          el(
            "td",
            { "data-l": "How many" },
            el(
              "div",
              { class: "bar" },
              el("span", null, int(x.ops.length)),
              bars(() => 1),
            ),
          ),
          el(
            "td",
            { "data-l": "Multiply-adds" },
            el(
              "div",
              { class: "bar" },
              el("span", null, share(x.mac, totalMac)),
              bars((o) => o.mac || 0),
            ),
          ),
          el("td", { "data-l": "Steps", class: "num" }, cost(x).parts ? int(cost(x).parts) : "–"),
          el("td", { "data-l": "Bytes moved", class: "num" }, cost(x).moved ? bytes(cost(x).moved) : "–"),
          el(
            "td",
            { "data-l": "Runs instead on" },
            el(
              "span",
              { class: "wherenow" },
              [...by].map(([q, n]) => el("span", null, badge(q), int(n))),
            ),
          ),
          el("td", { class: "num noprint" }, act),
        );
      }),
    );
    return listing(
      head,
      ["Device", "Reason", "Operations", "How many", "Multiply-adds", "Steps", "Bytes moved", "Runs on", ""],
      body,
      /Part|Bytes/,
    );
  };
  const costly = lostDev.filter((x) => x.off.length),
    elsewhere = lostDev.filter((x) => !x.off.length);
  if (costly.length) s.append(table(costly, "Reasons of refusals"));
  const fold = (t, rows, open) => rows.length && s.append(el("details", { open }, el("summary", null, t), table(rows, t)));
  fold(`Refused by NNAPI’s CPU as well: ${plural(new Set(lostOther.flatMap((x) => x.ops)).size, "operation")}`, lostOther);
  fold(`Refused by one device, accepted by another: ${plural(elsewhere.length, "reason")}`, elsewhere);
  fold(`Also supported by (slower): ${slower.length}`, slower, !costly.length && nOff > 0);
  S.listeners.push((w) => {
    if (w !== "filter") return;
    s.querySelectorAll("[data-reason]").forEach((b) => {
      const on = +b.dataset.reason === S.reason;
      b.setAttribute("aria-pressed", on);
      b.textContent = on ? "Shown" : "Show";
      b.closest("tr").classList.toggle("on", on);
    });
  });
}
