import { ShieldAlert } from "lucide-react";
import type { Host } from "@/api/types";
import { Status, type Tone } from "@/components/badge";

const TONES: Record<Host["state"], Tone> = {
  online: "green",
  draining: "amber",
  offline: "danger",
  unknown: "neutral",
};

type Shown = Pick<Host, "state" | "service" | "quarantine" | "running" | "restart">;

/** Returns whether the host receives requests and adapters. */
export const isUsed = (host: Shown) => host.state === "online" && host.service === "serving" && !host.quarantine;

/** Returns whether the reported figures are current: a host that is offline or revoked reported them earlier. */
export const isHeard = (host: Pick<Host, "state" | "quarantine">) =>
  (host.state === "online" || host.state === "draining") && host.quarantine?.code !== "revoked";

/** The state of a host. A host in quarantine is reachable but not used. */
export function HostStatus({ host }: { host: Shown }) {
  const up = host.state === "online" || host.state === "draining";
  if (host.restart) return <Status tone="amber" label="restarting" live={up} />;
  if (host.quarantine?.code === "revoked") return <Status tone="danger" label="revoked" />;
  if (host.quarantine && up) return <Status tone="amber" label="quarantine" />;
  if (host.service !== "serving" && up) return <Status tone="amber" label={host.service} live={host.running > 0} />;
  return <Status tone={TONES[host.state]} label={host.state} live={host.running > 0} />;
}

interface QuarantineProps {
  host: Pick<Host, "name" | "quarantine">;
  /** Names of the hosts that have the same problem, if several are shown. */
  named?: string[];
}

/** Maximum number of hosts whose names are all listed. */
const MAX_NAMES = 4;

/** The reason why a host is not used and the fix, in the words of the server. */
export function QuarantineNotice({ host, named = [] }: QuarantineProps) {
  const { name, quarantine } = host;
  if (!quarantine) return null;
  const left = named.length - MAX_NAMES;
  return (
    <div
      role="note"
      aria-label={`Quarantine of ${named.join(", ") || name}`}
      className="flex gap-2.5 border-b bg-amber-soft px-4 py-3 text-sm"
    >
      <ShieldAlert className="mt-0.5 size-4 shrink-0 text-amber-text" aria-hidden />
      <div className="min-w-0">
        <p className="font-medium break-words text-amber-text">
          {named.length > 0 && (
            <span
              title={named.join(", ")}
            >{`${named.slice(0, MAX_NAMES).join(", ")}${left > 0 ? ` and ${left} more` : ""}: `}</span>
          )}
          {quarantine.message}
        </p>
        <p className="mt-0.5 break-words text-ink-2">It receives no adapters and no requests. {quarantine.fix}</p>
      </div>
    </div>
  );
}
