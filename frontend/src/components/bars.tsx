import { cn } from "@/lib/cn";

export interface Segment {
  key: string;
  label: string;
  value: number;
  className: string;
}

/** A bar split in proportion to its parts. It is decorative: the figures stand beside it as text. */
export function StackedBar({ segments, total, className }: { segments: Segment[]; total: number; className?: string }) {
  return (
    <div aria-hidden className={cn("flex h-2 gap-px overflow-hidden rounded-full bg-fill-2", className)}>
      {segments
        .filter((segment) => segment.value > 0 && total > 0)
        .map((segment) => (
          <div
            key={segment.key}
            title={segment.label}
            className={cn("min-w-0.5 transition-[width] duration-500", segment.className)}
            style={{ width: `${(segment.value / total) * 100}%` }}
          />
        ))}
    </div>
  );
}

interface ProgressProps {
  label: string;
  value: number;
  max: number;
  tone?: "accent" | "danger";
  className?: string;
  "data-testid"?: string;
}

export function Progress({ label, value, max, tone = "accent", className, ...props }: ProgressProps) {
  const share = max > 0 ? Math.min(1, value / max) : 0;
  return (
    <div
      {...props}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(share * 100)}
      className={cn("h-1.5 overflow-hidden rounded-full bg-fill-2", className)}
    >
      <div
        className={cn(
          "h-full rounded-full transition-[width] duration-300",
          tone === "accent" ? "bg-series-1" : "bg-danger",
        )}
        style={{ width: `${share * 100}%` }}
      />
    </div>
  );
}
