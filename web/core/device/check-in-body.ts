/** The bytes of a check-in. */

import type { CheckIn } from "../numerics/contribution.js";
import type { Bytes } from "../wire/bytes.js";
import type { Layout } from "../wire/layout.js";

/** Write a check-in that started from a version, in the layout of its task. */
export function checkInBody(layout: Layout, version: number, made: CheckIn): Bytes {
  const values = new Map<string, ArrayLike<number>>([
    ["version", [version]],
    ["content/weight", [made.weight]],
  ]);
  let at = 0;
  for (const { path, count } of layout.fields) {
    if (!path.startsWith("content/update/")) continue;
    values.set(path, made.update.subarray(at, at + count));
    at += count;
  }
  for (const [name, value] of Object.entries(made.counts ?? {})) {
    values.set(`content/counts/${name}`, typeof value === "number" ? [value] : value);
  }
  return layout.encode(values);
}
