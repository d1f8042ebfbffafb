import { useState } from "react";
import type { Version } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { type Column, Table, Td, Tr } from "@/components/table";
import { coldStart } from "@/features/hosts/cold-start";
import { TIERS } from "@/features/hosts/tiers";
import { useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { number, percent } from "@/lib/format";
import { tiersQuery } from "./queries";

/** Hosts that are shown at first, those with the adapter nearest to the device. */
const MAX_HOSTS_IN_FULL = 5;
const PLACES = ["device", "host", "disk", "store"] as const;

/** The tier of a ready version on each host, and how long a first request would wait there from each tier. */
export function Tiers({ version }: { version: Version }) {
  const { data, error, refetch } = useQuery({
    ...tiersQuery(useTenant(), version.adapter, version.number),
    enabled: version.state === "ready",
  });
  const [all, setAll] = useState(false);
  if (version.state !== "ready") return null;
  const many = !all && data !== undefined && data.length > MAX_HOSTS_IN_FULL;
  const shown = many
    ? data.toSorted((a, b) => PLACES.indexOf(a.tier) - PLACES.indexOf(b.tier)).slice(0, MAX_HOSTS_IN_FULL)
    : data;
  // Only hosts with `--expert-residency` report them, of adapters on experts that are on the device.
  const withExperts = data?.some(({ experts }) => experts !== null) ?? false;
  return (
    <section className="border-t pt-4">
      <h3 className="px-4 text-sm font-semibold">Cold start</h3>
      <p className="mt-1 mb-2 px-4 text-xs text-ink-3">
        How long a request would wait for the adapter to load, without the queue. Predicted from the load times of each
        host since its engine started.
      </p>
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <Skeleton className="m-4 h-16" />}
      {data?.length === 0 && <p className="px-4 pb-4 text-sm text-ink-3">No host serves this version now.</p>}
      {data && data.length > 0 && (
        <Table
          label="Cold start by tier"
          columns={["Host", "Now", ...PLACES.map((place): Column => [TIERS[place].from, "text-right"])]}
        >
          {shown?.map(({ host, tier, experts, by_tier }) => (
            <Tr key={host}>
              <Td className="max-w-48 truncate font-medium" title={host}>
                {host}
              </Td>
              <Td>
                <Badge tone={TIERS[tier].tone}>{TIERS[tier].label}</Badge>
                {experts && (
                  <div
                    className="tnum mt-1 text-xs text-ink-3"
                    title={`${number(experts.resident)} of ${number(experts.total)} in the page pool`}
                  >
                    {percent(experts.resident, experts.total)} of experts
                  </div>
                )}
              </Td>
              {PLACES.map((place) => (
                <Td key={place} className={cn("tnum text-right", place === tier ? "font-medium" : "text-ink-3")}>
                  {coldStart(by_tier[place])}
                </Td>
              ))}
            </Tr>
          ))}
        </Table>
      )}
      {withExperts && (
        <p className="px-4 py-2.5 text-xs text-ink-3">
          The share of its experts in the page pool. The others are read from host memory: answers are the same, and
          take longer.
        </p>
      )}
      {many && (
        <div className="flex flex-wrap items-center gap-3 border-t px-4 py-2 text-xs text-ink-3">
          Hosts where the adapter is closest to the device.
          <Button size="sm" variant="ghost" onClick={() => setAll(true)}>
            Show all {data.length} hosts
          </Button>
        </div>
      )}
    </section>
  );
}
