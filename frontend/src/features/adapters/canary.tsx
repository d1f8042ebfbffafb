import { Rocket } from "lucide-react";
import { useState } from "react";
import type { Adapter, Alias, VersionStats, VersionSummary } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { FormDialog } from "@/components/dialog";
import { Field, type Option, Select } from "@/components/field";
import { Table, Td, Tr } from "@/components/table";
import { toast } from "@/components/toast";
import { useTenant } from "@/features/session/queries";
import { number, percent as share } from "@/lib/format";
import { canaryQuery, useSetAlias, useSetCanary, useStopCanary } from "./queries";

interface CanaryProps {
  adapter: Adapter;
  alias: Alias;
  may: boolean;
}

/** A running canary: its share, its figures beside those of the alias's version, and buttons to promote or end it. */
export function Canary({ adapter, alias, may }: CanaryProps) {
  const { data } = useQuery(canaryQuery(useTenant(), adapter.name, alias.name));
  return (
    <div className="grid gap-3 rounded-lg border bg-fill/40 p-3">
      {may ? (
        <Share key={alias.canary_percent} adapter={adapter} alias={alias} />
      ) : (
        <p className="text-sm">{`v${alias.canary} receives ${alias.canary_percent}% of requests.`}</p>
      )}
      {data?.canary && data.own && (
        <Figures alias={alias} canary={data.canary} own={data.own} least={data.least_requests} />
      )}
      {may && <CanaryActions adapter={adapter} alias={alias} />}
    </div>
  );
}

function Share({ adapter, alias }: Omit<CanaryProps, "may">) {
  const [percent, setPercent] = useState(alias.canary_percent ?? 1);
  const set = useSetCanary(useTenant(), adapter.name);
  const version = alias.canary ?? 0;
  return (
    <div className="grid gap-1.5">
      <div className="flex min-h-7 items-center justify-between gap-3 text-sm">
        <span>
          Canary <span className="tnum font-medium">v{version}</span> takes{" "}
          <span className="tnum font-medium">{percent}%</span>
        </span>
        {percent !== alias.canary_percent && (
          <Button
            size="sm"
            variant="primary"
            busy={set.isPending}
            onClick={() => set.mutate({ alias: alias.name, version, percent }, { onError: toast.bad })}
          >
            Set to {percent}%
          </Button>
        )}
      </div>
      <PercentSlider
        label={`Share of ${adapter.name}@${alias.name} for the canary`}
        value={percent}
        onChange={setPercent}
      />
    </div>
  );
}

function PercentSlider({
  label,
  value,
  onChange,
}: {
  label: string;
  value: number;
  onChange: (percent: number) => void;
}) {
  return (
    <input
      type="range"
      min={1}
      max={99}
      value={value}
      aria-label={label}
      aria-valuetext={`${value} percent`}
      onChange={({ target }) => onChange(Number(target.value))}
      className="w-full accent-accent"
    />
  );
}

interface FiguresProps {
  alias: Alias;
  canary: VersionStats;
  own: VersionStats;
  least: number;
}

const ms = (value: number | null) => (value === null ? "–" : `${number(Math.round(value))} ms`);
const failed = ({ requests, failed: count }: VersionStats) =>
  requests === 0 ? "–" : `${number(count)} (${share(count, requests)})`;

function Figures({ alias, canary, own: current, least }: FiguresProps) {
  const rows = [
    { version: `v${alias.canary}, canary`, stats: canary },
    { version: `v${alias.version}`, stats: current },
  ];
  return (
    <div>
      <Table
        label="Canary and current version since the canary started"
        className="tnum"
        columns={[
          ["Version", "bg-transparent pl-0!"],
          ["Requests", "bg-transparent text-right"],
          ["Failed", "bg-transparent text-right"],
          ["First token", "bg-transparent text-right"],
          ["Inter-token", "bg-transparent pr-0! text-right"],
        ]}
      >
        {rows.map(({ version, stats }) => (
          <Tr key={version}>
            <Td className="pl-0! font-medium">{version}</Td>
            <Td className="text-right">{number(stats.requests)}</Td>
            <Td className="text-right">{failed(stats)}</Td>
            <Td className="text-right">{ms(stats.first_token_ms)}</Td>
            <Td className="pr-0! text-right">{ms(stats.inter_token_ms)}</Td>
          </Tr>
        ))}
      </Table>
      <p className="mt-2 text-xs text-ink-3">
        Median latencies without adapter loading. The canary ends automatically when its error rate or latency is too
        high. It is not evaluated below {least} requests.
      </p>
    </div>
  );
}

function CanaryActions({ adapter, alias }: Omit<CanaryProps, "may">) {
  const tenant = useTenant();
  const promote = useSetAlias(tenant, adapter.name);
  const stop = useStopCanary(tenant, adapter.name);
  const version = alias.canary ?? 0;
  const name = `${adapter.name}@${alias.name}`;
  return (
    <div className="flex flex-wrap gap-2">
      <Button
        size="sm"
        busy={promote.isPending}
        onClick={() =>
          promote.mutate(
            { alias: alias.name, version },
            { onSuccess: () => toast.good(`${name} is v${version}`), onError: toast.bad },
          )
        }
      >
        <Rocket /> Promote v{version}
      </Button>
      <Button
        size="sm"
        busy={stop.isPending}
        onClick={() =>
          stop.mutate(alias.name, {
            onSuccess: () => toast.good(`All requests for ${name} go to v${alias.version} again`),
            onError: toast.bad,
          })
        }
      >
        End canary
      </Button>
    </div>
  );
}

interface StartProps {
  adapter: Adapter;
  alias: Alias;
  versions: VersionSummary[];
  onClose: () => void;
}

export function StartCanary({ adapter, alias, versions, onClose }: StartProps) {
  const [version, setVersion] = useState(versions[0]?.number ?? 0);
  const [percent, setPercent] = useState(5);
  const set = useSetCanary(useTenant(), adapter.name);
  return (
    <FormDialog
      onClose={onClose}
      title={`Canary for ${adapter.name}@${alias.name}`}
      description={`A share of requests goes to another version; the rest goes to v${alias.version}.`}

      write={set}
      action="Start canary"
      onSubmit={() => set.mutate({ alias: alias.name, version, percent }, { onSuccess: onClose })}
    >
      <Field label="Version">
        <Select
          value={version}
          onChange={({ target }) => setVersion(Number(target.value))}
          options={versions.map(({ number: each }): Option => [each, `v${each}`])}
        />
      </Field>
      <div className="grid gap-1.5">
        <p className="text-sm font-medium">
          Share: <span className="tnum">{percent}%</span>
        </p>
        <PercentSlider label="Share of the requests" value={percent} onChange={setPercent} />
      </div>
    </FormDialog>
  );
}
