import { type KeyboardEvent, type ReactNode, Suspense, useEffect, useId, useRef } from "react";
import { Skeleton } from "./notices";

export interface Tab<Name extends string> {
  name: Name;
  label: string;
  content: ReactNode;
}

interface TabsProps<Name extends string> {
  label: string;
  value: Name;
  tabs: readonly Tab<Name>[];
  onChange: (name: Name) => void;
}

/** The parts of a long page, one at a time. Only the chosen one is rendered, and the page keeps it in its address. */
export function Tabs<Name extends string>({ label, value, tabs, onChange }: TabsProps<Name>) {
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  // On a narrow screen a link may open a tab beyond the edge.
  useEffect(() => {
    const tab = list.current?.querySelector<HTMLElement>("[aria-selected=true]");
    if (tab) tab.parentElement!.scrollLeft = tab.offsetLeft + (tab.offsetWidth - tab.parentElement!.offsetWidth) / 2;
  }, [value]);
  const move = (event: KeyboardEvent<HTMLElement>) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = step && tabs[(tabs.findIndex(({ name }) => name === value) + step + tabs.length) % tabs.length];
    if (!next) return;
    event.preventDefault();
    onChange(next.name);
    document.getElementById(`${id}-${next.name}`)?.focus();
  };
  return (
    <div className="min-w-0">
      <div
        ref={list}
        role="tablist"
        aria-label={label}
        className="scroll-quiet relative mb-4 flex gap-1 overflow-x-auto border-b"
      >
        {tabs.map((tab) => (
          <button
            key={tab.name}
            type="button"
            role="tab"
            id={`${id}-${tab.name}`}
            aria-selected={tab.name === value}
            aria-controls={tab.name === value ? `${id}-panel` : undefined}
            tabIndex={tab.name === value ? 0 : -1}
            onClick={() => onChange(tab.name)}
            onKeyDown={move}
            className="h-9 border-b-2 border-transparent px-3 text-sm whitespace-nowrap text-ink-2 -outline-offset-2 hover:text-ink aria-selected:border-accent aria-selected:font-medium aria-selected:text-ink"
          >
            {tab.label}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${value}`} className="grid min-w-0 gap-5">
        <Suspense key={value} fallback={<Skeleton className="h-96" />}>
          {tabs.find(({ name }) => name === value)?.content}
        </Suspense>
      </div>
    </div>
  );
}
