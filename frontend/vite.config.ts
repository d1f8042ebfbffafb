/// <reference types="vitest/config" />
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";
import { SLOWNESS, slowDownTimers } from "./tests/slowness.ts";

const backend = process.env.LORIKEET_API ?? "http://127.0.0.1:8000";
const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

/** The server checks Origin, so the development proxy speaks as the server's own origin. */
const proxied = { target: backend, changeOrigin: true, headers: { origin: backend } };

const COMPRESSED = /\.(js|css|html|svg|json|map)$/;

/** Beside each file of the bundle the same as .gz and .br: WhiteNoise serves what a browser accepts. */
function precompressed(): Plugin {
  return {
    name: "precompressed",
    apply: "build",
    async closeBundle() {
      const dist = path("./dist");
      for (const name of await readdir(dist, { recursive: true })) {
        if (!COMPRESSED.test(name) || name.startsWith(".vite")) continue;
        const file = `${dist}/${name}`;
        const content = await readFile(file);
        await writeFile(`${file}.gz`, gzipSync(content, { level: constants.Z_BEST_COMPRESSION }));
        await writeFile(`${file}.br`, brotliCompressSync(content));
      }
    },
  };
}

if (process.env.VITEST) slowDownTimers();

export default defineConfig({
  plugins: [react(), tailwindcss(), precompressed()],
  resolve: { alias: { "@": path("./src") } },
  build: {
    // Fonts and images stay files: the content security policy allows no data: fonts.
    assetsInlineLimit: 0,
    // The size check reads which chunks the first page needs from here.
    manifest: true,
    target: "es2022",
    rolldownOptions: {
      output: {
        // What many pages share comes in two files and not in forty: a browser fetches six of a server at a time.
        codeSplitting: {
          groups: [
            { name: "icons", test: /lucide/, minShareCount: 2 },
            { name: "common", test: /src/, minShareCount: 12, maxModuleSize: 8_000 },
          ],
        },
      },
    },
  },
  server: {
    proxy: {
      "/api": proxied,
      "/v1": proxied,
      "/static": proxied,
      "/version": proxied,
      "/ws": { ...proxied, ws: true },
    },
  },
  test: {
    environment: "jsdom",
    environmentOptions: { jsdom: { url: "http://console.test/" } },
    setupFiles: ["./tests/setup.ts"],
    include: ["src/**/*.test.{ts,tsx}"],
    // Its package names the browser's build in a field that only bundlers read.
    alias: { "tus-js-client": path("./node_modules/tus-js-client/lib.esm/browser/index.js") },
    restoreMocks: true,
    // One page for all files of a worker, as in a browser: to load React and the router for each file took half the time.
    isolate: false,
    testTimeout: 90_000 * SLOWNESS,
    hookTimeout: 90_000 * SLOWNESS,
    teardownTimeout: 10_000 * SLOWNESS,
  },
});
