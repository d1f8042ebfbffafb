import { ChevronsUpDown } from "lucide-react";
import { Popover } from "radix-ui";
import { Suspense, useState } from "react";
import type { Model } from "@/api/types";
import { Skeleton } from "@/components/notices";
import { lazyPart } from "@/lib/lazy-part";
import { ModelDot } from "./model-dot";

const ModelList = lazyPart(() => import("./model-list"), "ModelList");

interface PickerProps {
  /** Some of those there are. */
  models: Model[];
  value: string;
  onChange: (model: string) => void;
}

/** A choice among what can be called. */
export function ModelPicker({ models, value, onChange }: PickerProps) {
  const [open, setOpen] = useState(false);
  return (
    <Popover.Root open={open} onOpenChange={setOpen}>
      <Popover.Trigger
        data-testid="playground-model"
        aria-label={`Model: ${value}`}
        className="flex h-8.5 min-w-0 flex-1 items-center gap-2 rounded-lg border border-line-2 bg-surface px-3 text-sm font-medium shadow-card hover:bg-fill"
      >
        <ModelDot kind={models.find(({ id }) => id === value)?.kind} />
        <span className="truncate">{value}</span>
        <ChevronsUpDown className="ml-auto size-3.5 shrink-0 text-ink-3" aria-hidden />
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Content
          aria-label="Choose a model"
          align="start"
          sideOffset={6}
          collisionPadding={8}
          className="z-50 w-[min(22rem,calc(100vw-1rem))] animate-pop overflow-hidden rounded-lg border border-line-2 bg-raised shadow-pop outline-none"
        >
          <Suspense fallback={<Skeleton className="m-2 h-40" />}>
            <ModelList
              value={value}
              showBase={models.filter(({ kind }) => kind === "base").length > 1}
              onChoose={(model) => {
                onChange(model);
                setOpen(false);
              }}
            />
          </Suspense>
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  );
}
