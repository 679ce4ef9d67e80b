/* Layered layout. */

const NW = 168,
  NH = 44,
  GAPX = 22,
  PITCH = 78,
  LONG = 48;
/** Points between operations that are close to a straight line are left out, so that long edges do not wander. */
function straightened(points) {
  const close = GAPX / 2;
  const found = [points[0]];
  for (let i = 0; i < points.length - 1;) {
    let j = i + 1;
    while (j + 1 < points.length && points[j + 1][2] === points[i][2] && follows(points, i, j + 1, close)) j++;
    found.push(points[j]);
    i = j;
  }
  return found;
}
function follows(points, i, j, close) {
  const [x0, y0] = points[i];
  const slope = (points[j][0] - x0) / (points[j][1] - y0 || 1);
  for (let k = i + 1; k < j; k++) if (Math.abs(x0 + slope * (points[k][1] - y0) - points[k][0]) > close) return false;
  return true;
}

function layout() {
  const nodes = [],
    edges = [];
  ops.forEach((o, i) => nodes.push({ op: i, w: NW, in: [], out: [] }));
  D.model.inputs.forEach((x) => {
    if (readers(x).length) nodes.push({ io: "input", t: x, w: 132, in: [], out: [] });
  });
  D.model.outputs.forEach((x) => {
    if (producer.has(x)) nodes.push({ io: "output", t: x, w: 132, in: [], out: [] });
  });
  const inputNode = new Map(),
    link = (a, b, t) => {
      const e = { a, b, t, pts: [] };
      edges.push(e);
    };
  nodes.forEach((n, i) => {
    if (n.io === "input") inputNode.set(n.t, i);
  });
  ops.forEach((o, i) => {
    const seen = new Set();
    o.i.forEach((x) => {
      if (seen.has(x)) return;
      seen.add(x);
      if (producer.has(x)) link(producer.get(x), i, x);
      else if (inputNode.has(x)) link(inputNode.get(x), i, x);
    });
  });
  nodes.forEach((n, i) => {
    if (n.io === "output") link(producer.get(n.t), i, n.t);
  });
  const inE = nodes.map(() => []),
    outE = nodes.map(() => []);
  edges.forEach((e, i) => {
    outE[e.a].push(i);
    inE[e.b].push(i);
  });
  // Layers: longest path from the sources, in topological order (operations come in run order).
  const L = new Int32Array(nodes.length),
    topo = [...nodes.keys()]
      .filter((i) => nodes[i].io === "input")
      .concat(
        order,
        [...nodes.keys()].filter((i) => nodes[i].io === "output"),
      );
  for (const i of topo) for (const e of inE[i]) L[i] = Math.max(L[i], L[edges[e].a] + 1);
  // Pull down what has nothing above it, and side chains that only wait for their reader.
  for (const i of [...topo].reverse())
    if (outE[i].length && inE[i].length <= 1) {
      const m = Math.min(...outE[i].map((e) => L[edges[e].b])) - 1;
      if (m > L[i] && inE[i].length === 0) L[i] = m;
    }
  const depth = Math.max(0, ...L) + 1,
    layers = Array.from({ length: depth }, () => []);
  const all = nodes.slice();
  topo.forEach((i) => {
    nodes[i].layer = L[i];
    layers[L[i]].push(i);
  });
  const up = nodes.map(() => []),
    down = nodes.map(() => []);
  for (const e of edges) {
    const span = L[e.b] - L[e.a];
    if (span > LONG) {
      e.far = true;
      continue;
    }
    let last = e.a;
    for (let l = L[e.a] + 1; l < L[e.b]; l++) {
      const d = all.length;
      all.push({ dummy: true, w: 14, layer: l });
      up.push([last]);
      down.push([]);
      down[last].push(d);
      layers[l].push(d);
      e.pts.push(d);
      last = d;
    }
    down[last].push(e.b);
    up[e.b].push(last);
  }
  // Order within layers: medians, alternating down and up.
  const rank = new Float64Array(all.length);
  layers.forEach((l) => l.forEach((n, i) => (rank[n] = i)));
  const sweep = (from, to, step, near) => {
    for (let l = from; l !== to; l += step) {
      const row = layers[l];
      if (row.length < 2) continue;
      const key = row.map((n, i) => {
        const q = near[n];
        if (!q.length) return [n, rank[n], i];
        const m = q.map((k) => rank[k]).sort((a, b) => a - b),
          h = m.length >> 1;
        return [n, m.length % 2 ? m[h] : (m[h - 1] + m[h]) / 2, i];
      });
      key.sort((a, b) => a[1] - b[1] || a[2] - b[2]);
      key.forEach((k, i) => {
        row[i] = k[0];
        rank[k[0]] = i;
      });
    }
  };
  for (let k = 0; k < 6; k++) {
    sweep(1, depth, 1, up);
    sweep(depth - 2, -1, -1, down);
  }
  sweep(1, depth, 1, up);
  // Coordinates: each row moves towards its neighbours' mean; overlaps are resolved exactly by pooling adjacent violators.
  const x = new Float64Array(all.length);
  layers.forEach((row) => {
    let p = 0;
    row.forEach((n, i) => {
      if (i) p += (all[row[i - 1]].w + all[n].w) / 2 + GAPX;
      x[n] = p;
    });
    const mid = p / 2;
    row.forEach((n) => (x[n] -= mid));
  });
  const relax = (row, near, both, fixed) => {
    const target = [],
      wt = [],
      off = [];
    let s = 0;
    row.forEach((n, i) => {
      if (i) s += (all[row[i - 1]].w + all[n].w) / 2 + (all[n].dummy && all[row[i - 1]].dummy ? 6 : GAPX);
      off.push(s);
      let q = near[n];
      if (both) q = q.concat(both[n]);
      let sum = 0,
        w = 0;
      q.forEach((k) => {
        const f = all[n].dummy && all[k].dummy ? 5 : all[k].dummy || all[n].dummy ? 1 : 3;
        sum += f * x[k];
        w += f;
      });
      const pin = fixed && fixed.has(n);
      target.push((pin ? x[n] : w ? sum / w : x[n]) - s);
      wt.push(pin ? 1e6 : w || 0.1);
    });
    const bs = [];
    for (let i = 0; i < row.length; i++) {
      let b = [target[i], wt[i], 1];
      while (bs.length && bs[bs.length - 1][0] > b[0]) {
        const a = bs.pop();
        b = [(a[0] * a[1] + b[0] * b[1]) / (a[1] + b[1]), a[1] + b[1], a[2] + b[2]];
      }
      bs.push(b);
    }
    let i = 0;
    for (const b of bs) for (let k = 0; k < b[2]; k++, i++) x[row[i]] = b[0] + off[i];
  };
  for (let k = 0; k < 10; k++) {
    for (let l = 1; l < depth; l++) relax(layers[l], up);
    for (let l = depth - 2; l >= 0; l--) relax(layers[l], down);
  }
  for (let k = 0; k < 4; k++) for (let l = 0; l < depth; l++) relax(layers[l], up, down);
  // Rows with a single operation are the network's waists: they go onto one vertical line, and the rows between follow.
  const waist = layers.map((row) => {
    const real = row.filter((n) => !all[n].dummy);
    return real.length === 1 ? x[real[0]] : null;
  });
  for (let l = 0, last = -1; l <= depth; l++)
    if (l === depth || waist[l] !== null) {
      const a = last < 0 ? (l < depth ? waist[l] : 0) : waist[last],
        b = l < depth ? waist[l] : a;
      for (let m = last + 1; m < Math.min(l + 1, depth); m++) {
        const f = l - last ? (m - last) / (l - last) : 0;
        layers[m].forEach((n) => (x[n] -= m === l ? b : a + (b - a) * f));
      }
      last = l;
    }
  const pinned = new Set(layers.flatMap((row, l) => (waist[l] !== null ? row.filter((n) => !all[n].dummy) : [])));
  for (let k = 0; k < 6; k++) {
    for (let l = 0; l < depth; l++) relax(layers[l], up, down, pinned);
    for (let l = depth - 1; l >= 0; l--) relax(layers[l], up, down, pinned);
  }
  let lo = Infinity,
    hi = -Infinity;
  all.forEach((n, i) => {
    n.x = x[i];
    if (!n.dummy) {
      lo = Math.min(lo, n.x - n.w / 2);
      hi = Math.max(hi, n.x + n.w / 2);
    } else {
      lo = Math.min(lo, n.x);
      hi = Math.max(hi, n.x);
    }
  });
  for (const e of edges) {
    const a = nodes[e.a].op,
      b = nodes[e.b].op;
    e.body = a != null && b != null && ops[a].g !== ops[b].g ? D.sources[ops[b].g].role : "";
    e.cross = a != null && b != null && ops[a].k !== ops[b].k && !e.body;
  }
  const g = {
    nodes,
    edges,
    layers,
    depth,
    inE,
    outE,
    width: hi - lo,
    columns: 1,
    nodeOf: new Map(nodes.map((n, i) => [n.op, i])),
  };
  /** Put the rows into columns, as text in a newspaper; a column ends at a waist if there is one in its last fifth. */
  g.fold = (rows) => {
    const col = new Int32Array(depth),
      first = [0];
    let c = 0,
      start = 0;
    for (let l = 0; l < depth; l++) {
      if (l - start >= rows) {
        let cut = l;
        for (let m = l; m > l - rows / 5; m--)
          if (layers[m].length === 1) {
            cut = m;
            break;
          }
        for (let m = cut; m < l; m++) col[m] = c + 1;
        c++;
        start = cut;
        first.push(cut);
      }
      col[l] = c;
    }
    const step = hi - lo + 90;
    g.columns = c + 1;
    g.H = Math.min(depth, rows) * PITCH;
    g.lo = lo;
    g.hi = hi + c * step;
    g.folded = c > 0;
    all.forEach((n, i) => {
      const q = col[n.layer];
      n.c = q;
      n.x = x[i] + q * step;
      n.y = (n.layer - first[q]) * PITCH;
    });
    for (const e of edges) {
      e.p = straightened([
        [all[e.a].x, all[e.a].y + NH / 2, all[e.a].c],
        ...e.pts.map((d) => [all[d].x, all[d].y, all[d].c]),
        [all[e.b].x, all[e.b].y - NH / 2, all[e.b].c],
      ]);
      e.y0 = all[e.a].c === all[e.b].c ? all[e.a].y : -1e9;
      e.y1 = all[e.a].c === all[e.b].c ? all[e.b].y : 1e9;
    }
  };
  g.fold(Infinity);
  return g;
}
