/** Decisions of an owner: an ε of their own, and a limit over all tasks, as in Python. */

import { describe, expect, it } from "vitest";

import { openTask } from "../core/device/browser-task.js";
import { NO_CAP, requireRoom, reserved } from "../core/ledger/cap.js";
import { LedgerChain, packed } from "../core/ledger/chain.js";
import { accepted, canonical } from "../core/ledger/entries.js";
import { covers } from "../core/ledger/event.js";
import { readDocument } from "../core/wire/signed-task.js";
import { vectors } from "./vectors.js";

interface OwnCase {
  readonly name: string;
  readonly text: string;
  readonly epsilon: number;
  readonly entry: string;
  readonly scale: number;
  readonly counts: [number, number] | null;
}

describe("an ε of the owner's own", () => {
  it.each(vectors<OwnCase[]>("browser_owners"))(
    "$epsilon in $name",
    ({ name, text, epsilon, entry, scale, counts }) => {
      const document = readDocument(text);
      const { job, terms } = openTask(document, epsilon);
      expect(job.sound!.scale).toBe(scale);
      expect(job.counts ? [job.counts.errors, job.counts.spread] : null).toEqual(counts);
      expect(canonical(accepted(name, "", terms))).toBe(entry);
      expect(terms.filter.epsilon).toBe(epsilon);
      expect(covers(terms.filter, terms.event.times(terms.uses))).toBe(true);
      for (const outside of [1.9, 201, NaN, -1]) {
        expect(() => openTask(document, outside)).toThrowError(expect.objectContaining({ reason: "terms" }));
      }
    },
  );

  it("is refused where the task has no range", () => {
    const [{ signed }] = vectors<[{ signed: { text: string } }]>("browser_check_ins");
    expect(() => openTask(readDocument(signed.text), 1)).toThrow("no ε to choose");
  });
});

describe("a limit over all tasks", () => {
  it("counts tasks as Python does, open and ended", async () => {
    const chain = new LedgerChain();
    for (const step of vectors<{ raw: string; samples: number[]; epsilon: number; delta: number }[]>("browser_cap")) {
      await chain.replay(step.raw, packed(step.samples));
      const { epsilon, delta } = reserved(chain.tasks.values());
      expect(Math.abs(epsilon / step.epsilon - 1)).toBeLessThan(1e-9);
      expect(Math.abs(delta - step.delta)).toBeLessThan(1e-18);
    }
  });

  it("refuses what would pass it, in ε and in δ", async () => {
    const chain = new LedgerChain();
    const [first] = vectors<{ raw: string }[]>("browser_cap").slice(2);
    await chain.replay(first!.raw); // ε = 40, δ = 2e-5 with the marks
    const [{ terms }] = [...chain.tasks.values()] as unknown as [{ terms: Parameters<typeof requireRoom>[1] }];
    const room = (cap: typeof NO_CAP) => () => requireRoom("more", terms, chain.tasks.values(), cap);
    expect(room(NO_CAP)).not.toThrow();
    expect(room({ epsilon: 80, delta: 4e-5 })).not.toThrow();
    expect(room({ epsilon: 79.99, delta: 1 })).toThrowError(expect.objectContaining({ reason: "cap" }));
    expect(room({ epsilon: 100, delta: 3.9e-5 })).toThrow("your limit is ε = 100");
    expect(() => chain.accept("more", "ab", terms, { epsilon: 79, delta: 1 })).toThrow("with all tasks");
  });
});
