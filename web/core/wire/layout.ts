/**
 * The one legal shape of a message: a safetensors file with a header that is fixed for the task.
 *
 * A stranger's header is never parsed: its bytes are compared with those that the signed task names, then numbers are
 * read at known places.
 */

import { require } from "../refusal.js";
import { joined, utf8, type Bytes } from "./bytes.js";

export interface Field {
  readonly path: string;
  readonly dtype: "F32" | "I32" | "I64";
  readonly shape: readonly number[];
  readonly count: number;
  /** Where in the body its numbers begin. */
  readonly at: number;
}

export class Layout {
  readonly header: Bytes;
  readonly fields: readonly Field[];
  readonly size: number;

  /** Take the header that the operator signed, without the eight bytes of its length. */
  constructor(text: string) {
    const bytes = utf8(text);
    const length = new Uint8Array(8);
    new DataView(length.buffer).setUint32(0, bytes.length, true);
    this.header = joined(length, bytes);
    const entries = Object.entries(JSON.parse(text) as Record<string, { dtype: string; shape: number[] }>);
    let at = this.header.length;
    this.fields = entries.map(([path, { dtype, shape }]) => {
      require(dtype === "F32" || dtype === "I32" || dtype === "I64", `the wire does not carry ${dtype}`);
      const count = shape.reduce((product, size) => product * size, 1);
      require(Number.isSafeInteger(count) && count >= 0, `${path} has no shape`);
      const field = { path, dtype, shape, count, at } as const;
      at += count * (dtype === "I64" ? 8 : 4);
      return field;
    });
    this.size = at;
  }

  /** Read a message, or refuse it: numbers by path. */
  decode(body: Uint8Array): Map<string, Float32Array | Int32Array | number> {
    require(body.length === this.size, `the body has ${body.length} bytes, ${this.size} were expected`);
    require(this.header.every((byte, at) => body[at] === byte), "the header is not the one of this task");
    const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
    return new Map(this.fields.map((field) => [field.path, read(view, field)]));
  }

  /** Write a message: numbers by path. */
  encode(values: ReadonlyMap<string, ArrayLike<number>>): Bytes {
    const body = joined(this.header, new Uint8Array(this.size - this.header.length));
    const view = new DataView(body.buffer);
    for (const { path, dtype, count, at } of this.fields) {
      const numbers = values.get(path);
      if (numbers?.length !== count) throw new RangeError(`${path} should have ${count} numbers`);
      for (let index = 0; index < count; index++) {
        const value = numbers[index]!;
        if (dtype === "F32") view.setFloat32(at + 4 * index, value, true);
        else if (dtype === "I32") view.setInt32(at + 4 * index, value, true);
        else view.setBigInt64(at + 8 * index, BigInt(value), true);
      }
    }
    return body;
  }
}

/** A whole number of 64 bits beyond 2⁵³ is of no use to anybody here; it comes as the nearest number. */
function read(view: DataView, { path, dtype, count, at }: Field): Float32Array | Int32Array | number {
  if (dtype === "I64") return Number(view.getBigInt64(at, true));
  const made = dtype === "F32" ? new Float32Array(count) : new Int32Array(count);
  for (let index = 0; index < count; index++) {
    const place = at + 4 * index;
    made[index] = dtype === "F32" ? view.getFloat32(place, true) : view.getInt32(place, true);
  }
  require(made.every(Number.isFinite), `${path} holds a number that is not finite`);
  return made;
}
