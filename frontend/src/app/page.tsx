import type { ReactNode } from "react";
import { cn } from "@/lib/cn";
import { useTitle } from "@/lib/use-title";
import { PageHeader } from "@/components/card";

interface PageProps {
  /** For the browser's tab; the heading unless `heading` says more. */
  title: string;
  heading?: ReactNode;
  note?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  /** Forms and settings read better in a narrow column. */
  narrow?: boolean;
}

/** The frame of an ordinary page. */
export function Page({ title, heading, note, actions, children, narrow }: PageProps) {
  useTitle(title);
  return (
    <div className="mx-auto max-w-6xl animate-fade px-4 py-6 sm:px-7 sm:py-7">
      <PageHeader title={heading ?? title} note={note} actions={actions} />
      <div className={cn(narrow && "max-w-3xl")}>{children}</div>
    </div>
  );
}
