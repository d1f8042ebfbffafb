import type { ReactNode } from "react";
import type { RequestRecord } from "@/api/types";
import { cn } from "@/lib/cn";
import { milliseconds, plural } from "@/lib/format";
import { gatewayMs, parts, totalMs } from "./timings";

interface Span {
  from: number;
  ms: number;
}

const TIERS: Record<string, string> = { disk: "Adapter from disk", host: "Adapter from memory" };

/**
 * The phases of a request one after another, each from where the one before ended; when the first token came; and when it
 * was out of the batch for others, which is within the phases.
 */
export function Waterfall({ row }: { row: RequestRecord }) {
  const total = Math.max(1, totalMs(row));
  const before = gatewayMs(row);
  const first = before + row.first_token_ms;
  const firstToken = row.first_token_ms > 0 && first <= total ? first : null;
  const phases = parts(row).map((part, index, all) => ({
    ...part,
    label: part.key === "load" ? (TIERS[row.adapter_loaded_from] ?? part.label) : part.label,
    from: all.slice(0, index).reduce((sum, earlier) => sum + earlier.value, 0),
  }));
  const away = row.preemption_spans.map((span) => ({ from: before + span.at_ms, ms: span.ms }));
  return (
    <dl className="grid gap-1.5" data-testid="waterfall">
      {phases.map((phase) => (
        <Line
          key={phase.key}
          label={phase.label}
          spans={[{ from: phase.from, ms: phase.value }]}
          total={total}
          mark={firstToken}
          className={phase.className}
        >
          {milliseconds(phase.value)} <span className="text-ink-3">at {milliseconds(phase.from)}</span>
        </Line>
      ))}
      {row.preemptions > 0 && (
        <Line
          label={`Pre-empted ${plural(row.preemptions, "time")}`}
          spans={away}
          total={total}
          mark={firstToken}
          className="bg-danger"
        >
          {milliseconds(row.preempted_ms)}
          {away[0] && <span className="text-ink-3"> at {milliseconds(away[0].from)}</span>}
        </Line>
      )}
      {away.length > 1 && (
        <div className="flex flex-wrap gap-x-2 text-xs text-ink-3">
          <dt>Each</dt>
          <dd className="tnum">
            {away.map((span) => `${milliseconds(span.ms)} at ${milliseconds(span.from)}`).join(", ")}
          </dd>
        </div>
      )}
      {firstToken !== null && (
        <div className="flex gap-2 text-xs text-ink-3">
          <dt>First token (the line)</dt>
          <dd className="tnum">at {milliseconds(firstToken)}</dd>
        </div>
      )}
    </dl>
  );
}

interface LineProps {
  label: string;
  spans: Span[];
  total: number;
  mark: number | null;
  className: string;
  children: ReactNode;
}

function Line({ label, spans, total, mark, className, children }: LineProps) {
  const share = (ms: number) => `${Math.min(100, (ms / total) * 100)}%`;
  return (
    <div className="grid grid-cols-[8.5rem_minmax(0,1fr)_8.5rem] items-center gap-3 text-xs max-sm:grid-cols-[7rem_minmax(0,1fr)_7rem] max-sm:gap-2">
      <dt className="text-ink-2">{label}</dt>
      <dd className="relative h-3 overflow-x-clip rounded-sm bg-fill-2" aria-hidden>
        {spans.map(({ from, ms }, index) => (
          <span
            key={index}
            className={cn("absolute inset-y-0 rounded-sm", className)}
            style={{ left: share(from), width: `max(${ms > 0 ? 2 : 0}px, ${share(ms)})` }}
          />
        ))}
        {mark !== null && <span className="absolute -inset-y-0.5 w-px bg-ink" style={{ left: share(mark) }} />}
      </dd>
      <dd className="tnum text-right whitespace-nowrap text-ink-2">{children}</dd>
    </div>
  );
}
