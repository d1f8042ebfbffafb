import "@testing-library/jest-dom/vitest";
import { cleanup, configure } from "@testing-library/react";
import { Blob as NodeBlob, File as NodeFile } from "node:buffer";
import { afterAll, afterEach, beforeAll, vi } from "vitest";
import { setPreferences } from "@/app/preferences";
import { server } from "./server";
import { slowDownTimers } from "./slowness";

// jsdom's Blob has no stream(), which inspection reads through; Node's has, and its FormData takes Node's files.
const { constructor: NodeFormData } = await new Response(new URLSearchParams()).formData();
Object.assign(globalThis, { Blob: NodeBlob, File: NodeFile, FormData: NodeFormData });
Object.defineProperty(NodeFile.prototype, "webkitRelativePath", { value: "", configurable: true });

slowDownTimers();

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
