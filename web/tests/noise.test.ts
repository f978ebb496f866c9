/** Samplers and rounding: given words, the same integers as in Python, and the same number of words taken. */

import { describe, expect, it } from "vitest";

import { discreteLaplace } from "../core/numerics/discrete-laplace.js";
import { roundChecked, toLevels } from "../core/numerics/grid.js";
import { roundedGaussian } from "../core/numerics/rounded-gaussian.js";
import { below, GivenWords, systemWords } from "../core/numerics/words.js";
import { apart, fromBase64, vectors, type RoundingCase, type SamplerCase } from "./vectors.js";

const SAMPLERS = vectors<SamplerCase[]>("samplers");

function scaleOf(parameter: string): number {
  const [above, under = "1"] = parameter.split("/");
  return Number(above) / Number(under);
}

describe("samplers", () => {
  const drawn = { "discrete-laplace": discreteLaplace, "rounded-gaussian": roundedGaussian };
  const usable = SAMPLERS.filter(({ sampler, parameter }) => {
    const under = Number(parameter?.split("/")[1] ?? 1);
    return sampler in drawn && 16 % under === 0 && scaleOf(parameter!) < 2 ** 32;
  });

  it("has vectors of both laws", () => {
    expect(new Set(usable.map(({ sampler }) => sampler)).size).toBe(2);
    expect(usable.length).toBeGreaterThan(5);
  });

  it.each(usable)("$sampler $parameter", ({ sampler, parameter, lanes, draws, words }) => {
    const given = new GivenWords(words);
    const found = drawn[sampler as keyof typeof drawn](given, scaleOf(parameter!), lanes);
    expect(Array.from(found, String)).toEqual(draws.map((draw) => (draw === "-0" ? "0" : draw)));
    expect(given.taken).toBe(words.length);
  });

  it.each(SAMPLERS.filter(({ sampler, limit }) => sampler === "below" && Number(limit) < 2 ** 37))(
    "below $limit",
    ({ limit, lanes, draws, words }) => {
      const given = new GivenWords(words);
      expect(Array.from(below(given, Number(limit), lanes), String)).toEqual(draws);
      expect(given.taken).toBe(words.length);
    },
  );

  it("refuses a scale that is not exact, and an integer that is too large", () => {
    expect(() => discreteLaplace(systemWords, 0.1, 1)).toThrow("no exact scale");
    expect(() => roundedGaussian(systemWords, 0, 1)).toThrow("no exact scale");
    expect(() => below(systemWords, 2 ** 37, 1)).toThrow("no integers");
  });

  it("draws again what lies beyond the last whole multiple", () => {
    // 2⁶⁴ mod 10 is 6: the last six words are refused.
    const last = (1n << 64n) - 1n;
    expect(Array.from(below(new GivenWords([last, last - 6n, 7n]), 10, 2))).toEqual([7, 9]);
  });
});

describe("rounding", () => {
  it.each(vectors<RoundingCase[]>("browser_rounding"))("grid $grid.order, wide $wide", (given) => {
    const numbers = given.vectors.map((value) => value ?? NaN);
    const made = given.wide ? Float64Array.from(numbers) : Float32Array.from(numbers);
    toLevels(given.grid, made);
    const levels = new Float64Array(fromBase64(given.levels).buffer);
    expect(apart(made, levels)).toBeLessThan(1e-6);
    const words = new GivenWords(given.words);
    const exact = given.wide ? levels : Float32Array.from(levels);
    expect(Array.from(roundChecked(given.grid, exact, words))).toEqual(given.rounded);
    expect(words.taken).toBe(given.words.length);
  });

  it("never lets a vector pass that is too long, whatever comes before", () => {
    const grid = { order: 2, size: 3, radius: 1, levels: 64, limit: 64 ** 2, per: "example" } as const;
    const found = roundChecked(grid, Float32Array.of(60, 60, 60, NaN, Infinity, 64), systemWords);
    expect(Array.from(found.subarray(0, 3))).toEqual([0, 0, 0]);
    expect(Array.from(found.subarray(3))).toEqual([0, 0, 64]);
  });
});
