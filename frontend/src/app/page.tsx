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
  className?: string;
}

/** The frame of an ordinary page. */
export function Page({ title, heading, note, actions, children, className }: PageProps) {
  useTitle(title);
  return (
    <div className={cn("mx-auto max-w-6xl animate-fade px-4 py-6 sm:px-7 sm:py-7", className)}>
      <PageHeader title={heading ?? title} note={note} actions={actions} />
      {children}
    </div>
  );
}
