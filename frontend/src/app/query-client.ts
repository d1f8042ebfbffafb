import { QueryCache, QueryClient } from "@tanstack/react-query";
import { ApiError } from "@/api/errors";

/** Live events keep caches fresh; polling is only the net below them. */
export function makeQueryClient(): QueryClient {
  const client: QueryClient = new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 15_000,
        retry: (failures, cause) => failures < 2 && !(cause instanceof ApiError && cause.status >= 400 && cause.status < 500),
      },
    },
    queryCache: new QueryCache({
      // A session that ended anywhere ends here: the router then shows the login page.
      onError: (cause) => {
        if (cause instanceof ApiError && cause.status === 401) void client.invalidateQueries({ queryKey: ["session"] });
      },
    }),
  });
  return client;
}
