import { useState } from "react";
import type { UsageReport } from "@/api/types";
import { cn } from "@/lib/cn";
import { day, number, short } from "@/lib/format";

type Day = UsageReport["by_day"][number];

const tokens = (row: Day) => row.prompt_tokens + row.completion_tokens;

/** Returns the next round number at or above `value`: 1, 2 or 5 times a power of ten. */
function niceCeiling(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((step) => step * power >= value) ?? 10) * power;
}

/**
 * Tokens by day as stacked bars. Hover and focus show the figure of a day; a table for screen readers has all figures.
 */
export function DayChart({ days }: { days: Day[] }) {
  const [shown, setShown] = useState<number | null>(null);
  const top = niceCeiling(Math.max(0, ...days.map(tokens)));
  const focus = shown === null ? undefined : days[shown];
  return (
    <figure>
      <figcaption className="mb-4 flex min-h-5 flex-wrap items-center gap-x-5 gap-y-1 text-xs text-ink-3">
        <Key className="bg-series-2" label="Prompt" value={focus && number(focus.prompt_tokens)} />
        <Key className="bg-series-1" label="Completion" value={focus && number(focus.completion_tokens)} />
        <span className="tnum ml-auto">
          {focus ? `${day(focus.date)}: ${number(focus.requests)} requests` : "tokens per day"}
        </span>
      </figcaption>
      <div className="grid grid-cols-[auto_1fr] gap-x-3">
        <Scale top={top} />
        <div className="relative h-48 border-b border-line-2">
          <div aria-hidden className="absolute inset-0 flex flex-col justify-between">
            <span className="border-t border-dashed" />
            <span className="border-t border-dashed" />
            <span />
          </div>
          <ul className="absolute inset-0 flex items-end gap-px sm:gap-1">
            {days.map((row, index) => (
              <Bar
                key={row.date}
                row={row}
                top={top}
                dim={shown !== null && shown !== index}
                onShow={() => setShown(index)}
                onHide={() => setShown(null)}
              />
            ))}
          </ul>
        </div>
        <span />
        <div className="mt-1.5 flex justify-between text-2xs text-ink-3">
          <span>{days[0] && day(days[0].date)}</span>
          <span>{days.length > 0 && day(days[days.length - 1]!.date)}</span>
        </div>
      </div>
    </figure>
  );
}

function Key({ className, label, value }: { className: string; label: string; value?: string }) {
  return (
    <span className="flex items-center gap-1.5">
      <span className={cn("size-2 rounded-[3px]", className)} />
      {label} {value && <span className="tnum font-medium text-ink">{value}</span>}
    </span>
  );
}

function Scale({ top }: { top: number }) {
  return (
    <div
      aria-hidden
      className="tnum flex h-48 flex-col justify-between text-right text-2xs text-ink-3 [&>span]:-translate-y-2"
    >
      <span>{short(top)}</span>
      <span>{short(top / 2)}</span>
      <span>0</span>
    </div>
  );
}

interface BarProps {
  row: Day;
  top: number;
  dim: boolean;
  onShow: () => void;
  onHide: () => void;
}

function Bar({ row, top, dim, onShow, onHide }: BarProps) {
  const height = (part: number) => ({ height: `${(part / top) * 100}%` });
  const label = `${day(row.date)}: ${number(row.prompt_tokens)} prompt and ${number(row.completion_tokens)} completion tokens in ${number(row.requests)} requests`;
  return (
    <li className="h-full min-w-0 flex-1">
      <button
        type="button"
        aria-label={label}
        onMouseEnter={onShow}
        onMouseLeave={onHide}
        onFocus={onShow}
        onBlur={onHide}
        className={cn(
          "flex h-full w-full flex-col justify-end gap-px rounded-t-sm transition-opacity",
          dim && "opacity-45",
        )}
      >
        <span className="block w-full rounded-t-[3px] bg-series-1" style={height(row.completion_tokens)} />
        <span className="block w-full bg-series-2" style={height(row.prompt_tokens)} />
      </button>
    </li>
  );
}
