/**
 * Builds the browser device into the server's static files, which are committed: the same bytes from the same sources.
 * A script is one file, the engine included: a page names the hash of what it loads, and what that would load has none.
 */

import { defineConfig } from "vite";

const only = process.env["CROWDML_WEB_ENTRY"]; // to measure or try one part
const entries: Record<string, string> = only ? { only } : { device: "app/main.ts" };

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
