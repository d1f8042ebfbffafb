import { Check, CircleAlert, RotateCw } from "lucide-react";
import type { StagingPhase, Placement, Version } from "@/api/types";
import { Badge } from "@/components/badge";
import { Progress } from "@/components/bars";
import { Button } from "@/components/button";
import { ErrorNotice } from "@/components/notices";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { bytes, eta, number, plural, rate } from "@/lib/format";
import { useVersionAction } from "./queries";
import { PHASE_TONES } from "./version-status";

const STEPS: { phase: StagingPhase; label: string }[] = [
  { phase: "queued", label: "Queued" },
  { phase: "downloading", label: "Downloading" },
  { phase: "verifying", label: "Verifying" },
  { phase: "loading", label: "Loading" },
  { phase: "ready", label: "Ready" },
];

/** Maximum placements that are shown step by step; of more, only those that are not ready. */
const MAX_HOSTS_IN_FULL = 4;
const URGENCY: StagingPhase[] = ["failed", "loading", "verifying", "downloading", "queued"];
const urgency = ({ phase }: Placement) => URGENCY.indexOf(phase);

/** Order of the phases in the list: failed first, then the most advanced. */
const toWatch = (placements: Placement[]) =>
  placements
    .filter(({ phase }) => phase !== "ready")
    .toSorted((a, b) => urgency(a) - urgency(b))
    .slice(0, MAX_HOSTS_IN_FULL);

/** Returns a summary such as "Ready on 30 of 41 hosts, failed on 1, queued on 10". */
function counts(placements: Placement[]): string {
  const of = (phase: StagingPhase) => placements.filter((placement) => placement.phase === phase).length;
  const others = URGENCY.filter((phase) => of(phase) > 0).map((phase) => `, ${phase} on ${number(of(phase))}`);
  return `Ready on ${number(of("ready"))} of ${plural(placements.length, "host")}${others.join("")}.`;
}

/** The placements of a version on all hosts, updated live. */
export function Staging({ version }: { version: Version }) {
  const waiting = version.placements.length === 0;
  const many = version.placements.length > MAX_HOSTS_IN_FULL;
  const shown = many ? toWatch(version.placements) : version.placements;
  return (
    <div data-testid="staging-status" data-state={version.state} aria-live="polite" className="grid gap-4">
      {waiting && <p className="text-sm text-ink-3">{WAITING[version.state]}</p>}
      {many && <p className="text-sm">{counts(version.placements)}</p>}
      {shown.map((placement) => (
        <HostStaging key={placement.host} placement={placement} />
      ))}
      {many && <AllHosts placements={version.placements} />}
      <Retry version={version} />
    </div>
  );
}

const WAITING: Record<Version["state"], string> = {
  validated: "Waiting for a host.",
  staging: "Waiting for a host.",
  ready: "Ready.",
  failed: "Not on any host.",
  archived: "Archived versions are not on any host.",
  deleted: "Deleted.",
};

function HostStaging({ placement }: { placement: Placement }) {
  return (
    <div className="rounded-lg border px-3.5 py-3">
      <div className="mb-3 flex flex-wrap items-baseline justify-between gap-x-4">
        <h4 className="text-sm font-medium">{placement.host}</h4>
        <p aria-live="off" className="tnum text-xs text-ink-3">
          {transfer(placement)}
        </p>
      </div>
      <Steps phase={placement.phase} />
      {moving(placement) && placement.bytes_total > 0 && (
        <Progress
          label={`Staging on ${placement.host}`}
          value={placement.bytes_done}
          max={placement.bytes_total}
          className="mt-3.5"
        />
      )}
      {placement.error && (
        <div className="mt-3 rounded-md bg-danger-soft px-3 py-2 text-sm">
          <p className="font-medium text-danger-text">{placement.error.message}</p>
          <p className="text-ink-2">{placement.error.fix}</p>
          {placement.phase !== "failed" && (
            <p className="mt-1 text-xs text-ink-2">Attempt {placement.attempts}; it is retried automatically.</p>
          )}
        </div>
      )}
    </div>
  );
}

function AllHosts({ placements }: { placements: Placement[] }) {
  return (
    <details className="rounded-lg border" aria-live="off">
      <summary className="cursor-pointer px-3.5 py-2 text-sm text-ink-2 select-none">
        All {plural(placements.length, "host")}
      </summary>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard */}
      <ul tabIndex={0} aria-label="Hosts" className="max-h-80 divide-y overflow-y-auto border-t -outline-offset-2">
        {placements.map((placement) => (
          <li key={placement.host} className="flex flex-wrap items-center gap-x-3 gap-y-1 px-3.5 py-1.5 text-sm">
            <span className="min-w-0 wrap-anywhere">{placement.host}</span>
            <Badge tone={PHASE_TONES[placement.phase]}>{placement.phase}</Badge>
            <span className="tnum ml-auto text-xs text-ink-3">{transfer(placement)}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

const moving = ({ phase }: Placement) => phase !== "ready" && phase !== "failed";

/** Returns the progress of a download, such as "12 MB of 40 MB · 18 MB/s · 2 s left", as far as it is known. */
function transfer(placement: Placement): string {
  const { phase, bytes_done: done, bytes_total: total, rate: speed } = placement;
  if (phase === "ready") return total > 0 ? bytes(total) : "";
  if (phase === "failed" || total === 0) return "";
  const parts = [`${bytes(done)} of ${bytes(total)}`];
  if (speed && done < total) parts.push(rate(speed), eta((total - done) / speed));
  return parts.join(" · ");
}

function Steps({ phase }: { phase: StagingPhase }) {
  const at = STEPS.findIndex((step) => step.phase === phase);
  const failed = phase === "failed";
  return (
    <ol className="grid grid-cols-5 gap-1.5">
      {STEPS.map((step, index) => {
        const done = index < at || phase === "ready";
        const current = index === at && !done;
        return (
          <li key={step.phase} aria-current={current ? "step" : undefined} className="min-w-0">
            <span
              className={cn(
                "mb-1.5 block h-1 rounded-full",
                done ? "bg-series-1" : current ? "animate-shimmer bg-blue" : failed ? "bg-danger/30" : "bg-fill-2",
              )}
            />
            <span
              className={cn(
                "flex items-center gap-1 text-2xs sm:text-xs",
                done ? "text-ink-2" : current ? "font-medium text-blue-text" : "text-ink-3",
              )}
            >
              {done && <Check className="hidden size-3 text-accent-text sm:block" aria-label="done:" />}
              <span className={cn("truncate", !current && index < STEPS.length - 1 && "max-sm:sr-only")}>
                {step.label}
              </span>
            </span>
          </li>
        );
      })}
      {failed && (
        <li className="col-span-5 mt-1 flex items-center gap-1.5 text-xs font-medium text-danger-text">
          <CircleAlert className="size-3.5" aria-hidden /> Staging failed
        </li>
      )}
    </ol>
  );
}

function Retry({ version }: { version: Version }) {
  const restage = useVersionAction(useTenant(), version.adapter, "restage");
  const may = useCan("adapters.write");
  const broken = version.state === "failed" || version.placements.some(({ phase }) => phase === "failed");
  if (!broken || !may) return null;
  return (
    <div className="grid gap-3">
      <ErrorNotice error={restage.error} />
      <div>
        <Button
          busy={restage.isPending}
          onClick={() => restage.mutate(version.number, { onSuccess: () => toast.good("Staging restarted") })}
        >
          <RotateCw /> Retry staging
        </Button>
      </div>
    </div>
  );
}
