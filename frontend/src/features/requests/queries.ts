import {
  infiniteQueryOptions,
  keepPreviousData,
  queryOptions,
  useMutation,
  useQueryClient,
} from "@tanstack/react-query";
import { request } from "@/api/client";
import type { Recording } from "@/api/types";
import { useReplace } from "@/app/use-write";
import { queryParams, type RequestsSearch } from "./search";

const ROWS = 50;
const MAX_NEW_REQUESTS = 100;

/** Returns the newest requests that match the filters, which may have ended since the list was read. */
export const newestRequests = (tenant: string, search: RequestsSearch) =>
  request("GET /api/tenants/{tenant}/requests", {
    tenant,
    query: { limit: MAX_NEW_REQUESTS, ...queryParams(search, Date.now()) },
  });

export const requestsQuery = (tenant: string, search: RequestsSearch = {}) =>
  infiniteQueryOptions({
    queryKey: ["t", tenant, "requests", { ...search, view: undefined, open: undefined, paused: undefined }],
    queryFn: ({ pageParam }) =>
      request("GET /api/tenants/{tenant}/requests", {
        tenant,
        query: { limit: ROWS, cursor: pageParam, ...queryParams(search, Date.now()) },
      }),
    placeholderData: keepPreviousData,
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });

export const refusalsQuery = (tenant: string) =>
  infiniteQueryOptions({
    queryKey: ["t", tenant, "refusals"],
    queryFn: ({ pageParam }) =>
      request("GET /api/tenants/{tenant}/refusals", { tenant, query: { limit: 50, cursor: pageParam } }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });

export const recordingQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "recording"],
    queryFn: () => request("GET /api/tenants/{tenant}/recording", { tenant }),
  });

export const useSetRecording = (tenant: string) =>
  useReplace(recordingQuery(tenant).queryKey, (body: Recording) =>
    request("PUT /api/tenants/{tenant}/recording", { tenant, body }),
  );

export function useDeleteTranscripts(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => request("DELETE /api/tenants/{tenant}/transcripts", { tenant }),
    onSuccess: () => client.removeQueries({ queryKey: ["t", tenant, "transcripts"] }),
  });
}
