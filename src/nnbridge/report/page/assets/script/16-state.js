/* State that all views share. */

/** Shared by all views; `letters`: whether keys of a single letter do something. */
const S = { letters: stored("nnbridge-letters") !== "off", sel: -1, text: "", hidden: new Set(), reason: -1, listeners: [] };
const changed = (what) => S.listeners.forEach((f) => f(what));
const matches = (o) =>
  !S.hidden.has(runner(o)) && (S.reason < 0 || o.why.some((w) => chosen().reasons.has(w))) && (!S.text || o.find.includes(S.text));
let hit = new Uint8Array(N),
  hits = N;
const filtering = () => S.text || S.hidden.size || S.reason >= 0;
function refilter() {
  hits = 0;
  for (let i = 0; i < N; i++) {
    hit[i] = matches(ops[i]) ? 1 : 0;
    hits += hit[i];
  }
  changed("filter");
}
hit.fill(1);
function select(i, from) {
  S.sel = i;
  changed("select:" + (from || ""));
  if (i >= 0) {
    const o = ops[i];
    $("live").textContent =
      `Operation ${i}, ${o.type}, on ${runner(o).name}` + (refusedBy(o).length ? ", refused elsewhere" : "");
  }
  try {
    history.replaceState(null, "", i >= 0 ? "#op=" + i : location.pathname + location.search);
  } catch (e) {
    /* a file may not */
  }
}
