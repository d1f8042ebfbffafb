const whole = new Intl.NumberFormat("en-US");
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const dayFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const dayOfYearFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const utcDayFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
const utcDayOfYearFormat = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  year: "numeric",
  timeZone: "UTC",
});
const fullFormat = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
});

export const number = (value: number) => whole.format(value);

/** Returns a number in full below ten thousand, and abbreviated above: 12.3K. */
export const short = (value: number) => (Math.abs(value) < 10_000 ? whole.format(value) : compact.format(value));

const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB"] as const;

/** Returns decimal bytes with three significant digits: 4.21 MB. */
export function bytes(value: number): string {
  const rounded = Number(value.toPrecision(3));
  if (rounded < 1000) return `${Math.round(value)} B`;
  const power = Math.min(BYTE_UNITS.length - 1, Math.floor(Math.log10(rounded) / 3));
  const scaled = value / 1000 ** power;
  const digits = scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return `${scaled.toFixed(digits)} ${BYTE_UNITS[power]}`;
}

const UNIT_SIZES: Record<string, number> = {
  "": 1,
  b: 1,
  k: 1e3,
  kb: 1e3,
  m: 1e6,
  mb: 1e6,
  g: 1e9,
  gb: 1e9,
  t: 1e12,
  tb: 1e12,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
};

/** Parses a size such as "10 GiB", "500 MB", "1,5 TB" or "4096"; returns null for other text. */
export function parseBytes(text: string): number | null {
  const match = /^\s*(\d{1,15}(?:[.,]\d{1,6})?)\s*([a-z]{0,3})\s*$/i.exec(text);
  const size = UNIT_SIZES[match?.[2]?.toLowerCase() ?? "none"];
  if (!match?.[1] || size === undefined) return null;
  const value = Math.round(Number(match[1].replace(",", ".")) * size);
  return value <= 1e15 ? value : null;
}

/** Returns an exact size for an input: in the largest unit in which it is short, or else in bytes. */
export function typedBytes(value: number): string {
  const units = [
    ["TiB", 2 ** 40],
    ["TB", 1e12],
    ["GiB", 2 ** 30],
    ["GB", 1e9],
    ["MiB", 2 ** 20],
    ["MB", 1e6],
    ["KiB", 2 ** 10],
    ["kB", 1e3],
  ] as const;
  const fits = ([, size]: (typeof units)[number]) => value >= size && (value * 100) % size === 0;
  const best = units
    .filter(fits)
    .toSorted((a, b) => String(value / a[1]).length - String(value / b[1]).length || b[1] - a[1])[0];
  return best ? `${value / best[1]} ${best[0]}` : String(value);
}

export const rate = (bytesPerSecond: number) => `${bytes(bytesPerSecond)}/s`;

/** Returns a number of parameters: 1.2M, 84K. */
export const params = (value: number) => compact.format(value);

/** Returns milliseconds as text: 8 ms, 340 ms, 1.42 s, 2 min 3 s. */
export function milliseconds(value: number): string {
  if (Math.round(value) < 1000) return `${Math.round(value)} ms`;
  if (value < 59_950) return `${(value / 1000).toFixed(value < 9_995 ? 2 : 1)} s`;
  const seconds = Math.round(value / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** Returns the remaining seconds, rounded up so that the last second is not "0 s". */
export function eta(seconds: number): string {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return `${Math.max(1, Math.ceil(seconds))} s left`;
  if (seconds < 3600) return `${Math.ceil(seconds / 60)} min left`;
  return `${(seconds / 3600).toFixed(1)} h left`;
}

/** Returns a date such as "2026-05-04", which the server means in UTC, as text: 4 May, in every time zone. */
export const day = (date: string) => utcDayFormat.format(new Date(date));

/** Returns a span of such dates, with years unless both ends are in the present one: 27 Dec 2027 – 2 Jan 2028. */
export function daySpan(first: string, last: string, now: number = Date.now()): string {
  const year = new Date(now).getUTCFullYear();
  const format = [first, last].every((date) => new Date(date).getUTCFullYear() === year)
    ? utcDayFormat
    : utcDayOfYearFormat;
  return `${format.format(new Date(first))} – ${format.format(new Date(last))}`;
}

/** Returns a time as text, in the reader's time zone and with its name: 4 May 2026, 10:00:00 UTC. */
export const fullTime = (iso: string) => fullFormat.format(new Date(iso));

const STEPS: [limit: number, size: number, unit: string][] = [
  [60, 1, "s"],
  [3600, 60, "min"],
  [86_400, 3600, "h"],
  [86_400 * 30, 86_400, "d"],
];

/** Returns "just now", "4 min ago" or "2 d ago", and the date for older times, with the year if it is another one. */
export function ago(iso: string, now: number = Date.now()): string {
  const seconds = Math.max(0, (now - Date.parse(iso)) / 1000);
  if (seconds < 5) return "just now";
  const step = STEPS.find(([limit]) => seconds < limit);
  if (step) return `${Math.floor(seconds / step[1])} ${step[2]} ago`;
  const date = new Date(iso);
  return (date.getFullYear() === new Date(now).getFullYear() ? dayFormat : dayOfYearFormat).format(date);
}

/** Returns a share as a percentage. Only exact values are shown as 0 % or 100 %. */
export function percent(part: number, total: number): string {
  if (total === 0) return "0%";
  const value = (part / total) * 100;
  if (value > 0 && value < 1) return "<1%";
  if (value > 99 && value < 100) return ">99%";
  return `${Math.round(value)}%`;
}

/** Returns a digest "sha256:abcdef…" shortened to its first twelve hexadecimal digits. */
export const shortDigest = (digest: string) => digest.replace(/^sha256:/, "").slice(0, 12);

/** Returns the first letter of a name as it is seen; an emoji is one, of how many code units it may consist. */
export const initial = (name: string) => [...new Intl.Segmenter().segment(name)][0]?.segment ?? "";

export const plural = (count: number, one: string, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** Returns millionths of a currency as money, with as many digits as a small amount needs: $12.34, $0.00042. Without
 * prices, or for null, the cost of requests that had none, it is "–". */
export function money(micros: number | null, currency: string | null): string {
  if (micros === null || currency === null) return "–";
  const value = micros / 1e6;
  const digits =
    value === 0 || Math.abs(value) >= 1 ? 2 : Math.min(6, Math.max(2, 1 - Math.floor(Math.log10(Math.abs(value)))));
  const format = new Intl.NumberFormat("en-US", {
    style: "currency",
    currency,
    minimumFractionDigits: 2,
    maximumFractionDigits: digits,
  });
  return format.format(value);
}

/** Returns microseconds of device time as text: 84 ms, 12.4 s, 3.2 h. */
export function deviceTime(us: number): string {
  if (us < 60_000_000) return milliseconds(us / 1000);
  return us < 3_600_000_000 ? `${(us / 60_000_000).toFixed(1)} min` : `${number(Math.round(us / 360_000_000) / 10)} h`;
}
