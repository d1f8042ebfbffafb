import { ChevronsUpDown } from "lucide-react";
import { Popover } from "radix-ui";
import { type RefObject, Suspense, useRef, useState } from "react";
import type { Model } from "@/api/types";
import { Skeleton } from "@/components/notices";
import { lazyPart } from "@/lib/lazy-part";
import { ModelDot } from "./model-dot";

const ModelList = lazyPart(() => import("./model-list"), "ModelList");

interface PickerProps {
  /** The models already loaded. The open list searches all of them. */
  models: Model[];
  value: string;
  onChange: (model: string) => void;
  /** Opens the dialog that combines adapters. Without it only single adapters can be chosen. */
  onCombine?: () => void;
  trigger?: RefObject<HTMLButtonElement | null>;
}

/** A button that opens a searchable list of models. */
export function ModelPicker({ models, value, onChange, onCombine, trigger }: PickerProps) {
  const [open, setOpen] = useState(false);
  const combining = useRef(false);
  const adaptersOnly = !onCombine;
  const kind = kindOf(value, models);
  return (
    <Popover.Root open={open} onOpenChange={setOpen}>
      <Popover.Trigger
        ref={trigger}
        data-testid={adaptersOnly ? "combine-adapter" : "playground-model"}
        aria-label={adaptersOnly ? (value ? `Adapter: ${value}` : "Choose an adapter") : `Model: ${value}`}
        className="flex h-8.5 min-w-0 flex-1 items-center gap-2 rounded-lg border border-line-2 bg-surface px-3 text-sm font-medium shadow-card hover:bg-fill"
      >
        {value && <ModelDot kind={kind} />}
        <span className="truncate" title={value || undefined}>
          {value || <span className="font-normal text-ink-3">Choose an adapter</span>}
        </span>
        <ChevronsUpDown className="ml-auto size-3.5 shrink-0 text-ink-3" aria-hidden />
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Content
          aria-label={adaptersOnly ? "Choose an adapter" : "Choose a model"}
          align="start"
          sideOffset={6}
          collisionPadding={8}
          // The dialog that replaces the list takes the focus.
          onCloseAutoFocus={(event) => {
            if (combining.current) event.preventDefault();
            combining.current = false;
          }}
          className="z-50 w-[min(22rem,calc(100vw-1rem))] animate-pop overflow-hidden rounded-lg border border-line-2 bg-raised shadow-pop outline-none"
        >
          <Suspense fallback={<Skeleton className="m-2 h-40" />}>
            <ModelList
              value={value}
              showBase={models.filter((model) => model.kind === "base").length > 1}
              adaptersOnly={adaptersOnly}
              onChoose={(model) => {
                onChange(model);
                setOpen(false);
              }}
              onCombine={
                onCombine
                  ? () => {
                      combining.current = true;
                      setOpen(false);
                      onCombine();
                    }
                  : null
              }
            />
          </Suspense>
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  );
}

export const kindOf = (name: string, models: Model[]) => models.find(({ id }) => id === name.split("@")[0])?.kind;
