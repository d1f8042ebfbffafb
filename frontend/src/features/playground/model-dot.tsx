import type { Model } from "@/api/types";
import { cn } from "@/lib/cn";

/** A dot whose colour distinguishes the base model from adapters. */
export const ModelDot = ({ kind }: { kind: Model["kind"] | undefined }) => (
  <span aria-hidden className={cn("size-2 shrink-0 rounded-full", kind === "base" ? "bg-series-2" : "bg-series-1")} />
);
