import { Pin as PinIcon } from "lucide-react";
import { Suspense, useState } from "react";
import type { HostPrefix, Prefix, TenantPins } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { Progress } from "@/components/bars";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm, Dialog } from "@/components/dialog";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { toastThen } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { bytes, number, percent, plural } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";
import { pinsQuery, prefixQuery, useUnpinPrefix } from "./queries";

const PinPrefix = lazyPart(() => import("./pin-prefix"), "PinPrefix");

const NOTE = "Kept in the KV cache of the hosts, so that requests do not compute them again.";

/** The pinned prefixes of one adapter. */
export function AdapterPrefixes({ name }: { name: string }) {
  const { data, error, refetch } = useQuery(pinsQuery(useTenant()));
  const prefixes = data?.prefixes.filter((prefix) => prefix.model === name);
  return (
    <Card
      aria-label="Pinned prefixes"
      title="Pinned prefixes"
      note={NOTE}
      actions={data && <PinButton pins={data} model={name} />}
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !prefixes && <Skeleton className="m-4 h-12" />}
      {prefixes && prefixes.length > 0 ? <Prefixes prefixes={prefixes} /> : data && <Nothing pins={data} />}
    </Card>
  );
}

/** All pinned adapters and prefixes of the tenant, and its quota. */
export function PinsCard() {
  const { data, error, refetch } = useQuery(pinsQuery(useTenant()));
  return (
    <Card
      aria-label="Pinned memory"
      title="Pinned memory"
      note="Adapters and prompt prefixes kept in the device memory of hosts"
      actions={data && <PinButton pins={data} />}
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <Skeleton className="m-4 h-12" />}
      {data && <Quota pins={data} />}
      {data && data.adapters.length > 0 && (
        <ul aria-label="Pinned adapters" className="divide-y border-t text-sm">
          {data.adapters.map((adapter) => (
            <li key={adapter.name} className="flex min-h-row flex-wrap items-center justify-between gap-x-3 px-4 py-1">
              <span className="min-w-0 font-medium break-all">{adapter.name}</span>
              <span className="tnum text-ink-3">adapter, {adapter.bytes ? bytes(adapter.bytes) : "on no host"}</span>
            </li>
          ))}
        </ul>
      )}
      {data && data.prefixes.length > 0 && <Prefixes prefixes={data.prefixes} showsModel />}
    </Card>
  );
}

function Quota({ pins }: { pins: TenantPins }) {
  if (!pins.limit_bytes)
    return (
      <p className="px-4 py-3 text-sm text-ink-3">The operator has granted this tenant no device memory for pins.</p>
    );
  const text = `${bytes(pins.used_bytes)} of ${bytes(pins.limit_bytes)} of each host’s device memory`;
  return (
    <div className="grid gap-1.5 px-4 py-3 text-sm">
      <Progress
        label={`Pinned memory: ${percent(pins.used_bytes, pins.limit_bytes)} used`}
        value={pins.used_bytes}
        max={pins.limit_bytes}
        tone={pins.used_bytes > pins.limit_bytes * 0.8 ? "danger" : "accent"}
      />
      <p className="text-xs text-ink-3">{text}</p>
    </div>
  );
}

function Nothing({ pins }: { pins: TenantPins }) {
  return (
    <p className="px-4 py-3 text-sm text-ink-3">
      {pins.limit_bytes
        ? "No pinned prefixes. Pin a long system prompt or document that many requests start with."
        : "The operator has granted this tenant no device memory for pins."}
    </p>
  );
}

function PinButton({ pins, model }: { pins: TenantPins; model?: string }) {
  const may = useCan("adapters.write");
  const [open, setOpen] = useState(false);
  if (!may || !pins.limit_bytes) return null;
  return (
    <>
      <Button size="sm" onClick={() => setOpen(true)}>
        <PinIcon /> Pin a prefix
      </Button>
      <Suspense>{open && <PinPrefix model={model} onClose={() => setOpen(false)} />}</Suspense>
    </>
  );
}

function Prefixes({ prefixes, showsModel = false }: { prefixes: Prefix[]; showsModel?: boolean }) {
  const [shown, setShown] = useState<string | null>(null);
  const [going, setGoing] = useState<string | null>(null);
  const may = useCan("adapters.write");
  return (
    <>
      <ul aria-label="Prefixes" className="max-h-120 divide-y overflow-y-auto border-t text-sm">
        {prefixes.map((prefix) => (
          <li key={prefix.name} className="grid gap-2 px-4 py-2.5 sm:grid-cols-[minmax(0,1fr)_auto] sm:items-center">
            <div className="min-w-0">
              <p className="font-medium break-all">{prefix.name}</p>
              <p className="tnum text-xs break-words text-ink-3">{facts(prefix, showsModel)}</p>
              <Hosts hosts={prefix.hosts} />
            </div>
            {may && (
              <div className="flex gap-2">
                <Button size="sm" onClick={() => setShown(prefix.name)} aria-label={`Show text of ${prefix.name}`}>
                  Show text
                </Button>
                <Button size="sm" onClick={() => setGoing(prefix.name)} aria-label={`Unpin ${prefix.name}`}>
                  Unpin
                </Button>
              </div>
            )}
          </li>
        ))}
      </ul>
      {shown && <PrefixText name={shown} onClose={() => setShown(null)} />}
      {going && <Unpin name={going} onClose={() => setGoing(null)} />}
    </>
  );
}

function facts(prefix: Prefix, showsModel: boolean): string {
  const model = showsModel ? [prefix.model || "a base model that is not served"] : [];
  const salt = prefix.cache_salt ? [`salt ${prefix.cache_salt}`] : [];
  return [...model, `${number(prefix.tokens)} tokens`, `${bytes(prefix.bytes)} of each host`, ...salt].join(" · ");
}

const STATES: Record<HostPrefix["state"], [tone: "green" | "amber" | "danger" | "neutral", text: string]> = {
  kept: ["green", "kept"],
  computing: ["amber", "computing"],
  no_room: ["amber", "no memory left: older pins use it"],
  over_quota: ["amber", "beyond the quota"],
  failed: ["danger", "failed"],
  off: ["neutral", "does not support prefixes"],
  waiting: ["amber", "not sent yet"],
};

/** Maximum number of hosts that are each named; more are grouped by state. */
const MAX_HOSTS_IN_FULL = 4;

/** Returns hosts in the same state as one group, if there are many. */
function grouped(hosts: HostPrefix[]): { names: string[]; of: HostPrefix }[] {
  if (hosts.length <= MAX_HOSTS_IN_FULL) return hosts.map((of) => ({ names: [of.host], of }));
  const groups = new Map<string, { names: string[]; of: HostPrefix }>();
  for (const of of hosts) {
    const key = JSON.stringify([of.state, of.error]);
    const group = groups.get(key) ?? { names: [], of };
    group.names.push(of.host);
    groups.set(key, group);
  }
  return [...groups.values()];
}

function Hosts({ hosts }: { hosts: HostPrefix[] }) {
  if (!hosts.length)
    return (
      <p className="mt-1 text-xs text-ink-3">No host has it now. It will be kept on the next host that is available.</p>
    );
  return (
    <ul className="mt-1.5 flex flex-wrap gap-1.5" aria-label="Hosts">
      {grouped(hosts).map(({ names, of: { host, state, error } }) => (
        <li key={host} className="min-w-0" title={names.length > 1 ? names.join(", ") : undefined}>
          <Badge tone={STATES[state][0]}>
            {names.length > 1 ? plural(names.length, "host") : host}: {STATES[state][1]}
          </Badge>
          {error && (
            <p className="mt-1 text-xs break-words text-danger-text">
              {error.message} {error.fix}
            </p>
          )}
        </li>
      ))}
    </ul>
  );
}

function PrefixText({ name, onClose }: { name: string; onClose: () => void }) {
  const { data, error } = useQuery(prefixQuery(useTenant(), name));
  const parts = data?.content.messages ?? [{ role: "prompt", content: data?.content.prompt ?? "" }];
  return (
    <Dialog
      onClose={onClose}
      title={name}
      description="Stored until you unpin it, for hosts that start or join later."
      className="max-w-2xl!"
      done
    >
      <ErrorNotice error={error} />
      {!error && !data && <Skeleton className="h-24" />}
      {data && (
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
        <dl tabIndex={0} aria-label="Text" className="grid max-h-96 gap-3 overflow-y-auto text-sm">
          {parts.map(({ role, content }, index) => (
            <div key={index}>
              <dt className="text-xs text-ink-3">{role}</dt>
              <dd className="break-words whitespace-pre-wrap">{content}</dd>
            </div>
          ))}
          {data.content.tools && (
            <div>
              <dt className="text-xs text-ink-3">tools</dt>
              <dd className="font-mono text-xs break-words whitespace-pre-wrap">
                {JSON.stringify(data.content.tools, null, 2)}
              </dd>
            </div>
          )}
        </dl>
      )}
    </Dialog>
  );
}

function Unpin({ name, onClose }: { name: string; onClose: () => void }) {
  const unpin = useUnpinPrefix(useTenant());
  const confirm = () => unpin.mutate(name, toastThen(`Unpinned ${name}`, onClose));
  return (
    <Confirm
      onClose={onClose}
      title={`Unpin ${name}?`}
      description="The stored text is deleted, and hosts may evict the prefix. Requests that start with it still work, but compute it again."
      action="Unpin"
      write={unpin}
      onConfirm={confirm}
    />
  );
}
