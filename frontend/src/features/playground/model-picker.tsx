import { ChevronsUpDown } from "lucide-react";
import { Popover } from "radix-ui";
import { Suspense, useRef, useState } from "react";
import type { Model } from "@/api/types";
import { Skeleton } from "@/components/notices";
import { lazyPart } from "@/lib/lazy-part";
import { isCombination, partsOf } from "./combination";
import { ModelDot } from "./model-dot";

const ModelList = lazyPart(() => import("./model-list"), "ModelList");
const CombineDialog = lazyPart(() => import("./combine-dialog"), "CombineDialog");

interface PickerProps {
  /** Some of those there are. */
  models: Model[];
  value: string;
  onChange: (model: string) => void;
  /** One adapter, and neither a base model nor a combination. */
  adaptersOnly?: boolean;
}

/** A choice among what can be called. */
export function ModelPicker({ models, value, onChange, adaptersOnly = false }: PickerProps) {
  const [open, setOpen] = useState<"list" | "combine" | null>(null);
  const trigger = useRef<HTMLButtonElement>(null);
  const close = () => setOpen(null);
  const kindOf = (name: string) => models.find(({ id }) => id === name.split("@")[0])?.kind;
  const begun = isCombination(value, models)
    ? partsOf(value)
    : [
        { model: kindOf(value) === "adapter" ? value : "", weight: "1" },
        { model: "", weight: "1" },
      ];
  return (
    <>
      <Popover.Root open={open === "list"} onOpenChange={(opened) => setOpen(opened ? "list" : null)}>
        <Popover.Trigger
          ref={trigger}
          data-testid={adaptersOnly ? "combine-adapter" : "playground-model"}
          aria-label={adaptersOnly ? (value ? `Adapter: ${value}` : "Choose an adapter") : `Model: ${value}`}
          className="flex h-8.5 min-w-0 flex-1 items-center gap-2 rounded-lg border border-line-2 bg-surface px-3 text-sm font-medium shadow-card hover:bg-fill"
        >
          {value && <ModelDot kind={kindOf(value)} />}
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
            // The dialog that took its place has the focus then.
            onCloseAutoFocus={(event) => open === "combine" && event.preventDefault()}
            className="z-50 w-[min(22rem,calc(100vw-1rem))] animate-pop overflow-hidden rounded-lg border border-line-2 bg-raised shadow-pop outline-none"
          >
            <Suspense fallback={<Skeleton className="m-2 h-40" />}>
              <ModelList
                value={value}
                showBase={models.filter(({ kind }) => kind === "base").length > 1}
                adaptersOnly={adaptersOnly}
                onChoose={(model) => {
                  onChange(model);
                  close();
                }}
                onCombine={adaptersOnly ? null : () => setOpen("combine")}
              />
            </Suspense>
          </Popover.Content>
        </Popover.Portal>
      </Popover.Root>
      {open === "combine" && (
        <Suspense>
          <CombineDialog
            models={models}
            begun={begun}
            onUse={(model) => {
              onChange(model);
              close();
            }}
            onClose={close}
            focusAfter={trigger}
          />
        </Suspense>
      )}
    </>
  );
}
