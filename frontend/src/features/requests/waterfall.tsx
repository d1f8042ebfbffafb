import type { RequestRecord } from "@/api/types";
import { cn } from "@/lib/cn";
import { milliseconds } from "@/lib/format";
import { parts, totalMs } from "./timings";

/** The phases of a request one after another, each from where the one before ended, and when the first token came. */
export function Waterfall({ row }: { row: RequestRecord }) {
  const total = Math.max(1, totalMs(row));
  const firstToken = row.first_token_ms > 0 && row.first_token_ms <= total ? row.first_token_ms : null;
  const phases = parts(row).map((part, index, all) => ({
    ...part,
    from: all.slice(0, index).reduce((sum, before) => sum + before.value, 0),
  }));
  return (
    <dl className="grid gap-1.5" data-testid="waterfall">
      {phases.map((phase) => (
        <div key={phase.key} className="grid grid-cols-[6.5rem_minmax(0,1fr)_8.5rem] items-center gap-3 text-xs">
          <dt className="text-ink-2">{phase.label}</dt>
          <dd className="relative h-3 rounded-sm bg-fill-2" aria-hidden>
            <span className={cn("absolute inset-y-0 rounded-sm", phase.className)} style={{ left: `${(phase.from / total) * 100}%`, width: `max(${phase.value > 0 ? 2 : 0}px, ${(phase.value / total) * 100}%)` }} />
            {firstToken !== null && <span className="absolute -inset-y-0.5 w-px bg-ink" style={{ left: `${(firstToken / total) * 100}%` }} />}
          </dd>
          <dd className="tnum text-right whitespace-nowrap text-ink-2">
            {milliseconds(phase.value)} <span className="text-ink-3">at {milliseconds(phase.from)}</span>
          </dd>
        </div>
      ))}
      {firstToken !== null && (
        <div className="flex gap-2 text-xs text-ink-3">
          <dt>First token (the line)</dt>
          <dd className="tnum">at {milliseconds(firstToken)}</dd>
        </div>
      )}
    </dl>
  );
}
