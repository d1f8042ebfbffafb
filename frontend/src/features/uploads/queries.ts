import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { csrfHeader, request } from "@/api/client";
import { errorFrom } from "@/api/errors";
import type { Upload } from "@/api/types";
import { useWrite } from "@/app/use-write";

const isFinal = (upload: Upload | undefined) =>
  upload !== undefined && ["accepted", "refused", "cancelled"].includes(upload.state);

export const uploadsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "uploads"],
    queryFn: () => request("GET /api/tenants/{tenant}/uploads", { tenant }),
    refetchInterval: ({ state }) =>
      state.data?.some((upload) => upload.imported_from && isUndecided(upload)) ? 2000 : false,
  });

export const uploadQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: ["t", tenant, "uploads", id],
    queryFn: (): Promise<Upload> => request("GET /api/tenants/{tenant}/uploads/{upload_id}", { tenant, upload_id: id }),
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
    mutationFn: (id: string) => request("DELETE /api/tenants/{tenant}/uploads/{upload_id}", { tenant, upload_id: id }),
    onSettled: () => client.invalidateQueries({ queryKey: uploadsQuery(tenant).queryKey }),
  });
}

export function useImport(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: { source: string; name: string; base_model?: string }) =>
      request("POST /api/tenants/{tenant}/imports", { tenant, body }),
    onSettled: () => client.invalidateQueries({ queryKey: uploadsQuery(tenant).queryKey }),
  });
}

export const followsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "follows"],
    queryFn: () => request("GET /api/tenants/{tenant}/follows", { tenant }),
  });

/** Makes an adapter follow a branch, or ends the follow with the given ID. */
export const useFollow = (tenant: string) =>
  useWrite(followsQuery(tenant).queryKey, async (change: { name: string; source: string } | string) => {
    if (typeof change === "string") {
      await request("DELETE /api/tenants/{tenant}/follows/{follow_id}", { tenant, follow_id: change });
    } else {
      await request("POST /api/tenants/{tenant}/follows", { tenant, body: change });
    }
  });

export const bucketsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "bucket-credentials"],
    queryFn: () => request("GET /api/tenants/{tenant}/bucket-credentials", { tenant }),
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
      await request("DELETE /api/tenants/{tenant}/bucket-credentials/{bucket}", { tenant, bucket: change });
    } else {
      await request("POST /api/tenants/{tenant}/bucket-credentials", { tenant, body: change });
    }
  });

export const hubTokenQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "hub-token"],
    queryFn: () => request("GET /api/tenants/{tenant}/hub-token", { tenant }),
  });

/** Stores the token, or deletes it. */
export const useHubToken = (tenant: string) =>
  useWrite(hubTokenQuery(tenant).queryKey, async (token: string | null) => {
    if (token === null) await request("DELETE /api/tenants/{tenant}/hub-token", { tenant });
    else await request("PUT /api/tenants/{tenant}/hub-token", { tenant, body: { token } });
  });
