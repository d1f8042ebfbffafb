import type { ComponentProps, ReactNode } from "react";
import { cn } from "@/lib/cn";

interface HeaderProps {
  title: ReactNode;
  note?: ReactNode;
  actions?: ReactNode;
}

type CardProps = Omit<ComponentProps<"section">, "title"> & Partial<HeaderProps>;

/** A framed section of a page, with a header if it has a title. */
export function Card({ title, note, actions, className, children, ...props }: CardProps) {
  return (
    <section {...props} className={cn("card min-w-0 overflow-hidden", className)}>
      {title && <CardHeader title={title} note={note} actions={actions} />}
      {children}
    </section>
  );
}

export function CardHeader({ title, note, actions }: HeaderProps) {
  return (
    <div className="flex min-h-12 flex-wrap items-center justify-between gap-x-4 gap-y-2 border-b px-4 py-2.5">
      <div className="min-w-0">
        <h2 className="text-sm font-semibold">{title}</h2>
        {note && <p className="text-xs wrap-anywhere text-ink-3">{note}</p>}
      </div>
      {actions && <div className="-mr-1.5 flex flex-wrap items-center gap-2">{actions}</div>}
    </div>
  );
}

export function PageHeader({ title, note, actions }: HeaderProps) {
  return (
    <header className="mb-5 flex flex-wrap items-start justify-between gap-x-6 gap-y-3">
      <div className="min-w-0">
        <h1 className="flex flex-wrap items-center gap-x-3 gap-y-1 text-xl font-semibold tracking-tight">{title}</h1>
        {note && <p className="mt-0.5 max-w-2xl text-sm text-ink-3">{note}</p>}
      </div>
      {actions && <div className="flex flex-wrap items-center gap-2">{actions}</div>}
    </header>
  );
}

/** A row of figures. */
export function Stats({ children, className }: { children: ReactNode; className?: string }) {
  return (
    <dl className={cn("card grid grid-cols-2 gap-px overflow-hidden bg-line lg:grid-cols-4", className)}>{children}</dl>
  );
}

export function Stat({
  label,
  value,
  note,
  aside,
}: {
  label: string;
  value: ReactNode;
  note?: ReactNode;
  aside?: ReactNode;
}) {
  return (
    <div className="relative min-w-0 bg-surface px-4 py-3.5">
      <dt className="text-xs text-ink-3">{label}</dt>
      <dd className="tnum mt-1 truncate text-2xl font-semibold tracking-tight">{value}</dd>
      {note && <dd className={cn("mt-0.5 text-xs text-ink-3", aside && "truncate")}>{note}</dd>}
      {aside && <dd className="absolute right-4 bottom-4">{aside}</dd>}
    </div>
  );
}
