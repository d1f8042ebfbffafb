import { type ErrorComponentProps, Link, useRouter } from "@tanstack/react-router";
import { Compass, RefreshCw } from "lucide-react";
import { useEffect } from "react";
import { Button } from "@/components/button";
import { PartNotLoadedError } from "@/lib/lazy-part";
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

// Error messages of browsers and of Vite for a file of the bundle that could not be loaded.
const NOT_LOADED = /dynamically imported module|module script failed|preload CSS/i;
const isNotLoaded = (error: unknown) =>
  error instanceof PartNotLoadedError || (error instanceof Error && NOT_LOADED.test(error.message));

export function RouteError({ error, reset }: ErrorComponentProps) {
  const router = useRouter();
  // The error may come from a route guard, which only the router runs again.
  const again = () => void router.invalidate({ forcePending: true }).then(reset);
  useEffect(() => {
    if (!isNotLoaded(error)) return;
    addEventListener("online", reset);
    return () => removeEventListener("online", reset);
  }, [error, reset]);
  if (isNotLoaded(error)) return <NotLoaded />;
  return (
    <div className="mx-auto max-w-2xl px-4 py-16">
      <ErrorNotice error={error} onRetry={again} />
    </div>
  );
}

/** Asks for a reload after a part of the page could not be loaded, usually because the console was updated. */
function NotLoaded() {
  return (
    <div role="alert">
      <Empty
        icon={<RefreshCw />}
        heading="h1"
        title="This part of the console could not be loaded"
        action={<Button onClick={() => location.reload()}>Reload</Button>}
      >
        The connection was lost, or the console was updated. Reload the page to continue.
      </Empty>
    </div>
  );
}

export function NotFound() {
  return (
    <Empty
      icon={<Compass />}
      heading="h1"
      title="Page not found"
      action={
        <Button asChild>
          <Link to="/">Back to the overview</Link>
        </Button>
      }
    >
      The link may be outdated, or it belongs to a tenant that you are not a member of.
    </Empty>
  );
}
