import { Columns3 } from "lucide-react";
import { Popover } from "radix-ui";
import { Button } from "./button";

interface Props<Name extends string> {
  /** Labels of all columns that can be hidden. */
  labels: Record<Name, string>;
  shown: readonly Name[];
  onChange: (shown: Name[]) => void;
  onReset: () => void;
}

/** A button that opens checkboxes for the columns of a table. */
export function ColumnChooser<Name extends string>({ labels, shown, onChange, onReset }: Props<Name>) {
  const names = Object.keys(labels) as Name[];
  return (
    <Popover.Root>
      <Popover.Trigger asChild>
        <Button size="sm" data-testid="columns">
          <Columns3 /> Columns
        </Button>
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Content
          aria-label="Columns"
          align="end"
          sideOffset={6}
          collisionPadding={8}
          className="z-50 w-52 animate-pop rounded-lg border border-line-2 bg-raised p-1.5 shadow-pop outline-none"
        >
          {names.map((name) => (
            <label
              key={name}
              className="flex h-8 cursor-pointer items-center gap-2.5 rounded-md px-2 text-sm hover:bg-fill"
            >
              <input
                type="checkbox"
                checked={shown.includes(name)}
                onChange={({ target }) =>
                  onChange(names.filter((one) => (one === name ? target.checked : shown.includes(one))))
                }
                className="size-4 accent-(--accent)"
              />
              {labels[name]}
            </label>
          ))}
          <Button size="sm" variant="ghost" className="mt-1 w-full" onClick={onReset}>
            Reset
          </Button>
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  );
}
