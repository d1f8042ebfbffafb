import type { ReactNode } from "react";
import { cn } from "@/lib/cn";

const TONES = {
  neutral: "bg-fill text-ink-2",
  green: "bg-accent-soft text-accent-text",
  blue: "bg-blue-soft text-blue-text",
  coral: "bg-coral-soft text-coral-text",
  amber: "bg-amber-soft text-amber-text",
  danger: "bg-danger-soft text-danger-text",
} as const;

export type Tone = keyof typeof TONES;

const DOTS: Record<Tone, string> = {
  neutral: "bg-series-4",
  green: "bg-series-1",
  blue: "bg-blue",
  coral: "bg-coral",
  amber: "bg-amber",
  danger: "bg-danger",
};

export function Badge({
  tone = "neutral",
  children,
  className,
}: {
  tone?: Tone;
  children: ReactNode;
  className?: string;
}) {
  return (
    <span
      className={cn(
        "inline-flex h-5 items-center gap-1.5 rounded-md px-1.5 text-2xs font-medium whitespace-nowrap",
        TONES[tone],
        className,
      )}
    >
      {children}
    </span>
  );
}

/** A word with a coloured dot, which pulses while the state is about to change. */
export function Status({ tone, label, live = false }: { tone: Tone; label: string; live?: boolean }) {
  return (
    <Badge tone={tone}>
      <span className={cn("size-1.5 rounded-full", DOTS[tone], live && "animate-shimmer")} />
      {label}
    </Badge>
  );
}
