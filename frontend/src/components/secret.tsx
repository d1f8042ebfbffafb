import { TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { CopyButton } from "./code-block";

/** A value that the server shows only once, with a warning. */
export function Secret({
  value,
  label,
  testId,
  children,
}: {
  value: string;
  label: string;
  testId: string;
  children: ReactNode;
}) {
  return (
    <>
      <div className="flex gap-2.5 rounded-lg bg-amber-soft px-3.5 py-2.5 text-sm text-amber-text">
        <TriangleAlert className="mt-0.5 size-4 shrink-0" aria-hidden />
        <p>{children}</p>
      </div>
      <div className="flex items-center gap-2 rounded-lg border border-line-2 bg-fill py-1.5 pr-1.5 pl-3.5">
        <code data-testid={testId} className="min-w-0 flex-1 font-mono text-sm break-all">
          {value}
        </code>
        <CopyButton text={value} label={label} />
      </div>
    </>
  );
}
