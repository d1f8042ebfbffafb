import { Command } from "cmdk";
import { Blend, Check } from "lucide-react";
import { Fragment, useDeferredValue, useEffect, useRef, useState } from "react";
import type { Model } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { modelsQuery } from "@/features/adapters/queries";
import { useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { ModelDot } from "./model-dot";

interface ListProps {
  value: string;
  /** Shows the base model of each adapter, if several are served. */
  showBase: boolean;
  /** Offers only single adapters, without base models and combinations. */
  adaptersOnly: boolean;
  onChoose: (model: string) => void;
  /** Opens the dialog that combines adapters; null if combinations are not offered. */
  onCombine: (() => void) | null;
}

/** Maximum number of models whose versions and aliases are all shown; of more, only those of the selected one. */
const MAX_MODELS_IN_FULL = 8;
const COMBINE = "combine adapters";
/** Maximum names of one model. The others are found by typing. */
const MAX_NAMES = 6;

/** The callable models, searched by the server, with versions and aliases. "name@v7" and "a+b:0.5" can be typed. */
export function ModelList({ value, showBase, adaptersOnly, onChoose, onCombine }: ListProps) {
  const [needle, setNeedle] = useState("");
  const [name = "", pointer] = needle.trim().split("@");
  const search = useDeferredValue(name.split(/[+:]/)[0]!.trim());
  const { data = [] } = useQuery(modelsQuery(useTenant(), search));
  // Until the server answers, the rows are of the previous search, so their versions are not shown.
  const callable = adaptersOnly ? data.filter(({ kind }) => kind === "adapter") : data;
  const models = pointer === undefined ? callable : callable.filter(({ id }) => id.includes(name.trim()));
  const chosen = value.split("@")[0];
  const namesOf = ({ id, aliases }: Model) => {
    if (pointer === undefined && models.length > MAX_MODELS_IN_FULL && id !== chosen) return [];
    return aliases
      .filter((alias) => alias.split("@")[1]?.startsWith(pointer ?? "") ?? pointer === undefined)
      .slice(0, MAX_NAMES);
  };
  // The list is mounted after the popover took the focus.
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  // Results arrive after typing: Enter selects the first of them unless the reader moved to another.
  const [moved, setMoved] = useState("");
  const typed = (adaptersOnly ? /^[^+:]+@[^+:]+$/ : /[@+:]/).test(needle) ? needle.trim() : "";
  const offered = [
    ...models.flatMap((model) => [...(pointer === undefined ? [model.id] : []), ...namesOf(model)]),
    ...(typed ? [typed] : []),
  ];
  const combines = onCombine !== null && needle === "";
  const marked = offered.includes(moved) || (combines && moved === COMBINE) ? moved : (offered[0] ?? "");
  return (
    <Command label="Models" shouldFilter={false} value={marked} onValueChange={setMoved}>
      <Command.Input
        ref={input}
        value={needle}
        onValueChange={setNeedle}
        placeholder={adaptersOnly ? "Search, or type name@v2" : "Search, or type name@v2 or a+b:0.5"}
        className="h-10 w-full border-b bg-transparent px-3.5 text-sm outline-none"
      />
      <Command.List className="scroll-quiet max-h-80 overflow-y-auto p-1">
        <Command.Empty className="px-3 py-6 text-center text-sm text-ink-3">No model matches this name.</Command.Empty>
        {models.map((model) => {
          const names = namesOf(model);
          return (
            <Fragment key={model.id}>
              {pointer === undefined && (
                <Option
                  model={model}
                  base={showBase && model.kind === "adapter" ? model.base_model : null}
                  selected={model.id === value}
                  onSelect={() => onChoose(model.id)}
                />
              )}
              {names.map((alias) => (
                <Command.Item
                  key={alias}
                  value={alias}
                  onSelect={() => onChoose(alias)}
                  className={cn(ITEM, "min-h-7 pl-7")}
                  data-model={alias}
                >
                  <span className="min-w-0 flex-1 truncate font-mono text-xs text-ink-2">{alias}</span>
                  <Chosen chosen={alias === value} />
                </Command.Item>
              ))}
              {names.length > 0 && pointer === undefined && model.aliases.length > names.length && (
                <Command.Item disabled value={`${model.id}@`} className="py-1 pl-7 text-xs text-ink-3">
                  {model.aliases.length - names.length} more: type {model.id}@
                </Command.Item>
              )}
            </Fragment>
          );
        })}
        {typed && !models.some(({ aliases }) => aliases.includes(typed)) && (
          <Command.Item value={typed} onSelect={() => onChoose(typed)} className={ITEM}>
            Use <span className="font-mono text-xs break-all">{typed}</span>
          </Command.Item>
        )}
        {combines && (
          <Command.Item
            value={COMBINE}
            onSelect={onCombine}
            data-testid="playground-combine"
            className={cn(ITEM, "sticky -bottom-1 rounded-none border-t bg-raised")}
          >
            <Blend className="size-4 shrink-0 text-ink-3" aria-hidden />
            Combine adapters…
          </Command.Item>
        )}
      </Command.List>
    </Command>
  );
}

const ITEM =
  "flex min-h-9 cursor-pointer items-center gap-2.5 rounded-md px-2.5 py-1.5 text-sm data-[selected=true]:bg-fill-2";

const Chosen = ({ chosen }: { chosen: boolean }) => (
  <Check
    className={cn("size-4 shrink-0 text-accent-text", !chosen && "invisible")}
    aria-label={chosen ? "selected" : undefined}
  />
);

interface OptionProps {
  model: Model;
  base: string | null | undefined;
  selected: boolean;
  onSelect: () => void;
}

function Option({ model, base, selected, onSelect }: OptionProps) {
  return (
    <Command.Item value={model.id} onSelect={onSelect} className={ITEM} data-model={model.id}>
      <ModelDot kind={model.kind} />
      <span className="min-w-0 flex-1">
        <span className="block font-medium wrap-anywhere">{model.id}</span>
        {(base || model.description) && (
          <span className="block truncate text-xs text-ink-3">
            {[base, model.description].filter(Boolean).join(" · ")}
          </span>
        )}
      </span>
      {model.kind === "base" ? <Badge tone="blue">base</Badge> : <Badge>v{model.version}</Badge>}
      <Chosen chosen={selected} />
    </Command.Item>
  );
}
