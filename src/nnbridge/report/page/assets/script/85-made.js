/* How it was made. */

function provenance() {
  const { s } = section("made", "How this was made", "How made"),
    m = D.made;
  m.commands.forEach((c) => {
    const b = el(
      "button",
      {
        class: "btn",
        on: {
          click: () => {
            navigator.clipboard?.writeText(c).then(
              () => {
                b.textContent = "Copied";
                setTimeout(() => (b.textContent = "Copy"), 1500);
              },
              () => {},
            );
          },
        },
      },
      "Copy",
    );
    s.append(el("div", { class: "cmd" }, el("pre", null, soft(c)), b));
  });
  m.notes.forEach((n) => s.append(el("p", { class: "note" }, clean(n))));
  s.append(
    el(
      "dl",
      { class: "kv", style: "margin-top:14px" },
      ...[
        ["Made", m.when.replace("T", " ").replace("Z", " UTC")],
        [
          "Versions",
          Object.entries(m.versions)
            .map(([a, b]) => a + " " + b)
            .join(", "),
        ],
        [
          "Model file",
          [D.model.file, D.model.format, D.model.bytes ? int(D.model.bytes) + " bytes" : null]
            .filter(Boolean)
            .map(clean)
            .join(", "),
        ],
        D.model.sha256 ? ["SHA-256", D.model.sha256] : null,
        [
          "Devices",
          R.filter((r) => r.version)
            .map((r) => `${r.name}: version ${r.version}, feature level ${r.level}`)
            .join("; "),
        ],
        m.max_partitions ? ["Limit", `at most ${plural(m.max_partitions, "partition")} to drivers (--max-partitions)`] : null,
        ["Mapping", D.mapping],
        ["Preference", ["low power", "fast single answer", "sustained speed"][m.preference]],
      ]
        .filter(Boolean)
        .flatMap(([a, b]) => [el("dt", null, a), el("dd", null, soft(b))]),
    ),
  );
  s.append(
    el(
      "details",
      null,
      el("summary", null, "What the figures mean"),
      el(
        "dl",
        { class: "kv" },
        ...[
          ["Step", "Operations that run together in one place."],
          ["Partition", "A step that a device takes, as a model by itself."],
          [
            "Crosses borders",
            "The bytes of the tensors that one step makes and another reads, each tensor once. What a step reads counts each tensor that it reads. Model inputs and weights are not counted.",
          ],
          [
            "Tensors alive",
            "From the operation that makes a tensor to the last that reads it, in the plan’s order; model inputs and outputs for the whole run.",
          ],
          [
            "Own error",
            "The operation in isolation on the device that the plan chose, with the reference’s values as inputs, against the reference’s output.",
          ],
          ["Drift", "The whole network up to here on the planned devices, against the reference’s tensor."],
          [
            "Relative execution time, power use",
            "What the device states for the type of the first input, relative to NNAPI’s CPU; NNAPI’s runtime chooses the lowest.",
          ],
        ].flatMap(([a, b]) => [el("dt", null, a), el("dd", null, b)]),
      ),
    ),
  );
}
