import { type ComponentProps, Fragment, isValidElement, type ReactElement, type ReactNode } from "react";
import { cn } from "@/lib/cn";

/** The header of a column: its label, a label with class names, or a `Th`. Columns that are false are left out. */
export type Column = string | readonly [label: string, className: string] | ReactElement | false | null | undefined;

interface TableProps extends ComponentProps<"table"> {
  label: string;
  columns: readonly Column[];
  /** A row below the others, such as a total. */
  foot?: ReactNode;
}

/** A table that scrolls sideways inside its region, so that the page does not. Its children are rows. */
export function Table({ className, label, columns, foot, children, ...props }: TableProps) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
    <div className="scroll-quiet relative overflow-x-auto" tabIndex={0} role="region" aria-label={label}>
      <table {...props} aria-label={label} className={cn("w-full border-collapse text-left text-sm", className)}>
        <thead>
          <tr>
            {columns.map((column, index) => (
              <Fragment key={index}>{column && head(column)}</Fragment>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
        {foot && <tfoot>{foot}</tfoot>}
      </table>
    </div>
  );
}

function head(column: Exclude<Column, false | null | undefined>) {
  if (typeof column === "string") return <Th>{column}</Th>;
  return isValidElement(column) ? column : <Th className={column[1]}>{column[0]}</Th>;
}

/** The header of a column of buttons, for screen readers only. */
export function HiddenTh({ label, className }: { label: string; className?: string }) {
  return (
    <Th className={className}>
      <span className="sr-only">{label}</span>
    </Th>
  );
}

export function Th({ className, ...props }: ComponentProps<"th">) {
  return (
    <th
      scope="col"
      {...props}
      className={cn("h-9 border-b bg-surface px-4 text-xs font-medium whitespace-nowrap text-ink-3", className)}
    />
  );
}

export function Tr({ className, ...props }: ComponentProps<"tr">) {
  return <tr {...props} className={cn("border-b last:border-0 hover:bg-fill/60", className)} />;
}

export function Td({ className, ...props }: ComponentProps<"td">) {
  return <td {...props} className={cn("h-row px-4 py-1 whitespace-nowrap", className)} />;
}
