import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { request } from "@/api/client";
import { ApiError } from "@/api/errors";
import type {
  EndPrices,
  HostService,
  LatencyObjectives,
  NewBaseModel,
  NewJoinToken,
  NewPrices,
  NewTenant,
  Role,
} from "@/api/types";
import { useWrite } from "@/app/use-write";
import { type RangeQuery, refreshEvery } from "@/lib/time-range";
import type { StagingSearch, TenantsSearch } from "./search";

export const reportQuery = (days: number, base_model?: string) =>
  queryOptions({
    queryKey: ["operator", "report", days, base_model],
    queryFn: () => request("GET /api/operator/report", { query: { days, base_model } }),
    placeholderData: keepPreviousData,
    refetchInterval: 30_000,
  });

export const pricesQuery = queryOptions({
  queryKey: ["operator", "prices"],
  queryFn: () => request("GET /api/operator/prices"),
});

/** The served base model, or null if none is set yet. */
export const baseModelQuery = queryOptions({
  queryKey: ["operator", "base-model"],
  queryFn: async () => {
    try {
      return await request("GET /api/operator/base-model");
    } catch (error) {
      if (error instanceof ApiError && error.code === "base_model_undecided") return null;
      throw error;
    }
  },
});

export const allHostsQuery = queryOptions({
  queryKey: ["operator", "hosts"],
  queryFn: () => request("GET /api/operator/hosts"),
  // Restarts and changes of service that the engine has not applied yet take seconds, so they are polled often.
  refetchInterval: ({ state }) =>
    state.data?.some((host) => host.restart || (host.state === "draining") !== (host.service === "drained"))
      ? 1000
      : 10_000,
});

export const fairnessQuery = (range: RangeQuery) =>
  queryOptions({
    queryKey: ["operator", "fairness", range],
    queryFn: () => request("GET /api/operator/fairness", { query: range }),
    placeholderData: keepPreviousData,
    refetchInterval: refreshEvery(range),
  });

export const useSetBaseModel = () =>
  useWrite(["operator"], (body: NewBaseModel) => request("PUT /api/operator/base-model", { body }));

export const usePublishPrices = () =>
  useWrite(["operator"], (body: NewPrices) => request("POST /api/operator/prices", { body }));

export const useEndPrices = () =>
  useWrite(["operator"], (body: EndPrices) => request("POST /api/operator/prices/end", { body }));

export const PAGE = 50;
/** Rows at a time in the lists of one tenant's page. */
export const SHORT_PAGE = 10;

export const tenantsQuery = ({ q = "", state, sort = "name", page = 0 }: TenantsSearch) =>
  queryOptions({
    queryKey: ["operator", "tenants", "list", q, state, sort, page],
    queryFn: () =>
      request("GET /api/operator/tenants", { query: { search: q, state, sort, offset: page * PAGE, limit: PAGE } }),
    placeholderData: keepPreviousData,
  });

export const tenantQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["operator", "tenants", tenant],
    queryFn: () => request("GET /api/operator/tenants/{tenant}", { tenant }),
  });

export const grantedLimitsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["operator", "tenants", tenant, "limits"],
    queryFn: () => request("GET /api/operator/tenants/{tenant}/limits", { tenant }),
  });

export const tenantStatementQuery = (slug: string) =>
  queryOptions({
    queryKey: ["operator", "tenants", slug, "statement"],
    queryFn: () => request("GET /api/operator/tenants/{slug}/statement", { slug }),
  });

export const tenantMembersQuery = (tenant: string, search: string, page: number) =>
  queryOptions({
    queryKey: ["operator", "tenants", tenant, "members", search, page],
    queryFn: () =>
      request("GET /api/operator/tenants/{tenant}/members", {
        tenant,
        query: { search, offset: page * SHORT_PAGE, limit: SHORT_PAGE },
      }),
    placeholderData: keepPreviousData,
  });

export const tenantAdaptersQuery = (tenant: string, search: string, page: number) =>
  queryOptions({
    queryKey: ["operator", "tenants", tenant, "adapters", search, page],
    queryFn: () =>
      request("GET /api/operator/tenants/{tenant}/adapters", {
        tenant,
        query: { search, offset: page * SHORT_PAGE, limit: SHORT_PAGE },
      }),
    placeholderData: keepPreviousData,
  });

/** A mutation of tenants, after which the operator's queries and the session, which lists tenants, are read again. */
const useTenantsMutation = <Body, Answer>(write: (body: Body) => Promise<Answer>) =>
  useWrite(["operator", "tenants"], write, { also: [["session"]] });

export const useCreateTenant = () =>
  useTenantsMutation((body: NewTenant) => request("POST /api/operator/tenants", { body }));

/** Mutations of one tenant by an operator. */
export function useTenantActions(tenant: string) {
  return {
    rename: useTenantsMutation((body: { name: string }) =>
      request("PATCH /api/operator/tenants/{tenant}", { tenant, body }),
    ),
    suspend: useTenantsMutation((body: { reason: string }) =>
      request("PUT /api/operator/tenants/{tenant}/suspension", { tenant, body }),
    ),
    resume: useTenantsMutation(() => request("DELETE /api/operator/tenants/{tenant}/suspension", { tenant })),
    remove: useTenantsMutation(() =>
      request("DELETE /api/operator/tenants/{tenant}", { tenant, query: { confirm: tenant } }),
    ),
    weight: useTenantsMutation((body: { weight: number }) =>
      request("PUT /api/operator/tenants/{tenant}/weight", { tenant, body }),
    ),
    objectives: useTenantsMutation((body: LatencyObjectives) =>
      request("PUT /api/operator/tenants/{tenant}/objectives", { tenant, body }),
    ),
    resetSecondFactor: useTenantsMutation((id: string) =>
      request("DELETE /api/operator/tenants/{tenant}/members/{user_id}/second-factor", { tenant, user_id: id }),
    ),
    unlinkIdentity: useTenantsMutation(({ id, identity }: { id: string; identity: number }) =>
      request("DELETE /api/operator/tenants/{tenant}/members/{user_id}/identities/{identity_id}", {
        tenant,
        user_id: id,
        identity_id: identity,
      }),
    ),
    invite: useTenantsMutation((body: { email: string; role: Role }) =>
      request("POST /api/operator/tenants/{tenant}/invitations", { tenant, body }),
    ),
  };
}

export const stagingQuery = ({ q = "", phase, host = "", page = 0 }: StagingSearch) =>
  queryOptions({
    queryKey: ["operator", "staging", q, phase, host, page],
    queryFn: () =>
      request("GET /api/operator/staging", { query: { search: q, phase, host, offset: page * PAGE, limit: PAGE } }),
    placeholderData: keepPreviousData,
    refetchInterval: 3000,
  });

export const useSetHostService = () =>
  useWrite(["operator"], ({ host, service }: { host: string; service: HostService }) =>
    request("PUT /api/operator/hosts/{host_name}/service", { host_name: host, body: { service } }),
  );

export const joinTokensQuery = queryOptions({
  queryKey: ["operator", "join-tokens"],
  queryFn: () => request("GET /api/operator/join-tokens"),
  refetchInterval: 10_000,
});

export const baseModelsQuery = queryOptions({
  queryKey: ["operator", "base-models"],
  queryFn: () => request("GET /api/operator/base-models"),
  refetchInterval: 10_000,
});

export const useCreateJoinToken = () =>
  useWrite(["operator"], (body: NewJoinToken) => request("POST /api/operator/join-tokens", { body }));
export const useWithdrawJoinToken = () =>
  useWrite(["operator"], (id: string) => request("DELETE /api/operator/join-tokens/{token_id}", { token_id: id }));
export const useRevokeHost = () =>
  useWrite(["operator"], (host: string) =>
    request("DELETE /api/operator/hosts/{host_name}/credential", { host_name: host }),
  );
export const useForgetHost = () =>
  useWrite(["operator"], (host: string) => request("DELETE /api/operator/hosts/{host_name}", { host_name: host }));

export const useApproveBaseModel = () =>
  useWrite(["operator"], (body: { host: string; name: string }) => request("POST /api/operator/base-models", { body }));
export const useRenameBaseModel = () =>
  useWrite(["operator"], ({ digest, name }: { digest: string; name: string }) =>
    request("PATCH /api/operator/base-models/{digest}", { digest, body: { name } }),
  );
export const useLetBaseModelSleep = () =>
  useWrite(["operator"], ({ digest, sleeps_after_s }: { digest: string; sleeps_after_s: number }) =>
    request("PATCH /api/operator/base-models/{digest}", { digest, body: { sleeps_after_s } }),
  );
export const useWithdrawBaseModel = () =>
  useWrite(["operator"], (digest: string) => request("DELETE /api/operator/base-models/{digest}", { digest }));

export const useRestartHost = () =>
  useWrite(["operator", "hosts"], ({ host, wait_s }: { host: string; wait_s: number }) =>
    request("POST /api/operator/hosts/{host_name}/restart", { host_name: host, body: { wait_s } }),
  );

export const useRetryStaging = () =>
  useWrite(["operator", "staging"], (id: string) =>
    request("POST /api/operator/staging/{placement_id}/retry", { placement_id: id }),
  );
