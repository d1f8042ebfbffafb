import { cn } from "@/lib/cn";
import { TARGETS } from "@/lib/peft";

/** The seven projections of a layer as cells; the highlighted ones have LoRA weights. */
export function TargetModules({ targets }: { targets: readonly string[] }) {
  const label = targets.length === 0 ? "No target modules" : `Target modules: ${targets.join(", ")}`;
  return (
    <span
      role="img"
      aria-label={label}
      title={label}
      className="inline-flex gap-0.5 align-middle font-mono text-2xs leading-none"
    >
      {TARGETS.map((target, index) => (
        <span
          key={target}
          aria-hidden
          className={cn(
            "grid size-4.5 place-items-center rounded-sm",
            index === 4 && "ml-1",
            targets.includes(target) ? "bg-accent-soft font-semibold text-accent-text" : "bg-fill text-ink-3",
          )}
        >
          {target[0]}
        </span>
      ))}
    </span>
  );
}
