/* Tooltip. */

const tip = $("tip");
function showTip(x, y, kids) {
  tip.replaceChildren(...[kids].flat());
  tip.classList.add("on");
  const w = tip.offsetWidth,
    h = tip.offsetHeight;
  tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - w - 8)) + "px";
  tip.style.top = (y + 18 + h > innerHeight ? y - h - 12 : y + 18) + "px";
}
const hideTip = () => tip.classList.remove("on");
const opTip = (o) =>
  [
    el("div", null, `${o.id} · ${o.type} on ${runner(o).name}`),
    o.label ? el("div", { class: "name" }, cut(o.label, 110)) : null,
    el("div", null, `${work(o.mac)} multiply-adds, output ${bytes(o.ob)}`),
    ...refusedBy(o)
      .slice(0, 2)
      .map((r) => el("div", null, `${clean(r.device)}: ${ruleText(r)}`)),
  ].filter(Boolean);
