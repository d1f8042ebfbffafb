import { Progress } from "@/components/bars";
import { cn } from "@/lib/cn";
import { bytes, number, percent, short } from "@/lib/format";

export type LimitName =
  | "requests_per_minute"
  | "tokens_per_minute"
  | "tokens_per_day"
  | "tokens_per_month"
  | "concurrency"
  | "adapters"
  | "storage_bytes";

export const LIMITS: Record<LimitName, { label: string; note: string }> = {
  requests_per_minute: { label: "Requests per minute", note: "in the last 60 seconds" },
  tokens_per_minute: {
    label: "Tokens per minute",
    note: "in the last 60 seconds, with all that running requests may use",
  },
  tokens_per_day: { label: "Tokens today", note: "since midnight UTC" },
  tokens_per_month: { label: "Tokens this month", note: "since the first, UTC" },
  concurrency: { label: "Concurrent choices", note: "running now" },
  adapters: { label: "Adapters", note: "not archived" },
  storage_bytes: { label: "Storage", note: "content of versions that are not archived" },
};

const NEARLY = 0.8;

/** The usage against one limit. There is no bar without a limit, and no figure without a count. */
export function LimitMeter({ name, used, allowed }: { name: LimitName; used: number | null; allowed: number | null }) {
  const { label, note } = LIMITS[name];
  const show = name === "storage_bytes" ? bytes : short;
  const full = used !== null && allowed !== null && used >= allowed;
  const near = used !== null && allowed !== null && used >= allowed * NEARLY;
  return (
    <div className="grid content-start gap-1.5 bg-surface px-4 py-3.5">
      <dt className="text-xs text-ink-3">{label}</dt>
      <dd
        className="tnum flex items-baseline gap-1.5 text-lg font-semibold tracking-tight"
        title={used === null ? undefined : number(used)}
      >
        {used === null ? <span className="text-ink-3">–</span> : show(used)}
        <span className="text-sm font-normal text-ink-3">{allowed === null ? "no limit" : `of ${show(allowed)}`}</span>
      </dd>
      {allowed !== null && used !== null && (
        <dd>
          <Progress
            label={`${label}: ${percent(used, allowed)} used`}
            value={used}
            max={Math.max(allowed, 1)}
            tone={near ? "danger" : "accent"}
          />
        </dd>
      )}
      <dd className={cn("text-xs", full ? "text-danger-text" : "text-ink-3")}>
        {full ? "used up: further requests are refused" : used === null ? "not counted because it has no limit" : note}
      </dd>
    </div>
  );
}
