import { queryOptions } from "@tanstack/react-query";
import { type SyntheticEvent, useState } from "react";
import { request } from "@/api/client";
import type { HubModels } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { useReplace } from "@/app/use-write";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Field, Input } from "@/components/field";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { useCan, useTenant } from "@/features/session/queries";

const hubModelsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "hub-models"],
    queryFn: () => request("GET /api/tenants/{tenant}/hub-models", { tenant }),
  });

const useSetHubModels = (tenant: string) =>
  useReplace(hubModelsQuery(tenant).queryKey, (body: { enabled: boolean; organizations: string[] }) =>
    request("PUT /api/tenants/{tenant}/hub-models", { tenant, body }),
  );

/**
 * The setting whether requests may name repositories of the Hugging Face Hub, which are imported at their first use.
 */
export function HubModelsCard() {
  const { data, error, refetch } = useQuery(hubModelsQuery(useTenant()));
  const may = useCan("tenant.write");
  return (
    <Card title="Models from the Hub" note="Imported when a request first names them">
      <div className="grid gap-4 p-4 text-sm">
        <p className="max-w-prose text-ink-2">
          A request may name <code className="font-mono text-xs">hub:org/name@revision</code> as its model. It is
          imported like any other adapter, at the current commit of the revision, and answers when it is on a host.
          Every API key of this tenant can start such imports.
        </p>
        <ErrorNotice error={error} onRetry={refetch} />
        {!error && !data && <Skeleton className="h-9 w-64" />}
        {data &&
          (may ? (
            <Choose key={data.organizations?.join()} hub={data} />
          ) : (
            <p className="text-ink-3">
              {data.enabled ? "Allowed." : "Not allowed."} Owners of the tenant can change this.
            </p>
          ))}
        {data && data.models.length > 0 && <Imported models={data.models} />}
      </div>
    </Card>
  );
}

function Choose({ hub }: { hub: HubModels }) {
  const set = useSetHubModels(useTenant());
  const [text, setText] = useState((hub.organizations ?? []).join(", "));
  const save = (enabled: boolean) => set.mutate({ enabled, organizations: text.split(/[\s,]+/).filter(Boolean) });
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    save(hub.enabled);
  };
  return (
    <form onSubmit={submit} className="grid gap-3">
      <Field label="Organisations" hint="Names separated by commas. Leave empty to allow all.">
        <Input
          value={text}
          onChange={(event) => setText(event.target.value)}
          autoComplete="off"
          spellCheck={false}
          placeholder="my-org"
          className="font-mono"
        />
      </Field>
      <ErrorNotice error={set.error} />
      <div className="flex gap-3">
        {hub.enabled && <Button type="submit">Save organisations</Button>}
        <Button variant={hub.enabled ? "secondary" : "primary"} busy={set.isPending} onClick={() => save(!hub.enabled)}>
          {hub.enabled ? "Disable imports by request" : "Enable imports by request"}
        </Button>
      </div>
    </form>
  );
}

function Imported({ models }: { models: HubModels["models"] }) {
  return (
    <ul aria-label="Models that requests named" className="divide-y rounded-lg border">
      {models.map(({ name, state, adapter, version }) => (
        <li key={name} className="flex min-h-row flex-wrap items-center justify-between gap-2 px-3">
          <code className="min-w-0 font-mono text-xs break-all">{name}</code>
          <span className="text-ink-3">{version ? `${adapter}@v${version}` : state}</span>
        </li>
      ))}
    </ul>
  );
}
