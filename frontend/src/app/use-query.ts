import {
  type DefaultError,
  type InfiniteData,
  type QueryKey,
  useInfiniteQuery as useAnyInfiniteQuery,
  type UseInfiniteQueryOptions,
  type UseInfiniteQueryResult,
  useQuery as useAnyQuery,
  type UseQueryOptions,
  type UseQueryResult,
} from "@tanstack/react-query";
import { isGone } from "./query-client";

/**
 * TanStack's `useQuery`, with one answer at a time. While something is shown that was read before, `error` is null: a
 * page keeps it, and what is typed into it, and `NotRefreshed` says for all of them that they could not be read again.
 * What the server refuses to show or no longer has is not shown: then `data` is undefined.
 */
export function useQuery<T, E = DefaultError, D = T, K extends QueryKey = QueryKey>(
  options: UseQueryOptions<T, E, D, K>,
): UseQueryResult<D, E> {
  const result = useAnyQuery(options);
  // Properties are inherited getters, so that the component subscribes only to those that it reads.
  return Object.create(result, {
    data: { get: () => (isGone(result.error) ? undefined : result.data) },
    error: { get: () => (result.data === undefined || isGone(result.error) ? result.error : null) },
  }) as UseQueryResult<D, E>;
}

/** TanStack's `useInfiniteQuery` with the same rule; `error` beside data means that the next page could not be read. */
export function useInfiniteQuery<T, E = DefaultError, D = InfiniteData<T>, K extends QueryKey = QueryKey, P = unknown>(
  options: UseInfiniteQueryOptions<T, E, D, K, P>,
): UseInfiniteQueryResult<D, E> {
  const result = useAnyInfiniteQuery(options);
  return Object.create(result, {
    data: { get: () => (isGone(result.error) ? undefined : result.data) },
    error: {
      get: () =>
        result.data === undefined || isGone(result.error) || result.isFetchNextPageError ? result.error : null,
    },
  }) as UseInfiniteQueryResult<D, E>;
}
