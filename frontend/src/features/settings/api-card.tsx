import { queryOptions } from "@tanstack/react-query";
import { request } from "@/api/client";
import type { ApiSettings } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { useReplace } from "@/app/use-write";
import { Card } from "@/components/card";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { useCan, useTenant } from "@/features/session/queries";

const apiSettingsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "api-settings"],
    queryFn: () => request("GET /api/tenants/{tenant}/api-settings", { tenant }),
  });

const useSetApiSettings = (tenant: string) =>
  useReplace(apiSettingsQuery(tenant).queryKey, (body: ApiSettings) =>
    request("PUT /api/tenants/{tenant}/api-settings", { tenant, body }),
  );

const CHOICES: { name: keyof ApiSettings; label: string; hint: string }[] = [
  {
    name: "refuse_unknown_fields",
    label: "Refuse unknown fields",
    hint: "By default, fields that this API does not know are left out of a request and named in the header X-Lorikeet-Ignored. With this on, such requests are refused.",
  },
  {
    name: "never_store_responses",
    label: "Never store responses",
    hint: "By default, answers of /v1/responses are stored as in OpenAI’s API, so that previous_response_id can continue them. With this on, none is stored.",
  },
];

/** The settings of the inference API: unknown fields and stored responses. */
export function ApiCard() {
  const tenant = useTenant();
  const { data, error, refetch } = useQuery(apiSettingsQuery(tenant));
  const set = useSetApiSettings(tenant);
  const may = useCan("tenant.write");
  return (
    <Card title="Inference API" note="Applies to every request with this tenant’s keys">
      <div className="grid gap-4 p-4 text-sm">
        <ErrorNotice error={error} onRetry={refetch} />
        {!error && !data && <Skeleton className="h-9 w-64" />}
        <ErrorNotice error={set.error} />
        {data &&
          CHOICES.map(({ name, label, hint }) => (
            <label key={name} className="flex max-w-prose items-start gap-2.5">
              <input
                type="checkbox"
                className="mt-0.5 size-4 shrink-0 accent-(--accent)"
                checked={data[name]}
                disabled={!may}
                onChange={(event) => !set.isPending && set.mutate({ ...data, [name]: event.target.checked })}
              />
              <span>
                {label}
                <span className="block text-xs text-ink-3">{hint}</span>
              </span>
            </label>
          ))}
        {data && !may && <p className="text-ink-3">Owners of the tenant can change this.</p>}
      </div>
    </Card>
  );
}
