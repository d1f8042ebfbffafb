import { cn } from "@/lib/cn";
import { FUSED_TARGETS, TARGETS } from "@/lib/peft";

/** The seven projections of a layer as cells, of which the highlighted have LoRA weights, and the number of others. */
export function TargetModules({ targets }: { targets: readonly string[] }) {
  const adapted = new Set(targets.flatMap((target) => FUSED_TARGETS[target] ?? [target]));
  const others = [...adapted].filter((target) => !(TARGETS as readonly string[]).includes(target));
  const label = targets.length === 0 ? "No target modules" : `Target modules: ${targets.join(", ")}`;
  return (
    <span
      role="img"
      aria-label={label}
      title={label}
      className="inline-flex flex-wrap gap-0.5 align-middle font-mono text-2xs leading-none"
    >
      {TARGETS.map((target, index) => (
        <span
          key={target}
          aria-hidden
          className={cn(
            "grid size-4.5 place-items-center rounded-sm",
            index === 4 && "ml-1",
            adapted.has(target) ? "bg-accent-soft font-semibold text-accent-text" : "bg-fill text-ink-3",
          )}
        >
          {target[0]}
        </span>
      ))}
      {others.length > 0 && (
        <span
          aria-hidden
          className="ml-1 grid h-4.5 place-items-center rounded-sm bg-accent-soft px-1 font-semibold whitespace-nowrap text-accent-text"
        >
          +{others.length}
        </span>
      )}
    </span>
  );
}
