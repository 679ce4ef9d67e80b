/* Reasons in plain words, by their kinds; the rule and what was found are in the title. Groups of operations by reason. */

/** Four pieces of a sentence; the second and the last stand out. */
const WORDS = {
  "feature-level": (r) => {
    const has = /(\d+)/.exec(r.rule);
    const needs = /^level (\d+)$/.exec(r.found || "");
    return has && needs && ["it needs feature level ", needs[1], "; the driver has ", has[1]];
  },
  operator: (r) => ["", r.host ? "it does not map this operator" : "the device does not accept operations of this type", "", ""],
  unstated: (r) => !r.found && ["", "the driver gave no reason", "", ""], // A rule without a kind is in words.
  partitions: (r) => ["only ", clean(r.rule).replace(/^one of /, ""), " go to drivers", ""],
};
/** `more`: other values that were found against the same rule. */
function plain(r, more = 0) {
  const known = WORDS[r.kind] && WORDS[r.kind](r);
  if (known) return known;
  const rule = list(clean(r.rule).split(" or ")).replace(/ and (?=[^,]*$)/, " or ");
  const at = r.operand ? clean(r.operand) + " " : "";
  if (!r.found) return ["it requires ", at + rule, "", ""];
  return [at ? at + "must be " : "it requires ", rule, at ? ", but is " : ", found ", clean(r.found) + (more ? ` and ${plural(more, "other value")}` : "")];
}
const measure = () => (D.made.preference === 0 ? "power use" : "execution time");
function ruleText(r, more = 0) {
  if (r.sort === "fallback") return "accepted it, but the whole model fell back to the CPU: " + clean(r.fallback || r.rule);
  if (r.sort !== "slower") return plain(r, more).join("");
  return r.figure === r.best
    ? `relative ${measure()} ${sig(r.figure)}, the same as ${clean(r.winner)}’s, which wins ties`
    : `relative ${measure()} ${sig(r.figure)}; ${clean(r.winner)}’s is ${sig(r.best)}, and the lower one wins`;
}
const raw = (r) => (r.rule ? `requires ${clean(r.rule)}${r.found ? ", found " + clean(r.found) : ""}` : null);
function ruleNode(r, found = []) {
  if (r.sort === "slower" || r.sort === "fallback") return el("span", null, ruleText(r));
  const [p, q, m, z] = plain(r, Math.max(0, found.length - 1));
  const others = found.length > 1 ? `; ${found.length > 12 ? "some of what was" : "what was"} found: ${found.slice(0, 12).map(clean).join("; ")}` : "";
  return el("span", { title: raw(r) + others }, p, el("b", null, soft(q)), m, z ? el("b", null, soft(z)) : "");
}
/** Who said it, and that they did. */
const VERBS = {
  refused: "refused it",
  slower: "would accept it",
  fallback: "would accept it",
  host: "does not hand it to NNAPI",
};
const saidBy = (r) => clean(r.device) + " " + (r.kind === "partitions" ? "would accept it" : VERBS[r.sort]);

const count = (a, f) => {
  const m = new Map();
  for (const o of a) m.set(f(o), (m.get(f(o)) || 0) + 1);
  return [...m].sort((x, y) => y[1] - x[1]);
};
/** What a reason costs beside work: steps off the devices that hold its operations, and the bytes that cross their borders. */
const cost = (g) => {
  const parts = new Set(g.off.map((o) => o.k).filter((k) => k >= 0));
  return { parts: parts.size, moved: sum([...parts], (k) => (P.steps[k].bi || 0) + (P.steps[k].bo || 0)) };
};

/** What the rule says without what was found: reasons that differ only in that are one. */
const ruleKey = (r) => [r.sort, r.kind, r.operand, r.rule, r.found && !(WORDS[r.kind] && WORDS[r.kind](r)) ? "" : r.found, r.fallback].join("|");

let G;
/**
 * One group for each device and rule, the costliest first; the same words for the same operations from several devices are one.
 * `found`: what was found against the rule, the most frequent first; `reasons`: the indices of its reasons.
 */
function groups() {
  if (G) return G;
  const all = new Map();
  const of = P.reasons.map((r, i) => {
    const key = r.sort === "slower" ? "s" + i : r.device + "|" + ruleKey(r);
    if (!all.has(key)) all.set(key, { r, i, reasons: new Set(), values: new Map(), ops: [], off: [], mac: 0, offMac: 0, devs: [r.device] });
    const g = all.get(key);
    g.reasons.add(i);
    return g;
  });
  for (const o of ops) {
    for (const w of o.why) {
      const { found } = P.reasons[w];
      if (found) of[w].values.set(found, (of[w].values.get(found) || 0) + 1);
    }
    for (const g of new Set(o.why.map((w) => of[w]))) {
      g.ops.push(o);
      g.mac += o.mac || 0;
      if (runner(o).place === "device") continue;
      g.off.push(o);
      g.offMac += o.mac || 0;
    }
  }
  const same = new Map();
  for (const g of all.values()) {
    if (!g.ops.length) continue;
    g.found = [...g.values].sort((a, b) => b[1] - a[1]).map(([found]) => found);
    if (g.found.length) g.r = P.reasons[[...g.reasons].find((i) => P.reasons[i].found === g.found[0])];
    const key = g.r.sort === "slower" ? "s" + g.i : [g.r.sort, ruleText(g.r), g.ops.map((o) => o.id)].join("|");
    const was = same.get(key);
    if (was) was.devs.push(g.r.device);
    else same.set(key, g);
  }
  G = [...same.values()];
  return G.sort((a, b) => b.offMac - a.offMac || b.off.length - a.off.length || b.mac - a.mac || b.ops.length - a.ops.length);
}
/** The group that the reader chose. */
const chosen = () => groups().find((g) => g.i === S.reason);
