/* Time and memory that are estimated or declared. */

function estimates() {
  const { s } = section("estimates", "Estimates", "Estimates");
  const declared = devices.filter((r) => !D.estimates.some((e) => e.device === r.name));
  for (const e of D.estimates) s.append(...estimated(e));
  if (declared.length) s.append(...declaredOnly(declared));
  if (!devices.length) s.append(el("p", { class: "lead" }, "No estimate: no device runs anything."));
}

const binary = (x) => scaled(x, ["B", "KiB", "MiB", "GiB"], 1024);
const limits = (us, factor) => (factor ? `${time(us / factor)} to ${time(us * factor)}` : "not known");

function estimated(e) {
  const partitions = e.partitions.map((p, i) =>
    el(
      "tr",
      null,
      el("td", { "data-l": "Partition" }, `${i}: ${plural(p.operators, "operator")}`),
      el("td", { "data-l": "Time", class: "num" }, time(p.us)),
      el("td", { "data-l": "For 90 % of networks", class: "num" }, limits(p.us, e.factor)),
      el("td", { "data-l": "Peak memory", class: "num" }, binary(p.peak_bytes)),
      el("td", { "data-l": "Weights", class: "num" }, binary(p.weight_bytes)),
    ),
  );
  const choices = e.choices.map((c) =>
    el(
      "tr",
      null,
      el("td", { "data-l": "Choice" }, clean(c.choice)),
      el("td", { "data-l": "Time of the whole file", class: "num" }, time(c.us)),
      el("td", { "data-l": "Time gained", class: "num" }, time(c.gain_us)),
      el("td", { "data-l": "Memory on the device", class: "num" }, binary(c.bytes)),
      el("td", { "data-l": "Partitions", class: "num" }, int(c.partitions)),
    ),
  );
  const most = 20;
  return [
    el(
      "p",
      { class: "lead" },
      el("b", null, `Estimated for ${clean(e.device)} beside ${clean(e.cpu.name)}; nothing here is measured.`),
      " The same as plan --estimate.",
    ),
    listing(
      `Partitions on ${clean(e.device)}, estimated`,
      ["Partition", "Time", "For 90 % of networks", "Peak memory", "Weights"],
      el("tbody", null, partitions.slice(0, most)),
      /Time|For|memory|Weights/,
    ),
    partitions.length > most ? el("p", { class: "note" }, `and ${plural(partitions.length - most, "more partition")}`) : "",
    listing(
      `What is delegated to ${clean(e.device)}, estimated`,
      ["Choice", "Time of the whole file", "Time gained", "Memory on the device", "Partitions"],
      el("tbody", null, choices),
      /Time|Memory|Part/,
      "margin-top:14px",
    ),
    el(
      "ul",
      { class: "causes" },
      e.sentences.map((t) => el("li", null, soft(t))),
    ),
  ];
}

function declaredOnly(listed) {
  const figures = (r) =>
    Object.entries(r.declared)
      .map(([type, figure]) => `${type.replace("TENSOR_", "")} ${sig(figure)}`)
      .join(", ");
  return [
    el("p", { class: "lead" }, `No estimate for ${list(listed.map((r) => clean(r.name)))}: no cost model is known.`),
    el(
      "ul",
      { class: "causes" },
      listed.map((r) =>
        el("li", null, soft(`${r.name} declares, which is not measured, an execution time relative to NNAPI’s CPU of: ${figures(r)}.`)),
      ),
    ),
  ];
}
