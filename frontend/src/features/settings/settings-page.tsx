import { Suspense } from "react";
import { Page } from "@/app/page";
import { Card } from "@/components/card";
import { CopyButton } from "@/components/code-block";
import { Skeleton } from "@/components/notices";
import { useSession, useTenant } from "@/features/session/queries";
import { lazyPart } from "@/lib/lazy-part";

// Forms are loaded on demand with their libraries.
const RecordingCard = lazyPart(() => import("./recording-card"), "RecordingCard");
const OriginsCard = lazyPart(() => import("./origins-card"), "OriginsCard");
const ApiCard = lazyPart(() => import("./api-card"), "ApiCard");
const HubModelsCard = lazyPart(() => import("./hub-models-card"), "HubModelsCard");
const PinsCard = lazyPart(() => import("@/features/pins/prefixes"), "PinsCard");
const SecurityCard = lazyPart(() => import("./security-card"), "SecurityCard");

/** The settings of the tenant. Those of the person are on the account page. */
export function SettingsPage() {
  const slug = useTenant();
  const name = useSession().tenants.find((tenant) => tenant.slug === slug)?.name ?? slug;
  return (
    <Page title="Settings" note={`Settings of ${name}, for all of its members and API keys.`} narrow>
      <div className="grid gap-4">
        <Suspense fallback={<Skeleton className="h-screen w-full" />}>
          <SecurityCard />
          <RecordingCard />
          <ApiCard />
          <OriginsCard />
          <HubModelsCard />
          <PinsCard />
        </Suspense>
        <Endpoints />
      </div>
    </Page>
  );
}

function Endpoints() {
  const tenant = useTenant();
  const rows = [
    { label: "OpenAI-compatible API", value: `${location.origin}/v1` },
    { label: "WebSocket", value: `${location.origin.replace(/^http/, "ws")}/ws/inference` },
    { label: "API reference", value: `${location.origin}/api/docs`, href: "/api/docs" },
    { label: "Tenant", value: tenant },
  ];
  return (
    <Card title="Endpoints" note="Addresses for SDKs and scripts">
      <dl className="divide-y">
        {rows.map(({ label, value, href }) => (
          <div key={label} className="flex min-h-row flex-wrap items-center gap-x-4 px-4 py-1">
            <dt className="w-44 text-ink-3">{label}</dt>
            <dd className="flex min-w-0 flex-1 items-center justify-between gap-2 font-mono text-xs">
              {href ? (
                <a href={href} className="truncate text-blue-text underline underline-offset-2">
                  {value}
                </a>
              ) : (
                <span className="truncate">{value}</span>
              )}
              <CopyButton text={value} label={`Copy ${label}`} />
            </dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}
