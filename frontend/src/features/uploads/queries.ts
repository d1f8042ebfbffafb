import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, csrfHeader, unwrap } from "@/api/client";
import { errorFrom } from "@/api/errors";
import type { Upload } from "@/api/types";
import { useWrite } from "@/app/use-write";

const isFinal = (upload: Upload | undefined) =>
  upload !== undefined && ["accepted", "refused", "cancelled"].includes(upload.state);

export const uploadsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "uploads"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/uploads", { params: { path: { tenant } } })),
    refetchInterval: ({ state }) =>
      state.data?.some((upload) => upload.imported_from && isUndecided(upload)) ? 2000 : false,
  });

export const uploadQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: ["t", tenant, "uploads", id],
    queryFn: (): Promise<Upload> =>
      unwrap(api.GET("/api/tenants/{tenant}/uploads/{upload_id}", { params: { path: { tenant, upload_id: id } } })),
    refetchInterval: ({ state }) => (isFinal(state.data) ? false : 2000),
  });

/** Resumable uploads use the tus protocol, which the API schema does not describe. */
async function tus(method: "HEAD", tenant: string, id: string): Promise<Response> {
  const headers = { "Tus-Resumable": "1.0.0", ...csrfHeader() };
  const answer = await fetch(`/api/tenants/${encodeURIComponent(tenant)}/uploads/resumable/${id}`, { method, headers });
  if (!answer.ok) throw errorFrom(await answer.json().catch(() => null), answer.status);
  return answer;
}

/** The number of bytes of an upload that the server has received. */
export const receivedBytesQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: ["t", tenant, "uploads", id, "received"],
    queryFn: async () => Number((await tus("HEAD", tenant, id)).headers.get("Upload-Offset")),
    refetchInterval: 5000,
    retry: false,
  });

/** Returns whether an upload is in progress or being validated. */
export const isUndecided = ({ state }: Upload) => ["arriving", "received", "validating"].includes(state);

export function useCancelUpload(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (id: string) =>
      unwrap(api.DELETE("/api/tenants/{tenant}/uploads/{upload_id}", { params: { path: { tenant, upload_id: id } } })),
    onSettled: () => client.invalidateQueries({ queryKey: uploadsQuery(tenant).queryKey }),
  });
}

export function useImport(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: { source: string; name: string; base_model?: string }) =>
      unwrap(api.POST("/api/tenants/{tenant}/imports", { params: { path: { tenant } }, body })),
    onSettled: () => client.invalidateQueries({ queryKey: uploadsQuery(tenant).queryKey }),
  });
}

export const followsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "follows"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/follows", { params: { path: { tenant } } })),
  });

/** Makes an adapter follow a branch, or ends the follow with the given ID. */
export const useFollow = (tenant: string) =>
  useWrite(followsQuery(tenant).queryKey, async (change: { name: string; source: string } | string) => {
    if (typeof change === "string") {
      await unwrap(
        api.DELETE("/api/tenants/{tenant}/follows/{follow_id}", { params: { path: { tenant, follow_id: change } } }),
      );
    } else {
      await unwrap(api.POST("/api/tenants/{tenant}/follows", { params: { path: { tenant } }, body: change }));
    }
  });

export const bucketsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "bucket-credentials"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/bucket-credentials", { params: { path: { tenant } } })),
  });

export interface BucketKeys {
  bucket: string;
  endpoint: string;
  region: string;
  access_key_id: string;
  secret_access_key: string;
  session_token: string;
}

/** Stores the keys of a bucket, or deletes those of the named one. */
export const useBucketKeys = (tenant: string) =>
  useWrite(bucketsQuery(tenant).queryKey, async (change: BucketKeys | string) => {
    if (typeof change === "string") {
      await unwrap(
        api.DELETE("/api/tenants/{tenant}/bucket-credentials/{bucket}", {
          params: { path: { tenant, bucket: change } },
        }),
      );
    } else {
      await unwrap(
        api.POST("/api/tenants/{tenant}/bucket-credentials", { params: { path: { tenant } }, body: change }),
      );
    }
  });

export const hubTokenQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "hub-token"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/hub-token", { params: { path: { tenant } } })),
  });

/** Stores the token, or deletes it. */
export function useHubToken(tenant: string) {
  const client = useQueryClient();
  const params = { path: { tenant } };
  return useMutation({
    mutationFn: async (token: string | null) => {
      if (token === null) await unwrap(api.DELETE("/api/tenants/{tenant}/hub-token", { params }));
      else await unwrap(api.PUT("/api/tenants/{tenant}/hub-token", { params, body: { token } }));
    },
    onSuccess: () => client.invalidateQueries({ queryKey: hubTokenQuery(tenant).queryKey }),
  });
}
