/** Plans that an operator might sign and a device must not follow: each would cost more than the ledger is told. */

import { describe, expect, it } from "vitest";

import { openTask } from "../core/device/browser-task.js";
import { makeLoss } from "../core/numerics/losses.js";
import { readDocument } from "../core/wire/signed-task.js";
import { vectors, type CheckInCase } from "./vectors.js";

const CASES = vectors<CheckInCase[]>("browser_check_ins");

/** Settings of a signed task, by their path. */
type Changes = Readonly<Record<string, unknown>>;

/** Open a task of the vectors as if something else had been signed. */
function opened(name: string, changes: Changes): unknown {
  const { signed } = CASES.find((each) => each.name === name)!;
  const content = JSON.parse(signed.text) as Record<string, unknown>;
  for (const [path, value] of Object.entries(changes)) {
    const names = path.split(".");
    const last = names.pop()!;
    let at = content;
    for (const each of names) at = at[each] as Record<string, unknown>;
    at[last] = value;
  }
  return openTask(readDocument(JSON.stringify(content)));
}

const REFUSED: [why: string, name: string, changes: Changes][] = [
  ["noise of a law that it would draw by another one", "sound-gaussian", { "browser.noise.law": "discrete-gaussian" }],
  ["work that it does not know", "sound-device", { "browser.work.kind": "moments" }],
  [
    "each example several times in a sum that is charged once",
    "sound-gaussian",
    { "browser.schedule.whole": true, "browser.schedule.epochs": 3 },
  ],
  [
    "counts of more rows than they are charged for",
    "sound-device",
    { "browser.counts": { errors: 400, spread: 800 }, "browser.noise.scale": 500, "browser.terms.rows": 1 },
  ],
  [
    "counts of as many rows as there are",
    "sound-device",
    {
      "browser.counts": { errors: 400, spread: 800 },
      "browser.noise.scale": 500,
      "browser.terms.rows": null,
      "browser.schedule.most-rows": null,
    },
  ],
  ["levels of a length below zero", "sound-stable", { "browser.grid.radius": -4 }],
  ["a bound without levels", "sound-gaussian", { "browser.grid.levels": 0 }],
  [
    "steps uphill",
    "sound-stable",
    { "browser.work.rate": { kind: "exponential", c: 1.5, factor: -1, counter: "versions" } },
  ],
  ["a regulariser that pushes apart", "sound-stable", { "definition.model.regularisation": -0.01 }],
  ["steps on parts of rows", "sound-stable", { "browser.work.rows": 2.5, "browser.stable.part": 2.5 }],
  ["an ε that promises nothing", "sound-gaussian", { "definition.privacy.epsilon": 1e6 }],
  ["an ε without end", "sound-gaussian", { "definition.privacy.epsilon": "Infinity" }],
  ["a δ above one", "sound-device", { "definition.privacy.delta": 1.5 }],
  ["a δ that says nothing", "sound-device", { "definition.privacy.delta": 0.01 }],
  [
    "a δ that says nothing to as many as there are",
    "sound-device",
    { "definition.privacy.delta": 1e-5, "definition.privacy.units": 200_000 },
  ],
  ["a promise to those who stay away", "sound-gaussian", { "definition.privacy.adjacency": "add-remove" }],
  ["rows told apart by ids", "sound-gaussian", { "definition.data.id": "name" }],
];

describe("a browser refuses", () => {
  it.each(REFUSED)("%s", (_, name, changes) => {
    expect(() => opened(name, {})).not.toThrow();
    expect(() => opened(name, changes)).toThrow(/signed|phone|terms/);
  });

  it("three labels for a loss of two, whose slope would be longer than proven", () => {
    for (const name of ["logistic", "hinge"] as const) expect(() => makeLoss(name, 3)).toThrow("two labels");
  });
});
