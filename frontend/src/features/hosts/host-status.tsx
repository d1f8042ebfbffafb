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

/** Whether requests and adapters go there. */
export const isUsed = (host: Shown) => host.state === "online" && host.service === "serving" && !host.quarantine;

/** Whether what it says of itself is of now: one that is away or was revoked said it when it was last heard. */
export const isHeard = (host: Pick<Host, "state" | "quarantine">) =>
  (host.state === "online" || host.state === "draining") && host.quarantine?.code !== "revoked";

/** Its state; one in quarantine answers, but is not used. */
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
  /** Says of which hosts it is, where several are shown: this one and others for the same reason. */
  named?: string[];
}

/** Of so many, each name is said. */
const MAX_NAMES = 4;

/** Why a host is not used, and what to do, in the server's own words. */
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
