import { CircleAlert, RotateCw } from "lucide-react";
import type { ReactNode } from "react";
import { asApiError } from "@/api/errors";
import { cn } from "@/lib/cn";
import { Button } from "./button";
import { CodeBlock } from "./code-block";

interface ErrorNoticeProps {
  /** Nothing is shown without an error. */
  error: unknown;
  onRetry?: () => unknown;
  className?: string;
}

/** The message, fix and request ID of an error, as the server wrote them. */
export function ErrorNotice({ error: cause, onRetry, className }: ErrorNoticeProps) {
  if (!cause) return null;
  const error = asApiError(cause);
  return (
    <div
      role="alert"
      className={cn("flex gap-3 rounded-lg border border-danger/35 bg-danger-soft px-3.5 py-3 text-sm", className)}
    >
      <CircleAlert className="mt-0.5 size-4 shrink-0 text-danger-text" aria-hidden />
      <div className="min-w-0 flex-1">
        <p className="font-medium break-words text-danger-text">{error.message}</p>
        {error.fix && <p className="mt-0.5 break-words text-ink-2">{error.fix}</p>}
        {error.requestId && <p className="mt-1 font-mono text-2xs break-all text-ink-2">request {error.requestId}</p>}
      </div>
      {onRetry && (
        <Button size="sm" onClick={() => void onRetry()}>
          <RotateCw /> Retry
        </Button>
      )}
    </div>
  );
}

interface EmptyProps {
  icon: ReactNode;
  title: string;
  children: ReactNode;
  /** The exact command that fills this page. */
  command?: string;
  action?: ReactNode;
  /** Level of the heading: "h1" if the notice is the whole page. */
  heading?: "h1" | "h2";
}

export function Empty({ icon, title, children, command, action, heading: Heading = "h2" }: EmptyProps) {
  return (
    <div className="mx-auto flex max-w-xl flex-col items-center px-5 py-12 text-center">
      <div className="mb-4 grid size-11 place-items-center rounded-xl border bg-fill text-ink-2 [&_svg]:size-5">
        {icon}
      </div>
      <Heading className="text-base font-semibold">{title}</Heading>
      <div className="mt-1 text-sm text-ink-3">{children}</div>
      {action && <div className="mt-4 flex flex-wrap justify-center gap-2">{action}</div>}
      {command && <CodeBlock code={command} label="Command" className="mt-5 w-full text-left" />}
    </div>
  );
}

export function Skeleton({ className }: { className?: string }) {
  return <div className={cn("animate-shimmer rounded-md bg-fill-2", className)} aria-hidden />;
}

/** Placeholder rows in the shape of the table that is loading. */
export function SkeletonRows({ rows = 5 }: { rows?: number }) {
  return (
    <div role="status" aria-label="Loading" className="divide-y">
      {Array.from({ length: rows }, (_, index) => (
        <div key={index} className="flex h-row items-center gap-4 px-4">
          <Skeleton className="h-3.5 w-1/4" />
          <Skeleton className="h-3.5 w-16" />
          <Skeleton className="ml-auto h-3.5 w-1/6" />
        </div>
      ))}
    </div>
  );
}
