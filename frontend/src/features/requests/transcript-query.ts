import { queryOptions } from "@tanstack/react-query";
import { request } from "@/api/client";

/** The text of a request, or null if none is stored. It does not stay in memory after it was shown. */
export const transcriptQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: ["t", tenant, "transcripts", id],
    // The list endpoint returns an empty list for a request without text, which is not an error.
    queryFn: async () =>
      (await request("GET /api/tenants/{tenant}/transcripts", { tenant, query: { request: id } }))[0] ?? null,
    gcTime: 0,
  });
