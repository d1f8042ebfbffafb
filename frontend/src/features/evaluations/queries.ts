import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { Evaluation, EvaluationMetric } from "@/api/types";

/** The subject of an evaluation: a version, or an upload that becomes one. */
export type Subject = { adapter: string; version: number } | { adapter: string; upload: string };

export const isOpen = ({ state }: Evaluation) => state === "waiting" || state === "running";

const MAX_ROWS = 200;

/** The latest evaluations of an adapter, polled while one is running. */
export const evaluationsQuery = (tenant: string, adapter: string) =>
  queryOptions({
    queryKey: ["t", tenant, "evaluations", adapter],
    queryFn: async () => {
      const query = { search: adapter, limit: MAX_ROWS };
      const evaluations = await unwrap(
        api.GET("/api/tenants/{tenant}/evaluations", { params: { path: { tenant }, query } }),
      );
      return evaluations.filter((evaluation) => evaluation.adapter === adapter);
    },
    refetchInterval: ({ state }) => (state.data?.some(isOpen) ? 2000 : false),
  });

export const setsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "evaluation-sets"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/evaluation-sets", { params: { path: { tenant } } })),
  });

export interface NewSet {
  name: string;
  metric: EvaluationMetric;
  file: File;
}

export interface NewRule {
  set: string;
  key: string;
  minimum: number | null;
  not_worse_than_live: boolean;
}

/** Mutations of sets, evaluations and an adapter's promotion rule. */
export function useEvaluationActions(tenant: string, adapter: string) {
  const client = useQueryClient();
  const path = { tenant };
  const onSuccess = () => {
    for (const noun of ["evaluations", "evaluation-sets"])
      void client.invalidateQueries({ queryKey: ["t", tenant, noun] });
    void client.invalidateQueries({ queryKey: ["t", tenant, "adapters", adapter] });
  };
  return {
    addSet: useMutation({
      mutationFn: ({ name, metric, file }: NewSet) =>
        unwrap(
          api.POST("/api/tenants/{tenant}/evaluation-sets", {
            params: { path },
            body: { name, metric, file: file as never },
            bodySerializer: (body) => {
              const form = new FormData();
              for (const [field, value] of Object.entries(body)) form.append(field, value as string | Blob);
              return form;
            },
          }),
        ),
      onSuccess,
    }),
    removeSet: useMutation({
      mutationFn: (name: string) =>
        unwrap(
          api.DELETE("/api/tenants/{tenant}/evaluation-sets/{set_name}", {
            params: { path: { tenant, set_name: name } },
          }),
        ),
      onSuccess,
    }),
    start: useMutation({
      mutationFn: (body: { set: string; key: string } & Subject) =>
        unwrap(api.POST("/api/tenants/{tenant}/evaluations", { params: { path }, body })),
      onSuccess,
    }),
    cancel: useMutation({
      mutationFn: (id: string) =>
        unwrap(
          api.DELETE("/api/tenants/{tenant}/evaluations/{evaluation_id}", {
            params: { path: { tenant, evaluation_id: id } },
          }),
        ),
      onSuccess,
    }),
    setRule: useMutation({
      mutationFn: (body: NewRule) =>
        unwrap(
          api.PUT("/api/tenants/{tenant}/adapters/{name}/promotion-rule", {
            params: { path: { tenant, name: adapter } },
            body,
          }),
        ),
      onSuccess,
    }),
    removeRule: useMutation({
      mutationFn: () =>
        unwrap(
          api.DELETE("/api/tenants/{tenant}/adapters/{name}/promotion-rule", {
            params: { path: { tenant, name: adapter } },
          }),
        ),
      onSuccess,
    }),
  };
}
