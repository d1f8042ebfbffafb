import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { request, requestPage } from "@/api/client";
import type { Batch, BatchEndpoint } from "@/api/types";
import { useWrite } from "@/app/use-write";

export const ROWS = 25;
const OPEN: Batch["state"][] = ["validating", "in_progress", "finalizing", "cancelling"];
export const isOpen = (batch: Batch) => OPEN.includes(batch.state);

export const batchesQuery = (tenant: string, page: number) =>
  queryOptions({
    queryKey: ["t", tenant, "batches", page],
    queryFn: () =>
      requestPage("GET /api/tenants/{tenant}/batches", { tenant, query: { offset: page * ROWS, limit: ROWS } }),
    placeholderData: keepPreviousData,
    // Web processes run batches line by line. Poll while one is running.
    refetchInterval: ({ state }) => (state.data?.rows.some(isOpen) ? 2000 : false),
  });

export const batchErrorsQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: ["t", tenant, "batches", id, "errors"],
    queryFn: () => request("GET /api/tenants/{tenant}/batches/{batch_id}/errors", { tenant, batch_id: id }),
  });

export const filesQuery = (tenant: string, page: number) =>
  queryOptions({
    queryKey: ["t", tenant, "files", page],
    queryFn: () =>
      requestPage("GET /api/tenants/{tenant}/files", { tenant, query: { offset: page * ROWS, limit: ROWS } }),
    placeholderData: keepPreviousData,
  });

export const contentPath = (tenant: string, file: string) =>
  `/api/tenants/${encodeURIComponent(tenant)}/files/${file}/content`;

export interface NewBatch {
  file: File;
  endpoint: BatchEndpoint;
  key: string;
}

/** A mutation of batches or files, after which both are read again. */
const useBatchWrite = <Body, Answer>(tenant: string, write: (body: Body) => Promise<Answer>) =>
  useWrite(["t", tenant, "batches"], write, { also: [["t", tenant, "files"]] });

export const useBatchActions = (tenant: string) => ({
  create: useBatchWrite(tenant, ({ file, endpoint, key }: NewBatch) =>
    request("POST /api/tenants/{tenant}/batches", { tenant, body: { endpoint, key, file: file as never } }),
  ),
  cancel: useBatchWrite(tenant, (id: string) =>
    request("POST /api/tenants/{tenant}/batches/{batch_id}/cancel", { tenant, batch_id: id }),
  ),
  removeFile: useBatchWrite(tenant, (id: string) =>
    request("DELETE /api/tenants/{tenant}/files/{file_id}", { tenant, file_id: id }),
  ),
});
