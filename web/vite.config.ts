/**
 * Builds the browser device into the server's static files, which are committed: the same bytes from the same sources.
 * A page names the hash of `device.js`, and that names the hashes of the parts it loads when they are needed.
 */

import { createHash } from "node:crypto";

import { defineConfig, type Plugin } from "vite";

const only = process.env["CROWDML_WEB_ENTRY"]; // to measure or try one part
const parts = ["activity", "drawing", "owner", "rows-file"];
const entries: Record<string, string> = only ? { only } : { device: "app/main.ts" };

/** Write the hashes of the parts into the script that loads them. */
const hashes: Plugin = {
  name: "hashes",
  generateBundle(_, bundle) {
    const main = bundle["device.js"];
    if (main?.type !== "chunk") return;
    for (const part of parts) {
      const made = bundle[`${part}.js`];
      if (made?.type !== "chunk") throw new Error(`there is no part ${part}`);
      const hash = `sha384-${createHash("sha384").update(made.code).digest("base64")}`;
      if (!main.code.includes(`integrity of ${part}`)) throw new Error(`device.js names no hash of ${part}`);
      main.code = main.code.replace(`integrity of ${part}`, hash);
    }
    const others = Object.keys(bundle).filter((name) => ![...parts, "device"].includes(name.replace(/\.js$/, "")));
    if (others.length) throw new Error(`these would be loaded without a hash: ${others.join(", ")}`);
  },
};

/** Parts have no styles to preload: what the build would add for that is replaced by a call. */
const plainImports: Plugin = {
  name: "plain-imports",
  enforce: "pre",
  load: (id) => (id.includes("vite/preload-helper") ? "export const __vitePreload = (load) => load();" : null),
};

export default defineConfig({
  publicDir: false,
  plugins: [plainImports, hashes],
  build: {
    outDir: process.env["CROWDML_WEB_OUT"] ?? "../src/crowdml/server/pages/static",
    emptyOutDir: false,
    target: "es2022",
    modulePreload: false,
    sourcemap: false,
    minify: true,
    reportCompressedSize: false,
    rollupOptions: {
      input: entries,
      preserveEntrySignatures: "allow-extension",
      output: { entryFileNames: "[name].js", chunkFileNames: "[name].js", assetFileNames: "[name][extname]" },
    },
  },
  test: { include: ["tests/**/*.test.ts"], pool: "threads", testTimeout: 120_000, hookTimeout: 120_000 },
} as Parameters<typeof defineConfig>[0]);
