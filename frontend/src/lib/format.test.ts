// @vitest-environment node
import { describe, expect, it } from "vitest";
import { ago, bytes, eta, milliseconds, percent, shortDigest } from "./format";

describe("format", () => {
  it.each([
    [0, "0 B"],
    [999, "999 B"],
    [1_000, "1.00 kB"],
    [12_345_678, "12.3 MB"],
    [2_147_483_648, "2.15 GB"],
  ])("shows %d bytes as %s", (value, text) => expect(bytes(value)).toBe(text));

  it.each([
    [8.4, "8 ms"],
    [1420, "1.42 s"],
    [12_340, "12.3 s"],
    [123_000, "2 min 3 s"],
  ])("shows %d ms as %s", (value, text) => expect(milliseconds(value)).toBe(text));

  it("never claims none or all falsely", () => {
    expect([percent(0, 0), percent(1, 1000), percent(999, 1000), percent(1000, 1000), percent(1, 3)]).toEqual(["0%", "<1%", ">99%", "100%", "33%"]);
  });

  it("tells time left and time past", () => {
    const now = Date.parse("2026-05-04T10:00:00Z");
    expect([eta(0.2), eta(59.5), eta(61), eta(Infinity)]).toEqual(["1 s left", "60 s left", "2 min left", ""]);
    expect([ago("2026-05-04T09:59:58Z", now), ago("2026-05-04T09:56:00Z", now), ago("2026-05-02T10:00:00Z", now)]).toEqual(["just now", "4 min ago", "2 d ago"]);
  });

  it("shortens a digest", () => expect(shortDigest(`sha256:${"ab".repeat(32)}`)).toBe("abababababab"));
});
