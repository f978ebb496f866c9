/** A plan is the operator's word, and what it costs is not: one that does not keep the signed terms is refused. */

import { describe, expect, it } from "vitest";

import { openTask } from "../core/device/browser-task.js";
import { readDocument } from "../core/wire/signed-task.js";
import { vectors, type CheckInCase } from "./vectors.js";

const CASES = vectors<CheckInCase[]>("browser_check_ins");

type Anything = any;

/** Open a task of the vectors, with a change to what was signed. */
function changed(name: string, change: (content: Anything) => void) {
  const content = JSON.parse(CASES.find((each) => each.name === name)!.signed.text) as Anything;
  change(content);
  return openTask(readDocument(JSON.stringify(content)));
}

describe("a plan that does not keep the signed terms", () => {
  it.each<[string, string, (content: Anything) => void]>([
    ["less noise", "sound-gaussian", ({ browser }) => (browser.noise.scale /= 2)],
    ["less noise on counts", "sound-gaussian", ({ browser }) => (browser.counts.errors = 0.5)],
    ["no noise on counts", "sound-gaussian", ({ browser }) => (browser.counts.errors = 0)],
    ["a wider limit", "sound-gaussian", ({ browser }) => (browser.grid.limit *= 2)],
    ["more uses", "sound-gaussian", ({ browser }) => (browser.terms.uses = 1)],
    ["a smaller promise", "sound-gaussian", ({ definition }) => (definition.privacy.epsilon = 4)],
    ["a smaller δ", "sound-gaussian", ({ definition }) => (definition.privacy.delta = 1e-12)],
    ["another sum", "sound-gaussian", ({ browser }) => (browser.terms.filter = "pure")],
    ["another norm", "sound-gaussian", ({ browser }) => (browser.noise.law = "discrete-laplace")],
    ["a bound on the whole", "sound-gaussian", ({ browser }) => (browser.grid.per = "release")],
    ["no plan of noise", "sound-gaussian", ({ browser }) => delete browser.noise],
    ["less Laplace noise", "sound-laplace", ({ browser }) => (browser.noise.scale /= 1.25)],
    ["stabler steps", "sound-stable", ({ browser }) => (browser.stable.moved /= 2)],
    ["stabler arithmetic", "sound-stable", ({ browser }) => (browser.stable.rounding /= 2)],
    ["a larger rate", "sound-stable", ({ browser }) => (browser.work.rate.c = 100)],
    ["a coarser grid", "sound-stable", ({ browser }) => (browser.grid.limit = browser.grid.levels)],
    ["more epochs", "sound-rounds", ({ browser }) => (browser.schedule.epochs = 9)],
  ])("%s", (_, name, change) => {
    expect(() => changed(name, () => undefined)).not.toThrow();
    expect(() => changed(name, change)).toThrowError(expect.objectContaining({ reason: "terms" }));
  });
});

describe("what a browser may not join", () => {
  it("says why, in the operator's words", () => {
    const why = "a phone may not join because its messages are added up under masks";
    expect(() => changed("softmax", (content) => (content.browser = { refused: why }))).toThrow(why);
  });

  it.each<[string, (content: Anything) => void]>([
    ["before browsers could take part", (content) => delete content.browser],
    ['mode "paper"', ({ definition }) => (definition.privacy.mode = "paper")],
    ['the model "cnn"', ({ definition }) => (definition.model.kind = "cnn")],
    ['the transform "scattering"', ({ definition }) => (definition.data.transform[0].kind = "scattering")],
  ])("says %s", (why, change) => {
    expect(() => changed("softmax", change)).toThrow(why);
  });
});
