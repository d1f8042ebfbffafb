import type { ReactNode } from "react";
import { cn } from "@/lib/cn";
import { useTitle } from "@/lib/use-title";
import { PageHeader } from "@/components/card";

interface PageProps {
  /** Title of the browser's tab, and of the page unless `heading` is given. */
  title: string;
  heading?: ReactNode;
  note?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  /** Uses the width of a large screen, for tables with many columns. */
  wide?: boolean;
  /** Limits the width of the page for forms and settings. */
  narrow?: boolean;
}

/** The frame of an ordinary page. */
export function Page({ title, heading, note, actions, children, narrow, wide }: PageProps) {
  useTitle(title);
  return (
    <div className={cn("mx-auto animate-fade px-4 py-6 sm:px-7 sm:py-7", wide ? "max-w-screen-2xl" : "max-w-6xl")}>
      <PageHeader title={heading ?? title} note={note} actions={actions} />
      <div className={cn(narrow && "max-w-3xl")}>{children}</div>
    </div>
  );
}
