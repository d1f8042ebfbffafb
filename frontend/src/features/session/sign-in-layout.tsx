import type { ReactNode } from "react";
import { Wordmark } from "@/components/logo";
import { useTitle } from "@/lib/use-title";

/** The frame of pages for people who are not signed in. */
export function SignInLayout({ title, note, children }: { title: string; note?: ReactNode; children: ReactNode }) {
  useTitle(title);
  return (
    <main id="main" className="flex min-h-dvh flex-col px-6 py-8 sm:px-12">
      <Wordmark />
      <div className="mx-auto flex w-full max-w-sm flex-1 flex-col justify-center py-10">
        <h1 className="text-2xl font-semibold tracking-tight">{title}</h1>
        {note && <p className="mt-1 text-sm text-ink-3">{note}</p>}
        <div className="mt-6 grid gap-4">{children}</div>
      </div>
    </main>
  );
}
