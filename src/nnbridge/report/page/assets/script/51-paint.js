/* Painting the graph: edges, then operations as blocks or cards, then labels of edges. */

/** What of the graph is in sight, in its own units, and how much detail its size allows. */
function sight({ W, H, k, ox, oy }) {
  const [ya, yb, xa, xb] = [-oy / k - PITCH, (H - oy) / k + PITCH, -ox / k - NW, (W - ox) / k + NW];
  return { ya, yb, xa, xb, k, text: k > 0.42, tiny: k < 0.16 };
}
function roundRect(c, x, y, w, h, r) {
  c.beginPath();
  c.roundRect(x, y, w, h, r);
}

function paintGraph(c, camera, g) {
  const see = sight(camera);
  const labels = [];
  c.clearRect(0, 0, camera.W, camera.H);
  c.save();
  c.translate(camera.ox, camera.oy);
  c.scale(camera.k, camera.k);
  c.lineJoin = "round";
  const selected = S.sel >= 0 ? g.nodeOf.get(S.sel) : -1;
  for (const e of g.edges) {
    const mine = e.a === selected || e.b === selected;
    if (e.far) paintFar(c, e, mine, see, g, labels);
    else if (e.y1 >= see.ya && e.y0 <= see.yb && (see.k >= 0.05 || mine)) paintEdge(c, e, mine, see, labels);
  }
  c.textBaseline = "middle";
  for (const n of g.nodes) {
    if (n.y < see.ya || n.y > see.yb || n.x < see.xa || n.x > see.xb) continue;
    if (n.io) paintPill(c, n, see);
    else if (see.text) paintCard(c, n);
    else paintBlock(c, n, see);
    if (n.op === S.sel) paintSelection(c, n, see);
  }
  paintLabels(c, labels, see, g);
  c.restore();
}

function trace(c, p) {
  c.beginPath();
  c.moveTo(p[0][0], p[0][1]);
  for (let i = 1; i < p.length; i++) {
    const [x0, y0, c0] = p[i - 1];
    const [x1, y1, c1] = p[i];
    if (c0 !== c1) {
      c.lineTo(x0, y0 + 26); // on to another column of the map
      c.moveTo(x1, y1 - 26);
      c.lineTo(x1, y1);
    } else if (Math.abs(x0 - x1) < 1 || y1 - y0 > 2 * PITCH) c.lineTo(x1, y1);
    else {
      const h = (y1 - y0) / 2;
      c.bezierCurveTo(x0, y0 + h, x1, y1 - h, x1, y1);
    }
  }
}

/** An edge over many layers: two stubs, drawn whole when an end is selected. */
function paintFar(c, e, mine, see, g, labels) {
  const a = g.nodes[e.a];
  const b = g.nodes[e.b];
  if (mine) {
    c.strokeStyle = C.ink;
    c.lineWidth = 2 / Math.max(see.k, 0.3);
    c.setLineDash([]);
    c.beginPath();
    c.moveTo(a.x, a.y + NH / 2);
    c.bezierCurveTo(a.x + 200, a.y + 120, b.x + 200, b.y - 120, b.x, b.y - NH / 2);
    c.stroke();
    return;
  }
  if (!see.text) return;
  for (const [n, sign, other] of [
    [a, 1, b],
    [b, -1, a],
  ]) {
    if (n.y <= see.ya || n.y >= see.yb) continue;
    c.strokeStyle = C.line2;
    c.lineWidth = 1.4;
    c.setLineDash([2, 3]);
    const sx = n.x + NW / 2 - 26;
    const sy = n.y + (sign * NH) / 2;
    c.beginPath();
    c.moveTo(sx, sy);
    c.lineTo(sx, sy + sign * 11);
    c.stroke();
    c.setLineDash([]);
    labels.push({ at: [[sx, sy + sign * 18]], text: (sign > 0 ? "to " : "from ") + (other.op != null ? other.op : other.io), soft: true });
  }
}

function paintEdge(c, e, mine, see, labels) {
  const dim = filtering() && !mine && !((e.a < N && hit[e.a]) || (e.b < N && hit[e.b]));
  c.globalAlpha = dim ? 0.25 : 1;
  c.strokeStyle = mine || e.cross ? C.ink : C.edge;
  c.lineWidth = (mine ? 2.6 : e.cross ? 1.8 : 1.4) / (see.tiny ? see.k * 2.6 : Math.max(see.k, 0.5) ** 0.4);
  c.setLineDash(e.body ? [2, 4] : e.cross ? [7, 4] : []);
  trace(c, e.p);
  c.stroke();
  c.setLineDash([]);
  const [x, y] = e.p[e.p.length - 1];
  const [x0, y0] = e.p[e.p.length - 2];
  if (see.text) {
    c.fillStyle = c.strokeStyle;
    c.beginPath();
    c.moveTo(x, y);
    c.lineTo(x - 4, y - 7);
    c.lineTo(x + 4, y - 7);
    c.fill();
  }
  const label = e.body || (e.cross && bytes(D.operands[e.t].b));
  if (label && see.k > 0.5) labels.push({ at: alongEdge(e.p), text: label, mine });
  c.globalAlpha = 1;
}

/** An input or output of the model. */
function paintPill(c, n, see) {
  const h = 30;
  c.globalAlpha = filtering() ? 0.4 : 1;
  c.fillStyle = C.surface;
  c.strokeStyle = C.line2;
  c.lineWidth = 1.2;
  roundRect(c, n.x - n.w / 2, n.y - h / 2, n.w, h, h / 2);
  c.fill();
  c.stroke();
  if (see.text) {
    c.fillStyle = C.muted;
    c.textAlign = "center";
    c.font = "12px system-ui,sans-serif";
    c.fillText(n.io + " " + shape(D.operands[n.t]), n.x, n.y + 0.5, n.w - 16);
  }
  c.globalAlpha = 1;
}

const onColour = (r) => (r.cls === "d2" ? C.on2 : C.onfill);

function paintBlock(c, n, see) {
  const r = runner(ops[n.op]);
  const h = see.tiny ? PITCH * 0.8 : NH;
  c.globalAlpha = hit[n.op] ? 1 : 0.22;
  c.fillStyle = see.tiny ? C[r.cls] : fill(c, r);
  c.fillRect(n.x - n.w / 2, n.y - h / 2, n.w, h);
  if (n.w * see.k > 19 && h * see.k > 8) {
    const f = Math.min(12, h * see.k * 0.8) / see.k;
    c.fillStyle = C[r.cls];
    c.fillRect(n.x - f * 0.55, n.y - h / 2, f * 1.1, h);
    c.fillStyle = onColour(r);
    c.textAlign = "center";
    c.font = `700 ${f}px ui-monospace,Menlo,Consolas,monospace`;
    c.fillText(r.key, n.x, n.y + f * 0.06);
  }
  c.globalAlpha = 1;
}

function paintCard(c, n) {
  const o = ops[n.op];
  const r = runner(o);
  const x = n.x - n.w / 2;
  const y = n.y - NH / 2;
  c.globalAlpha = hit[n.op] ? 1 : 0.22;
  c.fillStyle = C.node;
  c.strokeStyle = C.line2;
  c.lineWidth = 1;
  roundRect(c, x, y, n.w, NH, 6);
  c.fill();
  c.save();
  c.clip();
  c.fillStyle = fill(c, r);
  c.fillRect(x, y, 24, NH);
  c.fillStyle = C[r.cls];
  c.fillRect(x + 4, y + NH / 2 - 9, 16, 18);
  c.restore();
  roundRect(c, x, y, n.w, NH, 6);
  c.stroke();
  c.fillStyle = onColour(r);
  c.font = "700 12px ui-monospace,Menlo,Consolas,monospace";
  c.textAlign = "center";
  c.fillText(r.key, x + 12, n.y + 0.5);
  c.textAlign = "left";
  c.fillStyle = C.ink;
  c.font = "600 12.5px system-ui,sans-serif";
  c.fillText(cut(o.short, 19), x + 32, n.y - 8, n.w - 38);
  c.fillStyle = C.muted;
  c.font = "11.5px system-ui,sans-serif";
  c.fillText(`${o.id} · ${o.o.length ? shape(D.operands[o.o[0]]) : ""}`, x + 32, n.y + 9, n.w - 38);
  c.globalAlpha = 1;
}

function paintSelection(c, n, see) {
  const m = Math.max(3, 2.2 / see.k);
  c.lineWidth = m + Math.max(2, 1.5 / see.k);
  c.strokeStyle = C.ink;
  roundRect(c, n.x - n.w / 2 - m, n.y - NH / 2 - m, n.w + 2 * m, NH + 2 * m, 8);
  c.stroke();
  c.lineWidth = m;
  c.strokeStyle = C.sel;
  c.stroke();
}

/** Points of an edge where its label may be, the middle of its last piece first, as :func:`trace` draws them. */
function alongEdge(p) {
  const found = [];
  for (let i = p.length - 1; i > 0; i--) {
    const [[x0, y0, c0], [x1, y1, c1]] = [p[i - 1], p[i]];
    if (c0 !== c1) continue;
    const straight = Math.abs(x0 - x1) < 1 || y1 - y0 > 2 * PITCH;
    for (const t of [0.5, 0.36, 0.64, 0.22, 0.78]) {
      const across = straight ? t : t * t * (3 - 2 * t);
      const down = straight ? t : 1.5 * t * (1 - t) + t * t * t; // the height of a curve whose handles are halfway
      found.push([x0 + (x1 - x0) * across, y0 + (y1 - y0) * down]);
    }
  }
  return found;
}
const apart = (a, b) => a[0] >= b[2] || b[0] >= a[2] || a[1] >= b[3] || b[1] >= a[3];

/** Labels where nothing else is: no operation, no other label. One that has no place is left out; the details have its bytes. */
function paintLabels(c, labels, see, g) {
  const half = (n) => (n.io ? 15 : NH / 2);
  const taken = g.nodes
    .filter((n) => n.y >= see.ya && n.y <= see.yb && n.x >= see.xa && n.x <= see.xb)
    .map((n) => [n.x - n.w / 2, n.y - half(n), n.x + n.w / 2, n.y + half(n)]);
  const inView = (b) => b[0] >= see.xa + NW && b[2] <= see.xb - NW && b[1] >= see.ya + PITCH && b[3] <= see.yb - PITCH;
  const placed = (window.__labels = []);
  c.textAlign = "center";
  c.font = "600 11.5px system-ui,sans-serif";
  for (const { at, text, soft: faint } of labels.sort((a, b) => !!b.mine - !!a.mine)) {
    const w = c.measureText(text).width / 2 + 5;
    const box = at.map(([x, y]) => [x - w, y - 8.5, x + w, y + 8.5]).find((b) => inView(b) && taken.every((t) => apart(b, t)));
    if (!box) continue;
    taken.push(box);
    placed.push([...box, text]);
    const [x, y] = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
    c.fillStyle = faint ? C.sunk : C.surface;
    c.strokeStyle = C.line2;
    c.lineWidth = 0.8;
    roundRect(c, x - w, y - 8.5, 2 * w, 17, 8);
    c.fill();
    if (!faint) c.stroke();
    c.fillStyle = faint ? C.muted : C.ink;
    c.fillText(text, x, y + 0.5);
  }
}

/** The whole graph as a narrow bar, with a frame around what the view shows. */
function paintOverview(canvas, { H, k, oy }, g) {
  const w = canvas.clientWidth;
  const h = canvas.clientHeight;
  const c = fit(canvas, w, h);
  const sy = (h - 8) / g.H;
  const sx = Math.min((w - 10) / (g.hi - g.lo || 1), 0.3);
  for (const n of g.nodes) {
    if (n.op == null) continue;
    c.fillStyle = C[runner(ops[n.op]).cls];
    c.globalAlpha = hit[n.op] ? 1 : 0.15;
    const x = w / 2 + (n.x - (g.lo + g.hi) / 2 - n.w / 2) * sx;
    c.fillRect(x, 4 + n.y * sy, Math.max(3, n.w * sx), Math.max(1, PITCH * sy * 0.7));
  }
  const y = 4 + (-oy / k) * sy;
  const height = (H / k) * sy;
  c.fillStyle = C.ink;
  c.globalAlpha = 0.08;
  c.fillRect(2, y, w - 4, height);
  c.globalAlpha = 1;
  c.strokeStyle = C.ink;
  c.lineWidth = 1.5;
  c.strokeRect(2, y, w - 4, Math.max(4, height));
  if (S.sel < 0) return;
  const at = 4 + g.nodes[g.nodeOf.get(S.sel)].y * sy;
  c.fillStyle = C.sel;
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(1, at - 4);
  c.lineTo(8, at);
  c.lineTo(1, at + 4);
  c.closePath();
  c.fill();
  c.stroke();
}
