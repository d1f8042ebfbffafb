import type { ReactNode } from "react";
import { Wordmark } from "@/components/logo";
import { cn } from "@/lib/cn";
import { useTitle } from "@/lib/use-title";

interface SignInLayoutProps {
  title: string;
  note?: ReactNode;
  /** Makes room for a list, which needs more than the width of a form. */
  wide?: boolean;
  children: ReactNode;
}

/** The frame of pages for people who are not signed in. */
export function SignInLayout({ title, note, wide, children }: SignInLayoutProps) {
  useTitle(title);
  return (
    <main id="main" className="flex min-h-dvh flex-col px-6 py-8 sm:px-12">
      <Wordmark />
      <div className={cn("mx-auto flex w-full flex-1 flex-col justify-center py-10", wide ? "max-w-xl" : "max-w-sm")}>
        <h1 className="text-2xl font-semibold tracking-tight">{title}</h1>
        {note && <p className="mt-1 text-sm text-ink-3">{note}</p>}
        <div className="mt-6 grid gap-4">{children}</div>
      </div>
    </main>
  );
}
