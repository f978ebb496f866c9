/**
 * Builds the browser device into the server's static files, which are committed: the same bytes from the same sources.
 * A new page's script is one more line of `entries`.
 */

import { defineConfig } from "vite";

const only = process.env["CROWDML_WEB_ENTRY"]; // to measure or try one part
const entries: Record<string, string> = only
  ? { only }
  : {
      "device-core": "core/index.ts",
    };

export default defineConfig({
  publicDir: false,
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
      preserveEntrySignatures: "strict",
      output: { entryFileNames: "[name].js", chunkFileNames: "[name].js", assetFileNames: "[name][extname]" },
    },
  },
  test: { include: ["tests/**/*.test.ts"], pool: "threads" },
} as Parameters<typeof defineConfig>[0]);
