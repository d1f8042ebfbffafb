import { Link } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import type { BaseModel, OperatorHost } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { HiddenTh, Table, Td, Tr } from "@/components/table";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { HostStatus, QuarantineNotice } from "@/features/hosts/host-status";
import { useTenant } from "@/features/session/queries";
import { shortDigest } from "@/lib/format";
import { allHostsQuery, baseModelQuery, baseModelsQuery, useSetBaseModel } from "./queries";

/** The base model that this installation serves, the hosts with another one, and buttons to switch to it. */
export function BaseModelCard() {
  const base = useQuery(baseModelQuery);
  const served = (useQuery(baseModelsQuery).data ?? []).filter(({ state }) => state === "served");
  const hosts = useQuery(allHostsQuery);
  const [chosen, setChosen] = useState<OperatorHost | null>(null);
  const error = base.error ?? hosts.error;
  const retry = () => void Promise.all([base.refetch(), hosts.refetch()]);
  return (
    <Card aria-label="Base model">
      {served.length > 1 ? (
        <CardHeader title="Base models" note={<Several count={served.length} />} />
      ) : (
        <CardHeader
          title="Base model"
          note={base.data === undefined ? "The base model that this installation serves" : <Served base={base.data} />}
        />
      )}
      <ErrorNotice error={error} onRetry={retry} className="m-4" />
      {!error && !hosts.data && <SkeletonRows rows={2} />}
      {hosts.data?.length === 0 && (
        <p className="px-4 py-8 text-center text-sm text-ink-3">No engine host is configured.</p>
      )}
      {hosts.data && listed(hosts.data).length > 0 && <Hosts hosts={listed(hosts.data)} onChoose={setChosen} />}
      {hosts.data && hosts.data.length > MAX_LISTED_HOSTS && <More hosts={hosts.data} />}
      {chosen && (
        <Decide host={chosen} current={base.data ?? null} others={served.length > 1} onClose={() => setChosen(null)} />
      )}
    </Card>
  );
}

function Served({ base }: { base: BaseModel | null }): ReactNode {
  if (!base)
    return "Not decided yet. It will be the base model of the first host in LORIKEET_ENGINE_HOSTS, or the one that you choose here";
  return (
    <>
      {base.name} <span className="font-mono">{shortDigest(base.digest)}</span>, decided by {base.decided_by}{" "}
      <RelativeTime at={base.decided_at} />
      {base.adapters_of.length > 0 && (
        <>
          ; with adapters of <span className="font-mono">{base.adapters_of.map(shortDigest).join(", ")}</span>
        </>
      )}
    </>
  );
}

function Several({ count }: { count: number }): ReactNode {
  const tenant = useTenant();
  return (
    <>
      {count} are served. Manage them under{" "}
      <Link to="/t/$tenant/operator/hosts" params={{ tenant }} className="underline underline-offset-2">
        Hosts & staging
      </Link>
      .
    </>
  );
}

// Hosts up to which the card lists all of them. With more, the figures of the page would be far below.
const MAX_LISTED_HOSTS = 8;

/** Returns the hosts of the card: all, or if there are many, those that need a decision. */
const listed = (hosts: OperatorHost[]) =>
  hosts.length > MAX_LISTED_HOSTS ? hosts.filter(({ quarantine }) => quarantine) : hosts;

function More({ hosts }: { hosts: OperatorHost[] }) {
  const tenant = useTenant();
  return (
    <p className="px-4 py-3 text-sm text-ink-3">
      {listed(hosts).length > 0 ? "The hosts above need a decision." : "No host needs a decision."}{" "}
      <Link to="/t/$tenant/operator/hosts" params={{ tenant }} className="underline underline-offset-2">
        All {hosts.length} hosts
      </Link>
    </p>
  );
}

/** Returns the hosts in quarantine, grouped by the reason. */
function reasons(hosts: OperatorHost[]): OperatorHost[][] {
  const groups = new Map<string, OperatorHost[]>();
  for (const host of hosts.filter(({ quarantine }) => quarantine)) {
    const key = JSON.stringify(host.quarantine);
    groups.set(key, [...(groups.get(key) ?? []), host]);
  }
  return [...groups.values()];
}

function Hosts({ hosts, onChoose }: { hosts: OperatorHost[]; onChoose: (host: OperatorHost) => void }) {
  return (
    <>
      {reasons(hosts).map((group) => (
        <QuarantineNotice key={group[0]!.name} host={group[0]!} named={group.map(({ name }) => name)} />
      ))}
      <Table
        label="Engine hosts"
        columns={[
          "Host",
          "State",
          "Base model",
          ["Address", "hidden lg:table-cell"],
          ["Seen", "hidden md:table-cell"],
          <HiddenTh label="Decide" />,
        ]}
      >
        {hosts.map((host) => (
          <Tr key={host.name}>
            <Td className="font-medium">
              <span className="block max-w-40 truncate sm:max-w-72" title={host.name}>
                {host.name}
              </span>
            </Td>
            <Td>
              <HostStatus host={host} />
            </Td>
            <Td>
              <span className="flex max-w-72 items-baseline gap-1.5" title={host.model}>
                {host.model ? (
                  <bdi className="truncate">{host.model}</bdi>
                ) : (
                  <span className="text-ink-3">never seen</span>
                )}
                <span className="hidden font-mono text-2xs text-ink-3 sm:inline">{shortDigest(host.base_digest)}</span>
              </span>
            </Td>
            <Td className="hidden font-mono text-xs text-ink-2 lg:table-cell">{host.address}</Td>
            <Td className="hidden text-ink-2 md:table-cell">
              <RelativeTime at={host.last_seen} />
            </Td>
            <Td className="text-right">
              {host.quarantine && (
                <Button size="sm" onClick={() => onChoose(host)}>
                  Serve this model
                </Button>
              )}
            </Td>
          </Tr>
        ))}
      </Table>
    </>
  );
}

interface DecideProps {
  host: OperatorHost;
  current: BaseModel | null;
  /** True if several base models are served now. */
  others: boolean;
  onClose: () => void;
}

function Decide({ host, current, others, onClose }: DecideProps) {
  const decide = useSetBaseModel();
  const [keep, setKeep] = useState(false);
  const isOther = current !== null && current.digest !== host.base_digest;
  const confirm = () =>
    decide.mutate(
      { host: host.name, keep_adapters: keep },
      {
        onSuccess: (base) => {
          toast.good(`${base.name} is now the base model`);
          onClose();
        },
      },
    );
  return (
    <Confirm
      onClose={onClose}
      title={`Serve ${host.model} of ${host.name}?`}
      description={
        others
          ? "It replaces all base models served now, and their hosts go into quarantine immediately. To serve it in addition, approve it under Hosts & staging."
          : current
            ? "Hosts with another base model go into quarantine immediately: they receive no adapters and no requests until they are started with this model."
            : "This installation will serve this model. Hosts with another base model go into quarantine."
      }
      action="Serve this model"
      write={decide}
      onConfirm={confirm}
    >
      {isOther && (
        <label className="mt-3 flex items-start gap-2.5 text-sm">
          <input
            type="checkbox"
            checked={keep}
            onChange={(event) => setKeep(event.target.checked)}
            className="mt-0.5 size-4 shrink-0 accent-(--accent)"
          />
          <span>
            Keep the adapters of {others ? "all of them" : current.name}
            <span className="block text-xs text-ink-3">
              Choose this only if it is the same model saved again. Otherwise the adapters fail, and their owners must
              upload adapters for this model.
            </span>
          </span>
        </label>
      )}
    </Confirm>
  );
}
