/** The ledger: entries, bytes and hashes as in Python, and what it refuses. */

import { describe, expect, it } from "vitest";

import { LedgerChain, packed } from "../core/ledger/chain.js";
import { accepted, canonical, nextHash, readEntry, termsOfNothing, type Terms } from "../core/ledger/entries.js";
import { Event } from "../core/ledger/event.js";
import { decimalUp, exact, fraction, roundUp, sumUp } from "../core/ledger/exact.js";
import { oddsAfter } from "../core/ledger/odds.js";
import { gaussianEpsilon, renyiEpsilon } from "../core/ledger/privacy-loss.js";
import { fromHex, toHex, utf8 } from "../core/wire/bytes.js";
import { vectors } from "./vectors.js";

interface Case {
  readonly before: string;
  readonly entry: Record<string, number | string>;
  readonly raw: string;
  readonly hash: string;
}

const terms = (unit: "sample" | "device", uses: number): Terms => ({
  unit,
  filter: { kind: "pure", epsilon: 2, delta: 0 },
  uses,
  event: Event.ofPure([1n, BigInt(uses)]),
  device: null,
});
const charge = (key: string, samples: number[] = [], body = "bytes") => ({
  task: "digits",
  key,
  body: utf8(body),
  samples,
  version: 0,
  numbering: null,
});

describe("entries", () => {
  it.each(vectors<Case[]>("ledger"))("$raw", async ({ before, entry, raw, hash }) => {
    expect(canonical(entry)).toBe(raw);
    expect(readEntry(raw)).toEqual(entry);
    expect(toHex(await nextHash(fromHex(before), raw))).toBe(hash);
  });

  it.each([
    '{"kind":"lost","most":1.0,"task":"a"}',
    '{"kind":"lost","most":-1,"task":"a"}',
    '{"kind":"lost","task":"a"}',
    '{"kind":"lost","most":1,"task":"a","other":1}',
    '{"kind":"lost", "most":1,"task":"a"}',
    '{"kind":"toString","task":"a"}',
    '{"most":1,"kind":"lost","task":"a"}',
    "[]",
    "",
  ])("refuses %s", (raw) => expect(() => readEntry(raw)).toThrow());

  it("writes what promises nothing as Python does", () => {
    const raw = canonical(accepted("a", "b", termsOfNothing(null)));
    expect(raw).toContain('"epsilon":"Infinity"');
    expect(raw).not.toContain('pure":"Inf');
  });
});

describe("exact arithmetic", () => {
  it("rounds up, never down", () => {
    expect(roundUp(1n, 3n)).toBeGreaterThanOrEqual(1 / 3);
    expect(fraction(roundUp(1n, 3n))[0] * 3n).toBeGreaterThan(fraction(roundUp(1n, 3n))[1]);
    expect(roundUp(1n, 2n)).toBe(0.5);
    expect(sumUp(0.1, 0.2)).toBe(0.30000000000000004);
    expect(sumUp(1, 1e-30)).toBe(1 + 2 ** -52);
    expect(roundUp(1n, 1n << 1074n)).toBe(5e-324);
  });

  it("writes decimals", () => {
    expect([0.1, 2, 1e-7, 123456.789, 1e15].map(decimalUp)).toEqual([
      "0.100000000001",
      "2",
      "0.0000001",
      "123456.789001",
      "1000000000000000",
    ]);
    expect([1e-5, 8, 0.7, 1e21, 100, Infinity].map(exact)).toEqual([
      "0.00001",
      "8",
      "0.7",
      "1000000000000000000000",
      "100",
      "Infinity",
    ]);
  });

  it("knows what Gaussian noise costs", () => {
    expect(gaussianEpsilon(0.5, 1e-5)).toBeCloseTo(4.377, 3);
    expect(renyiEpsilon(0.5, 1e-5)).toBeCloseTo(4.728, 3);
    expect(gaussianEpsilon(1e-12, 0.1)).toBe(0);
    const both = Event.ofPure([2n, 1n]).plus(Event.ofRoundedGaussian([1n, 1n], [1n, 1n]));
    const found = (["rdp", "mixed", "gaussian"] as const).map((kind) => both.epsilon(kind, 1e-5).toFixed(2));
    expect(found).toEqual(["12.30", "6.73", "6.38"]);
    expect(oddsAfter(Event.ofPure([3n, 1n]), 1)).toBe(Math.ceil((100 * Math.exp(3)) / (1 + Math.exp(3))));
    expect(oddsAfter(Event.ofPure([3n, 1n]), 0)).toBe(50);
    const less = Event.ofPure([1n, 1n]).plus(Event.ofRoundedGaussian([1n, 1n], [1n, 1n]));
    expect([0, 1, 3].map((uses) => oddsAfter(less, uses))).toEqual([50, 77, 89]);
  });
});

describe("the chain", () => {
  it("charges until all is spent, and a resend costs nothing", async () => {
    const chain = new LedgerChain();
    await chain.append(chain.accept("digits", "ab", terms("device", 2)));
    for (const key of ["key-0", "key-1"]) await chain.append((await chain.charge(charge(key)))!);
    expect(chain.spent("digits").pure).toBe(1);
    expect(await chain.charge(charge("key-1"))).toBeNull();
    await expect(chain.charge(charge("key-1", [], "other"))).rejects.toThrow("other bytes");
    await expect(chain.charge(charge("key-2"))).rejects.toThrow("2 of 2 releases are spent");
    expect(chain.left("digits")).toBe(0);
  });

  it("counts the uses of every sample", async () => {
    const chain = new LedgerChain();
    await chain.append(chain.accept("digits", "ab", terms("sample", 2)));
    for (const [key, samples] of [
      ["a", [0, 1]],
      ["b", [1, 2]],
    ] as const) {
      await chain.append((await chain.charge(charge(key, [...samples])))!, packed(samples));
    }
    expect([0, 1, 2, 9].map((sample) => chain.usesOf("digits", sample))).toEqual([1, 2, 1, 0]);
    await expect(chain.charge(charge("c", [1, 3]))).rejects.toThrow("used 2 of 2 times");
    await expect(chain.charge(charge("c", [3, 3]))).rejects.toThrow("each once");
    const entry = (await chain.charge(charge("c", [3])))!;
    await expect(chain.append(entry, packed([4]))).rejects.toThrow("not those that were charged");
    await chain.append(chain.close("digits", true));
    await expect(chain.charge(charge("d", [4]))).rejects.toThrow("closed");
  });

  it("refuses terms that cost more than they promise", () => {
    const chain = new LedgerChain();
    const dear = { ...terms("device", 2), event: Event.ofPure([3n, 2n]) };
    expect(() => chain.accept("digits", "ab", dear)).toThrow("cost more");
    expect(() => chain.spending("digits")).toThrow("never accepted");
  });
});
