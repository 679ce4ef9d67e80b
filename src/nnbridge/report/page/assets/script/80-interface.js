/* Inputs and outputs. */

function io() {
  const { s } = section("io", "Inputs and outputs", "Inputs & outputs");
  const COLUMNS = ["Name", "Type", "Shape", "Quantisation"];
  const tr = (x) => {
    const o = D.operands[x];
    return [
      el("td", { "data-l": "Name" }, name(o.n || "(no name)")),
      el("td", { "data-l": "Type" }, el("code", null, TY(o)), o.f ? el("span", { class: "dim" }, ` (${o.f} in the file)`) : ""),
      el("td", { "data-l": "Shape" }, shape(o)),
      el("td", { "data-l": "Quantisation" }, o.s ? `scale ${sig(o.s, 6)}, zero point ${o.z}` : "–"),
    ];
  };
  s.append(
    el("h3", { style: "margin-top:8px" }, plural(D.model.inputs.length, "input")),
    listing(
      "Inputs",
      COLUMNS,
      el(
        "tbody",
        null,
        D.model.inputs.map((x) => el("tr", null, tr(x))),
      ),
    ),
  );
  const c = D.compare;
  s.append(
    el(
      "h3",
      { style: "margin-top:18px" },
      plural(D.model.outputs.length, "output") +
        (c ? `, compared with ${c.reference} on ${plural(c.samples, "sample")}` : ", not compared"),
    ),
  );
  s.append(
    listing(
      "Outputs",
      [...COLUMNS, ...(c ? ["Largest difference", "Mean difference", "Unequal", "Allowed", "Verdict"] : [])],
      el(
        "tbody",
        null,
        D.model.outputs.map((x, i) => {
          const o = c && c.outputs[i];
          return el(
            "tr",
            null,
            tr(x),
            o
              ? [
                  el("td", { "data-l": "Largest difference" }, o.problem ? "–" : diffText(o)),
                  el("td", { "data-l": "Mean difference" }, sig(o.mean_abs_diff, 2)),
                  el("td", { "data-l": "Unequal" }, `${share(o.mismatches, o.elements)} of ${int(o.elements)}`),
                  el("td", { "data-l": "Allowed" }, allowText(o)),
                  el(
                    "td",
                    { "data-l": "Verdict" },
                    verdictTag(o.within),
                    o.pass_by ? el("div", { class: "dim" }, { boxes: "by matched boxes", classes: "by top class" }[o.pass_by]) : null,
                    o.problem ? el("div", { class: "dim" }, clean(o.problem)) : null,
                  ),
                ]
              : null,
          );
        }),
      ),
    ),
  );
  if (c) for (const check of c.checks) s.append(el("p", { class: "note" }, soft(check.sentence + "." + (check.missed ? ` The first that differs: ${check.missed}.` : ""))));
}
