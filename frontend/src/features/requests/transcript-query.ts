import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import { ApiError } from "@/api/errors";

/** Null = nothing is kept of this request. Text does not stay in memory once nobody looks at it. */
export const transcriptQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: ["t", tenant, "transcripts", id],
    queryFn: async () => {
      try {
        return await unwrap(api.GET("/api/tenants/{tenant}/requests/{request_id}/transcript", { params: { path: { tenant, request_id: id } } }));
      } catch (cause) {
        if (cause instanceof ApiError && cause.code === "transcript_not_found") return null;
        throw cause;
      }
    },
    gcTime: 0,
  });
