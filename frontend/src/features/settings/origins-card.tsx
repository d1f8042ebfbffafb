import { zodResolver } from "@hookform/resolvers/zod";
import { queryOptions } from "@tanstack/react-query";
import { X } from "lucide-react";
import { useForm } from "react-hook-form";
import { request } from "@/api/client";
import { useQuery } from "@/app/use-query";
import { useReplace } from "@/app/use-write";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Field, Input } from "@/components/field";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { useCan, useTenant } from "@/features/session/queries";
import { z } from "@/lib/zod";

const originsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "origins"],
    queryFn: () => request("GET /api/tenants/{tenant}/origins", { tenant }),
  });

const useSetOrigins = (tenant: string) =>
  useReplace(originsQuery(tenant).queryKey, (origins: string[]) =>
    request("PUT /api/tenants/{tenant}/origins", { tenant, body: { origins } }),
  );

const SCHEMA = z.object({
  origin: z
    .string()
    .check(z.trim(), z.regex(/^https?:\/\/[^\s/]+$/, "Scheme, host and port, without a path: https://app.example.org")),
});

/** The web origins that may call inference from a browser (CORS). */
export function OriginsCard() {
  const { data, error, refetch } = useQuery(originsQuery(useTenant()));
  const may = useCan("tenant.write");
  return (
    <Card title="Browser origins" note="Web pages that may call inference with this tenant’s keys">
      <div className="grid gap-4 p-4 text-sm">
        <p className="max-w-prose text-ink-2">
          A browser lets a web page read answers of this server only if the origin of the page is listed here. Visitors
          can read an API key in a page, so give that key strict limits.
        </p>
        <ErrorNotice error={error} onRetry={refetch} />
        {!error && !data && <Skeleton className="h-9 w-64" />}
        {data && <Origins origins={data.origins} may={may} />}
      </div>
    </Card>
  );
}

function Origins({ origins, may }: { origins: string[]; may: boolean }) {
  const set = useSetOrigins(useTenant());
  const form = useForm<z.infer<typeof SCHEMA>>({ resolver: zodResolver(SCHEMA), defaultValues: { origin: "" } });
  const allow = form.handleSubmit(({ origin }) =>
    set.mutate([...new Set([...origins, origin.trim().toLowerCase()])], { onSuccess: () => form.reset() }),
  );
  return (
    <>
      {origins.length === 0 && <p className="text-ink-3">No origins allowed.</p>}
      {origins.length > 0 && (
        <ul aria-label="Allowed origins" className="divide-y rounded-lg border">
          {origins.map((origin) => (
            <li key={origin} className="flex min-h-row items-center justify-between gap-2 pr-1 pl-3">
              <code className="min-w-0 font-mono text-xs break-all">{origin}</code>
              {may && (
                <Button
                  size="icon"
                  variant="ghost"
                  aria-label={`Remove ${origin}`}
                  busy={set.isPending}
                  onClick={() => set.mutate(origins.filter((other) => other !== origin))}
                >
                  <X />
                </Button>
              )}
            </li>
          ))}
        </ul>
      )}
      <ErrorNotice error={set.error} />
      {may ? (
        <form onSubmit={allow} noValidate className="flex flex-wrap items-start gap-3">
          <div className="min-w-0 flex-1 basis-60">
            <Field label="Origin" error={form.formState.errors.origin?.message}>
              <Input
                {...form.register("origin")}
                type="url"
                autoComplete="off"
                placeholder="https://app.example.org"
                data-testid="origin"
              />
            </Field>
          </div>
          <Button type="submit" className="mt-6.5" busy={set.isPending} data-testid="origin-allow">
            Allow
          </Button>
        </form>
      ) : (
        <p className="text-ink-3">Owners of the tenant can change this.</p>
      )}
    </>
  );
}
