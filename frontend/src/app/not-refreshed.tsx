import { type Query, type QueryCache, useQueryClient } from "@tanstack/react-query";
import { RotateCw } from "lucide-react";
import { useCallback, useSyncExternalStore } from "react";
import { asApiError } from "@/api/errors";
import { Button } from "@/components/button";
import { isGone } from "./query-client";

/** Returns whether a query shows older data because its last refetch failed. Infinite lists report a failed page themselves. */
const isOld = (query: Query) =>
  query.isActive() &&
  query.state.status === "error" &&
  query.state.data !== undefined &&
  !isGone(query.state.error) &&
  !isFurther(query.state.fetchMeta);

const isFurther = (meta: { fetchMore?: unknown } | null) => Boolean(meta?.fetchMore);

const oldest = (cache: QueryCache) =>
  cache
    .getAll()
    .filter(isOld)
    .toSorted((a, b) => a.state.dataUpdatedAt - b.state.dataUpdatedAt)[0];

/** A line above every page that says that its data is old and why, with a button to read it again. */
export function NotRefreshed() {
  const client = useQueryClient();
  const cache = client.getQueryCache();
  const subscribe = useCallback((changed: () => void) => cache.subscribe(changed), [cache]);
  const cause = useSyncExternalStore(subscribe, () => oldest(cache)?.state.error ?? null);
  const { message, fix } = asApiError(cause);
  return (
    <div role="status">
      {cause && (
        <div className="flex flex-wrap items-center gap-x-4 gap-y-2 border-b bg-amber-soft px-4 py-2.5 text-sm sm:px-7">
          <p className="min-w-0 flex-1 basis-64 break-words">
            <span className="font-medium text-amber-text">Data may be out of date: {message}</span>{" "}
            <span className="text-ink-2">{fix}</span>
          </p>
          <Button size="sm" onClick={() => void client.refetchQueries({ predicate: isOld })}>
            <RotateCw /> Refresh
          </Button>
        </div>
      )}
    </div>
  );
}
