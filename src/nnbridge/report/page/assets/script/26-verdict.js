/* The verdict: a sentence, and at most four lines below it. */

/** Partitions: steps of the plan that a device takes. Those of CPUs are steps only. */
const partitionsOf = (plan, runners) => plan.steps.filter((s) => runners[s.r].place === "device" && s.ops.length).length;

/** Counts are those of the plan's sentence, which is one of the lines below: the file's operators, where a file has some. */
function headline(plan, runners) {
  const c = plan.counts;
  const dev = runners.filter((r) => r.place === "device").map((r) => clean(r.name));
  const rest = Object.entries(c.elsewhere).map(([place, n]) => [place.replace("'", "’"), n]);
  const foreign = c.foreign ? [`${int(c.foreign)} without a kernel in TFLite`] : [];
  const parts = partitionsOf(plan, runners);
  const them = dev.length > 1 ? "the devices" : "the device";
  const all = plural(c.total, c.unit);
  if (c.refused) return (plan.judgement || plan.sentence) + ".";
  if (!dev.length && plan.asked.length)
    return `On ${list(plan.asked.map(clean))}: nothing runs there; ${plan.fallback ? "the whole model fell back to NNAPI’s CPU" : list([...rest.map(([place, n]) => `${int(n)} ${n === 1 ? "runs" : "run"} on ${place}`), ...foreign])}.`;
  if (!dev.length) return `On ${list(rest.map(([place]) => place)) || "NNAPI’s CPU"}: all ${all}.`;
  if (plan.fallback) return `On ${list(dev)}: nothing runs on ${them}; the whole model fell back to NNAPI’s CPU.`;
  if (c.device === 0) return `On ${list(dev)}: none of ${all} on ${them}; ${list([...rest.map(([place, n]) => `${int(n)} on ${place}`), ...foreign])}.`;
  if (c.device === c.total) return `On ${list(dev)}: all ${all} in ${plural(parts, "partition")} on ${them}.`;
  const others = list([...rest.map(([place, n]) => `${int(n)} on ${place}`), ...foreign]);
  return `On ${list(dev)}: ${int(c.device)} of ${all} in ${plural(parts, "partition")} on ${them}, ${others}.`;
}

function verdict() {
  const side = P.counts.refused && !P.judgement ? null : ["", `From the app’s side: ${P.sentence}.`, "•"];
  const lines = [workLine(), comparisonLine(), ...estimateLines(), obstacleLine(), ...evidenceLines(), side, unitLine()];
  return { head: headline(P, R), lines: lines.filter(Boolean) };
}

/** Where operators became more operations, or fewer, the figures of both do not compare. */
function unitLine() {
  const { unit, total } = P.counts;
  if (unit === "operation" || total === N) return null;
  return ["dim", `The file’s ${plural(total, unit)} are ${plural(N, "operation")} of NNAPI, which everything below counts.`, "•"];
}

function estimateLines() {
  return D.estimates.map((e) => {
    const [cpu, best] = [e.choices[0], e.choices.at(-1)];
    const within = e.factor ? `within a factor of ${sig(e.factor)} for 90${NB}% of networks` : "its error is not known";
    const what = e.pays
      ? `${time(best.us)} with the best cut on ${clean(e.device)}, ${time(cpu.us)} on the CPU only`
      : `${time(cpu.us)} on the CPU only, which ${clean(e.device)} does not better`;
    return ["dim", `Estimated, not measured: ${what} (${within}).`, "≈"];
  });
}

function workLine() {
  if (!totalMac || !onDevice.length) return null;
  const them = devices.length > 1 ? "the devices" : "the device";
  if (!devMac) return ["", `None of the multiply-adds run on ${them}.`, "•"];
  const busy = devices.filter((d) => d.mac);
  let each = "";
  if (devices.filter((d) => d.n).length > 1)
    each =
      busy.length === 1
        ? `, all of them on ${clean(busy[0].name)}`
        : ": " + list(busy.map((d) => `${share(d.mac, totalMac)} on ${clean(d.name)}`));
  return ["", `${share(devMac, totalMac)} of multiply-adds run on ${them}${each}.`, "•"];
}

/** Devices that ran something and whose arithmetic nothing emulates: a comparison with them neither passes nor fails. */
const unknownNumbers = () => ((D.compare && D.compare.evidence) || []).filter((e) => !e.emulated).map((e) => clean(e.device));
/** Devices that were offered the model, where none of them ran anything: all that was compared others computed. */
const idleDevices = () => ((D.compare && D.compare.idle) || []).map(clean);
/** Why a comparison says nothing of the devices: in a tag, and what it says instead, of what was computed; null where it does. */
function reservation() {
  const [unknown, idle] = [unknownNumbers(), idleDevices()];
  if (unknown.length)
    return {
      tag: "the device’s numbers unknown",
      line: `Numbers of ${list(unknown)} unknown (computed as NNAPI’s CPU); what was computed`,
      finding: `Numbers of ${list(unknown)} unknown; what NNAPI’s CPU computes in their place`,
    };
  if (!idle.length) return null;
  const others = list(shown.map(where));
  return {
    tag: "nothing on the device",
    line: `Nothing runs on ${list(idle)}; what ${others} computed`,
    finding: `Nothing runs on ${list(idle)}; what ${others} computed`,
  };
}
const verdictTag = (pass) =>
  reservation()
    ? el("span", { class: "tag" }, `? ${pass ? "within" : "outside"} tolerance, ${reservation().tag}`)
    : el("span", { class: "tag " + (pass ? "ok" : "no") }, pass ? "✓ pass" : "✕ fail");

function comparisonLine() {
  const c = D.compare;
  if (!c) return ["dim", "Not compared with a reference.", "–"];
  const on = plural(c.samples, "sample");
  const reserved = reservation();
  if (reserved) {
    const said = c.checks.length
      ? c.checks.map((check) => clean(check.sentence)).join("; ")
      : `${c.within ? "within" : "outside"} tolerance of ${c.reference}’s`;
    return ["dim", `${reserved.line}: ${said}, on ${on}.${c.next ? ` Next: ${c.next}` : ""}`, "?"];
  }
  if (c.checks.length) {
    const failing = c.outputs.filter((o) => !o.pass_by && !o.within).map((o) => clean(o.name));
    const rest = failing.length ? `; beyond tolerance: ${list(failing)}` : "";
    const said = c.checks.map((check) => clean(check.sentence)).join("; ");
    return [c.within ? "good" : "bad", `Compared with ${c.reference} on ${on}: ${said}${rest}.`, c.within ? "✓" : "✕"];
  }
  if (c.outputs.some((o) => o.problem)) return ["bad", `Some outputs could not be compared with ${c.reference}’s.`, "✕"];
  if (c.outputs.every((o) => !o.mismatches))
    return [
      "good",
      c.outputs.every((o) => o.max_quant_diff != null)
        ? `Differs from ${c.reference} by at most 0 steps: equal bit for bit, on ${on}.`
        : `Every output equals ${c.reference}’s bit for bit, on ${on}.`,
      "✓",
    ];
  const w = worstOutput();
  const far = `${c.within ? "within tolerance" : "outside tolerance"} (${allowText(w)} allowed)`;
  return [
    c.within ? "good" : "bad",
    `Differs from ${c.reference} by at most ${diffText(w)}, ${far}, on ${on}.`,
    c.within ? "✓" : "✕",
  ];
}

function evidenceLines() {
  return (D.evidence || []).map((e) => ["dim", `${clean(e.device)}: rules: ${clean(e.rules)}; ${clean(e.verified)}; ${clean(e.numbers)}.`, "•"]);
}

function obstacleLine() {
  const top = groups().find((g) => g.r.sort !== "slower" && g.off.length);
  if (!top) return slowerLine();
  const kinds = count(top.off, (o) => o.short);
  const which = kinds.slice(0, 2).map(([k, n]) => `${k}${n > 1 ? ` × ${n}` : ""}`);
  const who = list(top.devs.map(clean));
  const why = { host: `not handed to NNAPI by ${who}`, refused: `refused by ${who}`, fallback: who }[top.r.sort];
  const rule = ruleText(top.r, Math.max(0, top.found.length - 1));
  const said = top.r.kind === "partitions" ? rule : `${why}: ${rule}`;
  return ["", `${onDevice.length ? "Main cause of splits" : "Main obstacle"}: ${which.join(", ")}${kinds.length > 2 ? " and others" : ""}, ${said}.${costText(top)}`, "•"];
}
/** Where nothing refuses: the devices would accept what NNAPI's CPU runs faster. */
function slowerLine() {
  const top = groups().find((g) => g.r.sort === "slower" && g.off.length);
  return top
    ? ["", `${clean(top.r.device)} would accept ${plural(top.off.length, "operation")} more: ${ruleText(top.r)}.`, "•"]
    : null;
}
function costText(g) {
  if (g.offMac) return ` That is ${share(g.offMac, totalMac)} of multiply-adds.`;
  const c = cost(g);
  if (!c.parts || !c.moved) return "";
  const out = c.parts === 1 ? "it" : "them";
  // Not all of the host's work is declared.
  const start = g.r.sort === "host" ? "It" : "Little work, but it";
  return ` ${start} makes ${plural(c.parts, "step")} off the devices and moves ${bytes(c.moved)} in and out of ${out}.`;
}

/** Microseconds. */
const time = (us) => (Math.abs(us) >= 100 ? ms(us / 1e3) + NB + "ms" : us.toFixed(1) + NB + "µs");
const diffText = (o) =>
  o.non_finite_unequal || o.max_abs_diff == null
    ? "values that are not finite"
    : o.max_quant_diff != null
      ? plural(o.max_quant_diff, "step")
      : sig(o.max_abs_diff, 2);
const allowText = (o) => (o.max_quant_diff != null ? plural(o.atol, "step") : sig(o.atol, 2));
const excess = (o) => (o.problem || o.non_finite_unequal ? Infinity : (o.max_abs_diff ?? Infinity) / (o.atol || 1e-30));
const worstOutput = () => D.compare.outputs.reduce((a, b) => (excess(b) > excess(a) ? b : a));
