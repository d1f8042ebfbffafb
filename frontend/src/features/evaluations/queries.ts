import { queryOptions } from "@tanstack/react-query";
import { request } from "@/api/client";
import type { Evaluation, EvaluationMetric } from "@/api/types";
import { useWrite } from "@/app/use-write";

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
      const evaluations = await request("GET /api/tenants/{tenant}/evaluations", { tenant, query });
      return evaluations.filter((evaluation) => evaluation.adapter === adapter);
    },
    refetchInterval: ({ state }) => (state.data?.some(isOpen) ? 2000 : false),
  });

export const setsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "evaluation-sets"],
    queryFn: () => request("GET /api/tenants/{tenant}/evaluation-sets", { tenant }),
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
  const path = { tenant, name: adapter };
  const also = [
    ["t", tenant, "evaluation-sets"],
    ["t", tenant, "adapters", adapter],
  ];
  const key = ["t", tenant, "evaluations"];
  return {
    addSet: useWrite(
      key,
      ({ name, metric, file }: NewSet) =>
        request("POST /api/tenants/{tenant}/evaluation-sets", { tenant, body: { name, metric, file: file as never } }),
      { also },
    ),
    removeSet: useWrite(
      key,
      (name: string) => request("DELETE /api/tenants/{tenant}/evaluation-sets/{set_name}", { tenant, set_name: name }),
      { also },
    ),
    start: useWrite(
      key,
      (body: { set: string; key: string } & Subject) =>
        request("POST /api/tenants/{tenant}/evaluations", { tenant, body }),
      { also },
    ),
    cancel: useWrite(
      key,
      (id: string) =>
        request("DELETE /api/tenants/{tenant}/evaluations/{evaluation_id}", { tenant, evaluation_id: id }),
      { also },
    ),
    setRule: useWrite(
      key,
      (body: NewRule) => request("PUT /api/tenants/{tenant}/adapters/{name}/promotion-rule", { ...path, body }),
      { also },
    ),
    removeRule: useWrite(key, () => request("DELETE /api/tenants/{tenant}/adapters/{name}/promotion-rule", path), {
      also,
    }),
  };
}
