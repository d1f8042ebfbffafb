import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { Upload } from "@/api/types";

const decided = (upload: Upload | undefined) => upload !== undefined && ["accepted", "refused", "cancelled"].includes(upload.state);

export const uploadQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: ["t", tenant, "uploads", id],
    queryFn: (): Promise<Upload> => unwrap(api.GET("/api/tenants/{tenant}/uploads/{upload_id}", { params: { path: { tenant, upload_id: id } } })),
    refetchInterval: ({ state }) => (decided(state.data) ? false : 2000),
  });
