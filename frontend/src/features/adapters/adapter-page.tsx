import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Archive, MessagesSquare, Rocket, TriangleAlert, Upload } from "lucide-react";
import { useState } from "react";
import type { Adapter, Version, VersionSummary } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { CopyButton } from "@/components/code-block";
import { Confirm } from "@/components/dialog";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { TargetModules } from "@/components/target-modules";
import { type Tab, Tabs } from "@/components/tabs";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { lazyPart } from "@/lib/lazy-part";
import { bytes, day, params, shortDigest } from "@/lib/format";
import { AdapterDtypeView } from "./adapter-dtype";
import { BaseConfirmation } from "./base-confirmation";
import { Aliases } from "./aliases";
import { VersionActions } from "./version-actions";
import { adapterQuery, useArchive, useVersionAction, versionQuery } from "./queries";
import { ValidationReportView } from "./validation-report";
import { EffectConfirmation, EffectView, EffectWarning } from "./effect";
import { Staging } from "./staging";
import { Tiers } from "./tiers";
import type { AdapterTab } from "./search";
import { AdapterState } from "./version-status";

const AdapterPrefixes = lazyPart(() => import("@/features/pins/prefixes"), "AdapterPrefixes");
const Evaluations = lazyPart(() => import("@/features/evaluations/evaluations"), "Evaluations");
const Pin = lazyPart(() => import("./pin"), "Pin");
const Snippets = lazyPart(() => import("@/components/snippets"), "Snippets");
const Traffic = lazyPart(() => import("./traffic"), "Traffic");

export function AdapterPage() {
  const { name } = useParams({ from: "/t/$tenant/adapters/$name" });
  const { data, error, refetch } = useQuery(adapterQuery(useTenant(), name));
  return (
    <Page
      title={name}
      heading={
        <>
          <span className="break-all">{name}</span> {data && <AdapterState state={data.status} />}
        </>
      }
      note={data?.description}
      actions={data && <Actions adapter={data} />}
    >
      <ErrorNotice error={error} onRetry={refetch} />
      {!error && !data && <Skeleton className="h-96 w-full" />}
      {data && <Content adapter={data} />}
    </Page>
  );
}

function Actions({ adapter }: { adapter: Adapter }) {
  const tenant = useTenant();
  const may = useCan("adapters.write");
  const [archiving, setArchiving] = useState(false);
  const model = callable(adapter);
  return (
    <>
      {may && (
        <Button asChild>
          <Link to="/t/$tenant/upload" params={{ tenant }} search={{ name: adapter.name }}>
            <Upload /> New version
          </Link>
        </Button>
      )}
      {model && (
        <Button variant="primary" asChild>
          <Link to="/t/$tenant/playground" params={{ tenant }} search={{ model }}>
            <MessagesSquare /> Try it
          </Link>
        </Button>
      )}
      {may && (
        <Button
          size="icon"
          variant="ghost"
          aria-label={`Archive ${adapter.name}`}
          title="Archive"
          onClick={() => setArchiving(true)}
        >
          <Archive />
        </Button>
      )}
      {archiving && <ArchiveDialog name={adapter.name} onClose={() => setArchiving(false)} />}
    </>
  );
}

/**
 * Returns the model name for requests: the adapter's name if it has a live version, otherwise its newest ready version.
 */
function callable({ name, live_version, status, versions }: Adapter): string | null {
  if (live_version !== null) return status === "ready" ? name : null;
  const newest = versions.find(({ state }) => state === "ready");
  return newest ? `${name}@v${newest.number}` : null;
}

function ArchiveDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const tenant = useTenant();
  const navigate = useNavigate();
  const archive = useArchive(tenant, name, () => {
    toast.good(`Archived ${name}`);
    return navigate({ to: "/t/$tenant/adapters", params: { tenant } });
  });
  return (
    <Confirm
      onClose={onClose}
      title={`Archive ${name}?`}
      description="The adapter can no longer be called. It is removed from all hosts, and its name becomes available. You can restore it for a limited time; after that it is deleted. Its usage stays in the ledger."
      action="Archive adapter"
      write={archive}
      onConfirm={() => archive.mutate(undefined)}
    />
  );
}

function Content({ adapter }: { adapter: Adapter }) {
  const { version: requested, tab = "version" } = useSearch({ from: "/t/$tenant/adapters/$name" });
  const navigate = useNavigate({ from: "/t/$tenant/adapters/$name" });
  const show = (next: AdapterTab) =>
    void navigate({
      search: (now) => ({ ...now, tab: next === "version" ? undefined : next }),
      replace: true,
      resetScroll: false,
    });
  const number = requested ?? adapter.live_version ?? adapter.versions[0]?.number;
  const selected = adapter.versions.find((version) => version.number === number) ?? adapter.versions[0];
  if (!selected) return <NoVersions adapter={adapter} />;
  const tabs: Tab<AdapterTab>[] = [
    {
      name: "version",
      label: "Version",
      content: (
        <>
          <VersionCard adapter={adapter} summary={selected} part="version" />
          <Aliases adapter={adapter} />
        </>
      ),
    },
    {
      name: "quality",
      label: "Quality checks",
      content: <VersionCard adapter={adapter} summary={selected} part="quality" />,
    },
    { name: "traffic", label: "Traffic", content: <Traffic name={adapter.name} /> },
    {
      name: "pins",
      label: "Pins",
      content: (
        <>
          <Pin name={adapter.name} />
          <AdapterPrefixes name={adapter.name} />
        </>
      ),
    },
    { name: "code", label: "Code", content: <CallIt adapter={adapter} version={selected} /> },
  ];
  return (
    <div className="grid items-start gap-5 lg:grid-cols-[17rem_minmax(0,1fr)]">
      <Versions adapter={adapter} selected={selected.number} />
      <div className="grid min-w-0 gap-5">
        <Tabs label={`Sections of ${adapter.name}`} value={tab} tabs={tabs} onChange={show} />
      </div>
    </div>
  );
}

function NoVersions({ adapter }: { adapter: Adapter }) {
  const tenant = useTenant();
  return (
    <Card className="p-6 text-sm text-ink-2">
      This adapter has no versions.{" "}
      <Link
        to="/t/$tenant/upload"
        params={{ tenant }}
        search={{ name: adapter.name }}
        className="font-medium text-accent-text underline underline-offset-2"
      >
        Upload a version
      </Link>
      .
    </Card>
  );
}

function Versions({ adapter, selected }: { adapter: Adapter; selected: number }) {
  const tenant = useTenant();
  const { tab } = useSearch({ from: "/t/$tenant/adapters/$name" });
  return (
    <Card title="Versions">
      <ul className="max-h-96 divide-y overflow-y-auto">
        {adapter.versions.map((version) => (
          <li key={version.number}>
            <Link
              to="/t/$tenant/adapters/$name"
              params={{ tenant, name: adapter.name }}
              search={{ version: version.number, tab }}
              aria-current={version.number === selected ? "true" : undefined}
              className={cn(
                "block px-4 py-2.5 -outline-offset-2 hover:bg-fill",
                version.number === selected && "bg-fill",
              )}
            >
              <span className="flex items-center gap-2">
                <span className="tnum font-medium">v{version.number}</span>
                {version.number === adapter.live_version && <Badge tone="green">live</Badge>}
                {version.number !== adapter.live_version &&
                  version.state === "ready" &&
                  (version.asks_for_base || version.asks_for_effect) && <Badge tone="amber">to confirm</Badge>}
                <span className="ml-auto">
                  <AdapterState state={version.state} />
                </span>
              </span>
              <span className="mt-0.5 flex justify-between text-xs text-ink-3">
                <span className="font-mono text-2xs">{shortDigest(version.digest)}</span>
                <RelativeTime at={version.created_at} />
              </span>
            </Link>
          </li>
        ))}
      </ul>
    </Card>
  );
}

interface VersionCardProps {
  adapter: Adapter;
  summary: VersionSummary;
  part: "version" | "quality";
}

function VersionCard({ adapter, summary, part }: VersionCardProps) {
  const { data, error, refetch } = useQuery(versionQuery(useTenant(), adapter.name, summary.number));
  return (
    <Card
      title={
        <span className="flex items-center gap-2">
          Version {summary.number}
          {summary.number === adapter.live_version && <Badge tone="green">live</Badge>}
        </span>
      }
      note={summary.kept_until ? `Archived. It can be restored until ${day(summary.kept_until)}.` : undefined}
      actions={
        <>
          <Promote adapter={adapter} version={summary} />
          <VersionActions adapter={adapter} version={summary} />
        </>
      }
    >
      {summary.overflowed_at && <Overflowed at={summary.overflowed_at} />}
      <EffectWarning version={summary} className="mx-4 mt-4" />
      <EffectConfirmation
        adapter={adapter.name}
        version={summary}
        live={summary.number === adapter.live_version}
        className="mx-4 mt-3"
      />
      {part === "version" && <Facts version={summary} />}
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <Skeleton className="m-4 h-96" />}
      {data && part === "version" && <Placement version={data} />}
      {data && part === "quality" && <Quality version={data} rule={adapter.promotion_rule} />}
    </Card>
  );
}

function Overflowed({ at }: { at: string }) {
  return (
    <div role="status" className="mx-4 mt-4 flex gap-3 rounded-lg bg-amber-soft px-3.5 py-3 text-sm">
      <TriangleAlert className="mt-0.5 size-4 shrink-0 text-amber-text" aria-hidden />
      <div className="min-w-0">
        <p className="font-medium text-amber-text">
          Overflows since <RelativeTime at={at} />
        </p>
        <p className="mt-0.5 text-ink-2">
          With this version the model’s values overflowed, and requests failed with{" "}
          <code className="font-mono text-xs">adapter_overflow</code>. Train or export it with smaller weights or a
          smaller lora_alpha, and upload it as a new version.
        </p>
      </div>
    </div>
  );
}

function Placement({ version }: { version: Version }) {
  return (
    <>
      <section className="border-t px-4 py-4">
        <h3 className="mb-3 text-sm font-semibold">Placement</h3>
        <BaseConfirmation version={version} className="mb-4" />
        <Staging version={version} />
      </section>
      <AdapterDtypeView version={version} />
      <Tiers version={version} />
    </>
  );
}

function Quality({ version, rule }: { version: Version; rule: Adapter["promotion_rule"] }) {
  return (
    <>
      <section className="border-t px-4 py-4">
        <h3 className="mb-3 text-sm font-semibold">Effect</h3>
        <EffectView effect={version.effect} state={version.state} />
      </section>
      <Evaluations subject={{ adapter: version.adapter, version: version.number }} rule={rule} />
      <section className="border-t px-4 py-4">
        <h3 className="mb-3 text-sm font-semibold">Validation</h3>
        <ValidationReportView report={version.report} />
        {version.chat_template && <ChatTemplate template={version.chat_template} />}
      </section>
    </>
  );
}

/** The chat template of the adapter, collapsed because it is long. */
function ChatTemplate({ template }: { template: NonNullable<Version["chat_template"]> }) {
  const tokens = Object.entries(template.special_tokens);
  const sources = [
    { title: "Template", source: template.source },
    { title: "Template for requests with tools", source: template.tool_source },
  ].filter(({ source }) => source);
  return (
    <details className="mt-4 rounded-lg border bg-fill/60 text-sm" data-testid="chat-template">
      <summary className="cursor-pointer px-3.5 py-2 text-ink-2 select-none">Adapter’s chat template</summary>
      <div className="grid gap-3 border-t px-3.5 py-3">
        {sources.map(({ title, source }) => (
          <div key={title}>
            <p className="mb-1 text-xs text-ink-3">{title}</p>
            <pre
              // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
              tabIndex={0}
              aria-label={title}
              className="max-h-80 overflow-auto font-mono text-xs break-words whitespace-pre-wrap"
            >
              {source}
            </pre>
          </div>
        ))}
        {tokens.length > 0 && (
          <p className="text-xs break-words text-ink-3">
            Special tokens: {tokens.map(([name, token]) => `${name} ${token}`).join(", ")}
          </p>
        )}
      </div>
    </details>
  );
}

function Facts({ version }: { version: VersionSummary }) {
  const facts = [
    { label: "Rank", value: version.rank },
    { label: "Targets", value: <TargetModules targets={version.targets} /> },
    { label: "Size", value: bytes(version.bytes) },
    { label: "Parameters", value: params(version.num_parameters) },
    { label: "Data type", value: version.dtype },
    { label: "Base model", value: version.base_model },
    { label: "Created", value: <RelativeTime at={version.created_at} /> },
    { label: "Created by", value: version.created_by ?? "an API key" },
  ];
  return (
    <dl className="grid grid-cols-2 gap-x-6 gap-y-3.5 px-4 py-4 sm:grid-cols-4">
      {facts.map(({ label, value }) => (
        <div key={label} className="min-w-0">
          <dt className="text-xs text-ink-3">{label}</dt>
          <dd className="tnum mt-0.5 text-sm font-medium wrap-anywhere">{value}</dd>
        </div>
      ))}
      <div className="col-span-full min-w-0">
        <dt className="text-xs text-ink-3">Digest</dt>
        <dd className="flex items-center gap-1">
          <code className="truncate font-mono text-xs">{version.digest}</code>
          <CopyButton text={version.digest} label="Copy digest" />
        </dd>
      </div>
    </dl>
  );
}

function Promote({ adapter, version }: { adapter: Adapter; version: VersionSummary }) {
  const promote = useVersionAction(useTenant(), adapter.name, "promote");
  const may = useCan("adapters.write");
  const asks = version.asks_for_base || version.asks_for_effect;
  if (!may || version.number === adapter.live_version || version.state !== "ready" || asks) return null;
  return (
    <Button
      size="sm"
      busy={promote.isPending}
      onClick={() =>
        promote.mutate(version.number, {
          onSuccess: () => toast.good(`v${version.number} is live`, `“${adapter.name}” now refers to this version.`),
          onError: toast.bad,
        })
      }
    >
      <Rocket /> Make live
    </Button>
  );
}

function CallIt({ adapter, version }: { adapter: Adapter; version: VersionSummary }) {
  const live = version.number === adapter.live_version;
  const model = live ? adapter.name : `${adapter.name}@v${version.number}`;
  return (
    <Card
      title="Call it"
      note={live ? `“${adapter.name}” always refers to the live version.` : `Pinned to version ${version.number}.`}
    >
      <div className="p-4">
        <Snippets model={model} origin={location.origin} />
      </div>
    </Card>
  );
}
