import { useQuery } from "@tanstack/react-query";
import { Command } from "cmdk";
import { Check, ChevronsUpDown } from "lucide-react";
import { Popover } from "radix-ui";
import { useDeferredValue, useState } from "react";
import type { Model } from "@/api/types";
import { Badge } from "@/components/badge";
import { modelsQuery } from "@/features/adapters/queries";
import { useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";

interface PickerProps {
  /** Some of those there are. */
  models: Model[];
  value: string;
  onChange: (model: string) => void;
}

/** A choice among what can be called, which the server searches; "name@v7" and "a+b:0.5" can be typed. */
export function ModelPicker({ models, value, onChange }: PickerProps) {
  const [open, setOpen] = useState(false);
  const [needle, setNeedle] = useState("");
  const search = useDeferredValue(needle.split(/[@+:]/)[0]!.trim());
  const { data: found = [] } = useQuery({ ...modelsQuery(useTenant(), search), enabled: open });
  const choose = (model: string) => {
    onChange(model);
    setNeedle("");
    setOpen(false);
  };
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
          <Command label="Models" shouldFilter={false}>
            <Command.Input
              value={needle}
              onValueChange={setNeedle}
              placeholder="Search, or type name@v2 or a+b:0.5"
              className="h-10 w-full border-b bg-transparent px-3.5 text-sm outline-none"
            />
            <Command.List className="scroll-quiet max-h-80 overflow-y-auto p-1">
              <Command.Empty className="px-3 py-6 text-center text-sm text-ink-3">Nothing that can be called has this name.</Command.Empty>
              {found.map((model) => (
                <Option key={model.id} model={model} selected={model.id === value} onSelect={() => choose(model.id)} />
              ))}
              {/[@+:]/.test(needle) && (
                <Command.Item value={needle} onSelect={() => choose(needle.trim())} className={ITEM}>
                  Use <span className="font-mono text-xs">{needle.trim()}</span>
                </Command.Item>
              )}
            </Command.List>
          </Command>
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  );
}

const ITEM = "flex min-h-9 cursor-pointer items-center gap-2.5 rounded-md px-2.5 py-1.5 text-sm data-[selected=true]:bg-fill-2";

const ModelDot = ({ kind }: { kind: Model["kind"] | undefined }) => (
  <span aria-hidden className={cn("size-2 shrink-0 rounded-full", kind === "base" ? "bg-series-2" : "bg-series-1")} />
);

function Option({ model, selected, onSelect }: { model: Model; selected: boolean; onSelect: () => void }) {
  return (
    <Command.Item value={model.id} onSelect={onSelect} className={ITEM} data-model={model.id}>
      <ModelDot kind={model.kind} />
      <span className="min-w-0 flex-1">
        <span className="block truncate font-medium">{model.id}</span>
        {model.description && <span className="block truncate text-xs text-ink-3">{model.description}</span>}
      </span>
      {model.kind === "base" ? <Badge tone="blue">base</Badge> : <Badge>v{model.version}</Badge>}
      <Check className={cn("size-4 text-accent-text", !selected && "invisible")} aria-label={selected ? "selected" : undefined} />
    </Command.Item>
  );
}
