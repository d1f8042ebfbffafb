import type { ComponentProps } from "react";

/** A checkbox for an identifier of the API, with its meaning beside it, or below it on a phone. */
export function CheckOption({ meaning, ...input }: ComponentProps<"input"> & { value: string; meaning: string }) {
  return (
    <label className="flex items-baseline gap-2.5 text-sm">
      <input {...input} type="checkbox" className="size-4 shrink-0 translate-y-0.5 accent-(--accent)" />
      <span className="min-w-0 items-baseline gap-2.5 sm:flex">
        <code className="block w-36 shrink-0 font-mono text-xs">{input.value}</code>
        <span className="block text-xs text-ink-3">{meaning}</span>
      </span>
    </label>
  );
}
