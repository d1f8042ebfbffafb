import type { UsageReport } from "@/api/types";
import { milliseconds } from "@/lib/format";

type Latency = UsageReport["latency"];

const ROWS: [metric: keyof Latency, label: string][] = [
  ["first_token", "To the first token"],
  ["inter_token", "Inter-token"],
];
const SHARES = ["p50_ms", "p95_ms", "p99_ms"] as const;

const shown = (value: number | null) =>
  value === null ? "–" : value < 10 ? `${value.toFixed(1)} ms` : milliseconds(value);

/** A table of latency percentiles, computed from counts in buckets. */
export function LatencyTable({ latency }: { latency: Latency }) {
  return (
    <table className="w-full text-left text-sm">
      <caption className="sr-only">Latency percentiles</caption>
      <thead>
        <tr className="text-xs text-ink-3">
          <th scope="col" className="px-4 py-2 font-medium">
            <span className="sr-only">Metric</span>
          </th>
          {SHARES.map((share) => (
            <th key={share} scope="col" className="px-4 py-2 text-right font-medium uppercase">
              {share.replace("_ms", "")}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {ROWS.map(([metric, label]) => (
          <tr key={metric} className="border-t">
            <th scope="row" className="px-4 py-2.5 font-normal">
              {label}
            </th>
            {SHARES.map((share) => (
              <td key={share} className="tnum px-4 py-2.5 text-right font-medium whitespace-nowrap">
                {shown(latency[metric][share])}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
