/* All together: the sections, theme, printing, and the keys. */

readColours();
main.replaceChildren();
hero();
const drawStrip = strip();
whySection();
const draws = [drawStrip, againstSection(), graphSection()];
const buildTable = table();
draws.push(errors());
steps();
draws.push(workSection());
estimates();
io();
provenance();
main.append(
  el("footer", null, "Made by nnbridge ", D.made.versions.nnbridge, ". This file needs no network and holds no weights."),
);
$("nav").append(...sections.map(([id, t]) => el("a", { href: "#" + id, "data-id": id }, t)));

/** What scrolls sideways can be reached with the keyboard. */
function reachable() {
  for (const box of document.querySelectorAll(".scroll"))
    if (box.scrollWidth > box.clientWidth + 1) box.setAttribute("tabindex", "0");
    else box.removeAttribute("tabindex");
}
function redraw() {
  draws.forEach((f) => f && f());
  reachable();
}
S.listeners.push(drawStrip);
buildTable();
redraw();
const linked = /#op=(\d+)/.exec(location.hash);
if (linked && +linked[1] < N) select(+linked[1], "hash");
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(redraw, 80);
});

const root = document.documentElement;
const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme:dark)").matches);
function themed() {
  $("theme").textContent = dark() ? "Light" : "Dark";
  readColours();
  redraw();
}
const theme = stored("nnbridge-theme");
if (theme === "dark" || theme === "light") root.dataset.theme = theme;
$("theme").addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  stored("nnbridge-theme", root.dataset.theme);
  themed();
});
for (const media of ["(prefers-color-scheme:dark)", "(forced-colors:active)"])
  matchMedia(media).addEventListener("change", themed);
themed();

// Canvases keep the theme that they were drawn in; paper is light.
let before;
addEventListener("beforeprint", () => {
  before = root.dataset.theme;
  root.dataset.theme = "light";
  readColours();
  redraw();
});
addEventListener("afterprint", () => {
  if (before) root.dataset.theme = before;
  else delete root.dataset.theme;
  themed();
});

const inSight = new IntersectionObserver(
  (seen) => {
    for (const e of seen.filter((e) => e.isIntersecting))
      for (const a of document.querySelectorAll(".nav a"))
        if (a.dataset.id === e.target.id) a.setAttribute("aria-current", "true");
        else a.removeAttribute("aria-current");
  },
  { rootMargin: "-20% 0px -70% 0px" },
);
sections.forEach(([id]) => inSight.observe($(id)));

const KEYS = [
  ["/", "search"],
  ["n  p", "next, previous operation in run order"],
  ["r", "next operation off the device"],
  ["?", "this list"],
  ["↑ ↓ ← →", "in the graph: follow edges, or go along a layer"],
  ["+ −  0", "in the graph: zoom; map of the whole network"],
  ["Enter", "in the map: normal size; in the graph: details; in the table: go to the graph"],
  ["Esc", "nothing selected; clear the search"],
];
const keys = $("keys");
const letters = el("input", {
  type: "checkbox",
  checked: S.letters,
  on: {
    change: (e) => {
      S.letters = e.target.checked;
      stored("nnbridge-letters", S.letters ? "on" : "off");
    },
  },
});
keys.append(
  el("h2", { id: "keysh", style: "margin-bottom:12px" }, "Keyboard"),
  el(
    "dl",
    { class: "kv" },
    KEYS.map(([k, what]) => [el("dt", null, el("kbd", null, k)), el("dd", null, what)]),
  ),
  el("p", { class: "note" }, el("label", null, letters, " Keys of a single sign (/ n p r ?) work on the whole page")),
  el(
    "p",
    { class: "note" },
    "The wheel zooms once the graph has the focus, or with Ctrl. The address keeps the selected operation: a link opens it.",
  ),
  el("button", { class: "btn", style: "margin-top:12px", on: { click: () => keys.close() } }, "Close"),
);
$("help").addEventListener("click", () => keys.showModal());
window.__ready = performance.now();
