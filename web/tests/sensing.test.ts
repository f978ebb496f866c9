/** Rows from sensors are those that Python makes of the same readings and strokes. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { digitRow, type Stroke } from "../sensing/digit.js";
import { BINS, Keeper, Motion, spectrum } from "../sensing/motion.js";

interface Vectors {
  motion: { name: string; seconds: number[]; acceleration: [number, number, number][]; rows: number[][] }[];
  digits: { strokes: Stroke[]; row: number[] }[];
}
const vectors = JSON.parse(
  readFileSync(new URL("../../tests/vectors/sensing.json", import.meta.url), "utf8"),
) as Vectors;

test.each(vectors.motion)("rows of a recording: $name", ({ seconds, acceleration, rows }) => {
  const made: Float32Array[] = [];
  const motion = new Motion((row) => made.push(row));
  seconds.forEach((at, place) => motion.push(at, ...acceleration[place]!));
  expect(made.length).toBe(rows.length);
  made.forEach((row, window) => {
    rows[window]!.forEach((value, bin) => {
      expect(Math.abs(row[bin]! - value)).toBeLessThanOrEqual(1e-6 * Math.abs(value) + 2e-5);
      expect(row[(BINS - bin) % BINS]).toBe(row[bin]);
    });
  });
});

test.each(vectors.digits.map((one, at) => ({ ...one, at })))("row of drawing $at", ({ strokes, row }) => {
  expect([...digitRow(strokes)]).toEqual(row);
});

test("a silent reading changes nothing, and a restart begins anew", () => {
  const made: Float32Array[] = [];
  const motion = new Motion((row) => made.push(row));
  for (let at = 0; at < 150; at++) motion.push(at / 60, 0, 0, 9.81);
  motion.push(Number.NaN, 0, 0, 1);
  motion.push(2.5, Number.NaN, 0, 1);
  motion.restart();
  for (let at = 150; at < 350; at++) motion.push(at / 60, 0, 0, 9.81);
  expect(made.length).toBe(0);
  for (let at = 350; at < 360; at++) motion.push(at / 60, 0, 0, 9.81);
  expect(made.length).toBe(1);
  expect(made[0]![0]! / BINS).toBeCloseTo(9.81, 4);
});

test("a spectrum has its peak at the bin of its wave", () => {
  const row = spectrum(Array.from({ length: BINS }, (_, at) => Math.cos((2 * Math.PI * 6 * at) / BINS)));
  expect(row.indexOf(Math.max(...row))).toBe(6);
  expect(row[6]).toBeCloseTo(BINS / 2, 4);
});

test("windows are kept once in a slot, or once after a change of label", () => {
  const slots = new Keeper("slots", 10);
  expect([0, 3.2, 6.4, 10.1, 13].map((at) => slots.takes(at, 0))).toEqual([true, false, false, true, false]);
  const changes = new Keeper("label-change", 3.2);
  expect([0, 0, 1, 1, 0].map((label, at) => changes.takes(3.2 * at, label))).toEqual([true, false, true, false, true]);
});
