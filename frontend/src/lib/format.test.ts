// @vitest-environment node
import { describe, expect, it, vi } from "vitest";
import {
  ago,
  bytes,
  daySpan,
  eta,
  initial,
  milliseconds,
  parseBytes,
  percent,
  shortDigest,
  typedBytes,
} from "./format";

describe("format", () => {
  it.each([
    [0, "0 B"],
    [999, "999 B"],
    [1_000, "1.00 kB"],
    [9_996, "10.0 kB"],
    [999_600, "1.00 MB"],
    [12_345_678, "12.3 MB"],
    [2_147_483_648, "2.15 GB"],
  ])("shows %d bytes as %s", (value, text) => expect(bytes(value)).toBe(text));

  it.each([
    ["10 GiB", 10 * 2 ** 30],
    ["500 MB", 500e6],
    ["1.5gb", 1.5e9],
    ["1,5 TiB", 1.5 * 2 ** 40],
    [" 4096 ", 4096],
    ["2k", 2000],
    ["0", 0],
  ])("reads %j as %d bytes", (text, value) => expect(parseBytes(text)).toBe(value));

  it.each(["", "GB", "ten GB", "-1 MB", "1 PB", "1 2 MB", "1e9", "9999999 TB", "1.2.3 MB"])(
    "reads no size in %j",
    (text) => expect(parseBytes(text)).toBeNull(),
  );

  it.each([
    [10 * 2 ** 30, "10 GiB"],
    [500e6, "500 MB"],
    [1.5e9, "1.5 GB"],
    [0, "0"],
    [5000, "5 kB"],
    [12_345_678_901, "12345678901"],
  ])("types %d bytes as %s, to the byte", (value, text) => {
    expect(typedBytes(value)).toBe(text);
    expect(parseBytes(text)).toBe(value);
  });

  it.each([
    [8.4, "8 ms"],
    [999.7, "1.00 s"],
    [59_980, "1 min 0 s"],
    [1420, "1.42 s"],
    [12_340, "12.3 s"],
    [123_000, "2 min 3 s"],
    [119_700, "2 min 0 s"],
  ])("shows %d ms as %s", (value, text) => expect(milliseconds(value)).toBe(text));

  it.each([
    ["ada@example.org", "a"],
    ["🦜 parrots", "🦜"],
    ["👩‍👩‍👧‍👦 family", "👩‍👩‍👧‍👦"],
    ["", ""],
  ])("takes the first letter of %j", (name, letter) => expect(initial(name)).toBe(letter));

  it.each([
    ["2028-02-21", "2028-02-27", "21 Feb – 27 Feb"],
    ["2027-12-27", "2028-01-02", "27 Dec 2027 – 2 Jan 2028"],
    ["2027-03-01", "2028-02-29", "1 Mar 2027 – 29 Feb 2028"],
    ["2027-11-01", "2027-11-07", "1 Nov 2027 – 7 Nov 2027"],
  ])("shows %s to %s as %s", (first, last, text) =>
    expect(daySpan(first, last, Date.parse("2028-02-29T23:30:00-05:00"))).toBe(text),
  );

  it("never claims none or all falsely", () => {
    expect([percent(0, 0), percent(1, 1000), percent(999, 1000), percent(1000, 1000), percent(1, 3)]).toEqual([
      "0%",
      "<1%",
      ">99%",
      "100%",
      "33%",
    ]);
  });

  it("tells time left and time past", () => {
    const now = Date.parse("2026-05-04T10:00:00Z");
    expect([eta(0.2), eta(59.5), eta(61), eta(Infinity)]).toEqual(["1 s left", "60 s left", "2 min left", ""]);
    expect([
      ago("2026-05-04T09:59:58Z", now),
      ago("2026-05-04T09:56:00Z", now),
      ago("2026-05-02T10:00:00Z", now),
      ago("2026-03-02T10:00:00Z", now),
      ago("2025-05-02T10:00:00Z", now),
    ]).toEqual(["just now", "4 min ago", "2 d ago", "2 Mar", "2 May 2025"]);
  });

  it("shows the server's days as they are, and times with their zone, in every time zone", async () => {
    vi.stubEnv("TZ", "America/Los_Angeles");
    vi.resetModules();
    const { day, fullTime } = await import("./format");
    expect(day("2026-11-01")).toBe("1 Nov");
    expect(fullTime("2026-11-01T05:00:00Z")).toBe("31 Oct 2026, 22:00:00 GMT-7");
    vi.unstubAllEnvs();
  });

  it("shortens a digest", () => expect(shortDigest(`sha256:${"ab".repeat(32)}`)).toBe("abababababab"));
});
