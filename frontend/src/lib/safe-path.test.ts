// @vitest-environment node
import { describe, expect, it } from "vitest";
import { safePath } from "./safe-path";

describe("safePath", () => {
  it.each([
    ["/t/acme/keys?x=1", "/t/acme/keys?x=1"],
    ["//evil.example", "/"],
    ["/\\evil.example", "/"],
    ["https://evil.example", "/"],
    [undefined, "/"],
  ])("%s leads to %s", (next, path) => expect(safePath(next)).toBe(path));
});
