import { type ErrorComponentProps, Link } from "@tanstack/react-router";
import { Compass } from "lucide-react";
import { asApiError } from "@/api/errors";
import { Button } from "@/components/button";
import { Empty, ErrorNotice, Skeleton } from "@/components/notices";

export function RouteLoading() {
  return (
    <div role="status" aria-label="Loading" className="mx-auto max-w-6xl px-4 py-7 sm:px-7">
      <Skeleton className="mb-6 h-7 w-48" />
      <Skeleton className="mb-4 h-24 w-full" />
      <Skeleton className="h-64 w-full" />
    </div>
  );
}

export function RouteError({ error, reset }: ErrorComponentProps) {
  return (
    <div className="mx-auto max-w-2xl px-4 py-16">
      <ErrorNotice error={asApiError(error)} onRetry={reset} />
    </div>
  );
}

export function NotFound() {
  return (
    <Empty
      icon={<Compass />}
      heading="h1"
      title="There is nothing at this address"
      action={
        <Button asChild>
          <Link to="/">Back to the overview</Link>
        </Button>
      }
    >
      The link may be old, or it belongs to a tenant you are not in.
    </Empty>
  );
}
