/** A batch: rows a device works on in one release, with what each is mapped to; padding counts for nothing. */

import type { Vector } from "./losses.js";

export class Batch {
  /**
   * @param rows Rows one behind the other, as the model sees them.
   * @param targets Class numbers, or encoded numbers.
   * @param mask 1 for a real row, 0 for padding.
   */
  constructor(
    readonly rows: Vector,
    readonly targets: Float32Array,
    readonly mask: Float64Array,
  ) {}

  get count(): number {
    return this.mask.length;
  }

  /** Number of rows that are no padding. */
  get real(): number {
    return this.mask.reduce((sum, mark) => sum + mark, 0);
  }

  /** The same with other numbers in its rows. */
  with(rows: Vector): Batch {
    return new Batch(rows, this.targets, this.mask);
  }

  /** Cut into parts of so many rows. */
  parts(size: number): Batch[] {
    const width = this.rows.length / this.count;
    const made: Batch[] = [];
    for (let at = 0; at < this.count; at += size) {
      const rows = this.rows.subarray(at * width, (at + size) * width);
      made.push(new Batch(rows, this.targets.subarray(at, at + size), this.mask.subarray(at, at + size)));
    }
    return made;
  }

  /** Take some rows, in an order, and pad them with rows that do not count. */
  static of(table: readonly { x: Float32Array; y: number }[], order: readonly number[], width: number): Batch {
    const features = table[0]!.x.length;
    const rows = new Float32Array(width * features);
    const targets = new Float32Array(width);
    const mask = new Float64Array(width);
    for (let at = 0; at < width; at++) {
      const row = table[order[at] ?? 0]!; // as in Python, padding repeats a row and is masked
      rows.set(row.x, at * features);
      targets[at] = row.y;
      mask[at] = at < order.length ? 1 : 0;
    }
    return new Batch(rows, targets, mask);
  }
}
