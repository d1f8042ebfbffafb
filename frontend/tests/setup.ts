import "@testing-library/jest-dom/vitest";
import { cleanup, configure } from "@testing-library/react";
import { Blob as NodeBlob, File as NodeFile } from "node:buffer";
import { afterAll, afterEach, beforeAll, vi } from "vitest";
import { setPreferences } from "@/app/preferences";
import { server } from "./server";
import { SLOWNESS } from "./slowness";

// jsdom's Blob has no stream(), which inspection reads through; Node's has, and its FormData takes Node's files.
const { constructor: NodeFormData } = await new Response(new URLSearchParams()).formData();
Object.assign(globalThis, { Blob: NodeBlob, File: NodeFile, FormData: NodeFormData });
Object.defineProperty(NodeFile.prototype, "webkitRelativePath", { value: "", configurable: true });

// This file runs once for every test file of a worker.
if (SLOWNESS > 1 && globalThis.setTimeout.name !== "slowTimeout") {
  const { setTimeout, setInterval } = globalThis;
  const slowTimeout = (run: () => void, ms = 0, ...rest: []) => setTimeout(run, ms * SLOWNESS, ...rest);
  const slowInterval = (run: () => void, ms = 0, ...rest: []) => setInterval(run, ms * SLOWNESS, ...rest);
  Object.assign(globalThis, { setTimeout: slowTimeout, setInterval: slowInterval });
}

if (typeof Element !== "undefined") {
  configure({ asyncUtilTimeout: 30_000 });
  Element.prototype.scrollIntoView = () => {};
  globalThis.scrollTo = () => {};
  globalThis.matchMedia = (query) =>
    Object.assign(new EventTarget(), { matches: false, media: query }) as unknown as MediaQueryList;
  globalThis.ResizeObserver = class {
    observe() {}
    unobserve() {}
    disconnect() {}
  };
  setPreferences({ theme: "light" });
}

beforeAll(() => server.listen({ onUnhandledRequest: "error" }));
afterEach(() => {
  vi.useRealTimers();
  cleanup();
  globalThis.sessionStorage?.clear();
  server.resetHandlers();
});
afterAll(() => server.close());
