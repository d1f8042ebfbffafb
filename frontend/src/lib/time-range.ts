/** The time range of charts: it is kept in the address and shared by the pages with charts. */

const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);

export const RANGES = ["15m", "1h", "6h", "1d", "7d", "30d", "90d"] as const;
export type Range = (typeof RANGES)[number];

export interface RangeSearch {
  /** Length of the range before now. */
  range?: Range;
  /** Start and end, set by dragging over a chart. */
  since?: string;
  until?: string;
}

const time = (value: unknown) => (Number.isNaN(Date.parse(text(value) ?? "")) ? undefined : text(value));

export function readRangeSearch(search: Record<string, unknown>): RangeSearch {
  const [since, until] = [time(search.since), time(search.until)];
  const zoomed = since !== undefined && until !== undefined && since < until;
  return {
    range: RANGES.find((one) => one === search.range),
    since: zoomed ? since : undefined,
    until: zoomed ? until : undefined,
  };
}

/** A time range as query parameters. */
export type RangeQuery = { range: Range } | { since: string; until: string };

export const rangeQuery = ({ range, since, until }: RangeSearch, otherwise: Range): RangeQuery =>
  since && until ? { since, until } : { range: range ?? otherwise };

const MINUTES: Record<Range, number> = {
  "15m": 15,
  "1h": 60,
  "6h": 360,
  "1d": 1440,
  "7d": 10_080,
  "30d": 43_200,
  "90d": 129_600,
};

const DAY_MS = 86_400_000;

/** Returns the number of UTC days from the start of the range to today, for data that is kept by the day. */
export function daysOf(range: RangeQuery, now: number): number {
  const since = "range" in range ? now - MINUTES[range.range] * 60_000 : Date.parse(range.since);
  return Math.min(366, Math.max(1, Math.floor(now / DAY_MS) - Math.floor(since / DAY_MS) + 1));
}

/** Returns the polling interval: a range that ended long ago does not change. */
export const refreshEvery = (range: RangeQuery): number | false =>
  "range" in range ? (MINUTES[range.range] <= 360 ? 10_000 : 60_000) : false;

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const dayAndClock = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});
const utcDay = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** Returns the start of a step as text: whole days in UTC, other times in local time. */
export function stepLabel(at: number, stepS: number, spanS: number): string {
  if (stepS >= 86_400) return utcDay.format(at);
  return (spanS > 86_400 ? dayAndClock : clock).format(at);
}

export const between = (since: string, until: string) =>
  `${dayAndClock.format(Date.parse(since))} – ${dayAndClock.format(Date.parse(until))}`;

/** Returns the sentence below a chart's title, with the length of a step and the time zone of its labels. */
export const stepNote = (stepS: number) =>
  `Each step is ${stepName(stepS)}${stepS >= 86_400 ? "" : ", in your time zone"}. Drag over a chart to zoom.`;

/** Returns a duration in words: 60 is "a minute", 7200 is "2 hours". */
function stepName(stepS: number): string {
  if (stepS >= 86_400) return "a day (UTC)";
  const [count, unit] = stepS >= 3600 ? [stepS / 3600, "hour"] : [stepS / 60, "minute"];
  return count === 1 ? (unit === "hour" ? "an hour" : "a minute") : `${count} ${unit}s`;
}
