/**
 * Parts of the device that not every phone needs: loaded when they are, by the hash that this script names.
 *
 * A page names the hash of this script; what this script loads has none unless it is named here. The build writes the
 * hashes in. Once an element has loaded a module with its hash, importing the same address gives that very module.
 */

import { h } from "./dom.js";

/** Hashes of the parts by name; the build replaces each by that of the file. */
const HASHES = {
  activity: "integrity of activity",
  drawing: "integrity of drawing",
  owner: "integrity of owner",
  "rows-file": "integrity of rows-file",
};

const PARTS = {
  activity: () => import("./activity.js"),
  drawing: () => import("./drawing.js"),
  owner: () => import("./owner.js"),
  "rows-file": () => import("./rows-file.js"),
};

/** Load a part, or refuse one that is not what this release was built with. */
export async function part<Name extends keyof typeof PARTS>(
  name: Name,
): Promise<Awaited<ReturnType<(typeof PARTS)[Name]>>> {
  await new Promise((resolve, reject) => {
    const src = import.meta.url.replace(/[^/]*$/, `${name}.js`); // as a URL the build would take it for its own
    const onerror = (): void =>
      reject(new Error("a part of this page did not load: reload it when there is a network"));
    document.head.append(h("script", { type: "module", src, integrity: HASHES[name], onload: resolve, onerror }));
  });
  return PARTS[name]() as Promise<Awaited<ReturnType<(typeof PARTS)[Name]>>>;
}
