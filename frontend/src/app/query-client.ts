import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { ApiError } from "@/api/errors";

const isClientError = (cause: unknown) => cause instanceof ApiError && cause.status >= 400 && cause.status < 500;

/** Returns whether the server says that the resource no longer exists or is not visible to this person. */
export const isGone = (cause: unknown) => cause instanceof ApiError && [403, 404, 410].includes(cause.status);

/**
 * Read the session again when a call was refused for it: it ended (the router then shows the login page), or a login
 * in another tab changed the CSRF token (the next try then works), or the tenant now requires a second factor.
 */
export function refetchSession(client: QueryClient, cause: unknown): void {
  if (!(cause instanceof ApiError)) return;
  if (cause.status === 401 || ["csrf_failed", "second_factor_required"].includes(cause.code))
    void client.invalidateQueries({ queryKey: ["session"], refetchType: "all" });
}

/**
 * Live events keep caches fresh; polling is only the net below them. Without a network calls fail like any other, since
 * one that waited for it would look as if it were on its way.
 */
export function makeQueryClient(): QueryClient {
  const client: QueryClient = new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 15_000,
        networkMode: "always",
        refetchOnReconnect: true,
        retry: (failures, cause) => failures < 2 && !isClientError(cause),
      },
      mutations: { networkMode: "always" },
    },
    queryCache: new QueryCache({ onError: (cause) => refetchSession(client, cause) }),
    mutationCache: new MutationCache({ onError: (cause) => refetchSession(client, cause) }),
  });
  return client;
}
