import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";

/** Null = nothing is kept of this request. Text does not stay in memory once nobody looks at it. */
export const transcriptQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: ["t", tenant, "transcripts", id],
    // Asked for as a list, which may be empty: that it is not kept is an answer and no error.
    queryFn: async () =>
      (
        await unwrap(
          api.GET("/api/tenants/{tenant}/transcripts", { params: { path: { tenant }, query: { request: id } } }),
        )
      )[0] ?? null,
    gcTime: 0,
  });
