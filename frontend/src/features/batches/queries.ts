import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { Batch, BatchEndpoint } from "@/api/types";

export const ROWS = 25;
const OPEN: Batch["state"][] = ["validating", "in_progress", "finalizing", "cancelling"];
export const isOpen = (batch: Batch) => OPEN.includes(batch.state);

const totalOf = (response: Response, rows: unknown[]) => Number(response.headers.get("X-Total-Count") ?? rows.length);

export const batchesQuery = (tenant: string, page: number) =>
  queryOptions({
    queryKey: ["t", tenant, "batches", page],
    queryFn: async () => {
      const answer = await api.GET("/api/tenants/{tenant}/batches", {
        params: { path: { tenant }, query: { offset: page * ROWS, limit: ROWS } },
      });
      const batches = await unwrap(Promise.resolve(answer));
      return { batches, total: totalOf(answer.response, batches) };
    },
    placeholderData: keepPreviousData,
    // Web processes run batches line by line. Poll while one is running.
    refetchInterval: ({ state }) => (state.data?.batches.some(isOpen) ? 2000 : false),
  });

export const batchErrorsQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: ["t", tenant, "batches", id, "errors"],
    queryFn: () =>
      unwrap(
        api.GET("/api/tenants/{tenant}/batches/{batch_id}/errors", { params: { path: { tenant, batch_id: id } } }),
      ),
  });

export const filesQuery = (tenant: string, page: number) =>
  queryOptions({
    queryKey: ["t", tenant, "files", page],
    queryFn: async () => {
      const answer = await api.GET("/api/tenants/{tenant}/files", {
        params: { path: { tenant }, query: { offset: page * ROWS, limit: ROWS } },
      });
      const files = await unwrap(Promise.resolve(answer));
      return { files, total: totalOf(answer.response, files) };
    },
    placeholderData: keepPreviousData,
  });

export const contentPath = (tenant: string, file: string) =>
  `/api/tenants/${encodeURIComponent(tenant)}/files/${file}/content`;

export interface NewBatch {
  file: File;
  endpoint: BatchEndpoint;
  key: string;
}

/** Mutations of batches and files, after which both are read again. */
export function useBatchActions(tenant: string) {
  const client = useQueryClient();
  const onSuccess = () => {
    for (const noun of ["batches", "files"]) void client.invalidateQueries({ queryKey: ["t", tenant, noun] });
  };
  return {
    create: useMutation({
      mutationFn: ({ file, endpoint, key }: NewBatch) =>
        unwrap(
          api.POST("/api/tenants/{tenant}/batches", {
            params: { path: { tenant } },
            body: { endpoint, key, file: file as never },
            bodySerializer: (body) => {
              const form = new FormData();
              for (const [name, value] of Object.entries(body)) form.append(name, value as string | Blob);
              return form;
            },
          }),
        ),
      onSuccess,
    }),
    cancel: useMutation({
      mutationFn: (id: string) =>
        unwrap(
          api.POST("/api/tenants/{tenant}/batches/{batch_id}/cancel", { params: { path: { tenant, batch_id: id } } }),
        ),
      onSuccess,
    }),
    removeFile: useMutation({
      mutationFn: (id: string) =>
        unwrap(api.DELETE("/api/tenants/{tenant}/files/{file_id}", { params: { path: { tenant, file_id: id } } })),
      onSuccess,
    }),
  };
}
