import { useEffect, useRef, useState } from "react";
import type { OperatorHost } from "@/api/types";
import { Confirm } from "@/components/dialog";
import { Field, type Option, Select } from "@/components/field";
import { toast } from "@/components/toast";
import { isUsed } from "@/features/hosts/host-status";
import { milliseconds, number, plural } from "@/lib/format";
import { useNow } from "@/lib/use-now";
import { useRestartHost } from "./queries";

const WAITS = [
  { seconds: 0, label: "not at all" },
  { seconds: 60, label: "1 minute at most" },
  { seconds: 300, label: "5 minutes at most" },
  { seconds: 3600, label: "1 hour at most" },
];
const LONG_MS = 120_000;

interface DialogProps {
  host: OperatorHost;
  others: OperatorHost[];
  onClose: () => void;
}

export function RestartDialog({ host, others, onClose }: DialogProps) {
  const restart = useRestartHost();
  const [wait, setWait] = useState(300);
  const last = isUsed(host) && !others.some(isUsed);
  const confirm = () => restart.mutate({ host: host.name, wait_s: wait }, { onSuccess: onClose });
  return (
    <Confirm
      onClose={onClose}
      title={`Restart ${host.name}?`}
      description="The engine stops accepting requests, finishes running ones and exits. Its supervisor (make run, Docker, Kubernetes, systemd) starts it again, and it reloads its adapters. Its service state (serving, cordoned or drained) does not change."
      action="Restart"
      write={restart}
      onConfirm={confirm}
    >
      <div className="mt-4">
        <Field
          label={`Wait for requests there (${number(host.running + host.waiting)} now)`}
          hint="Interrupted answers continue on another host, or here after the restart."
        >
          <Select
            value={wait}
            onChange={(event) => setWait(Number(event.target.value))}
            options={WAITS.map(({ seconds, label }): Option => [seconds, label])}
          />
        </Field>
      </div>
      {last && (
        <p className="mt-3 text-sm font-medium text-danger-text">
          No other host serves its base model: every new request for it will be refused with 503 until it is back.
        </p>
      )}
      {!last && host.only_here > 0 && (
        <p className="mt-3 text-sm font-medium text-danger-text">
          {plural(host.only_here, "adapter version")} that are on no other host cannot be called until then.
        </p>
      )}
    </Confirm>
  );
}

/** The progress of a restart, until the host is back. */
export function RestartProgress({ host }: { host: OperatorHost }) {
  const now = useNow(1000);
  if (!host.restart) return null;
  const since = Math.max(0, now - Date.parse(host.restart.asked_at));
  return (
    <p role="status" className="basis-full text-xs text-ink-2">
      Restart requested {wholeSeconds(since)} ago: {describe(host, host.restart, since)}
    </p>
  );
}

const wholeSeconds = (ms: number) => (ms < 60_000 ? `${Math.floor(ms / 1000)} s` : milliseconds(ms - (ms % 1000)));

function describe(host: OperatorHost, { phase, wait_s }: NonNullable<OperatorHost["restart"]>, since: number): string {
  const busy = host.running + host.waiting;
  const left = wait_s * 1000 - since;
  if (phase === "asked") return "waiting for the engine to confirm.";
  if (phase === "starting") {
    const hint =
      since - wait_s * 1000 > LONG_MS ? " The engine has not started. Start it on its machine and check its log." : "";
    return `the engine has exited; waiting for it to start.${hint}`;
  }
  if (busy === 0) return "no requests are running; the engine is shutting down.";
  return `${plural(busy, "request")} still running${left > 0 ? `, for ${wholeSeconds(left + 999)} at most` : ""}.`;
}

/** Shows a message when a restarted host is back. */
export function useRestartToast(hosts: OperatorHost[] | undefined): void {
  const restarting = useRef(new Map<string, string>());
  useEffect(() => {
    for (const host of hosts ?? []) {
      const requestedAt = restarting.current.get(host.name);
      if (host.restart) restarting.current.set(host.name, host.restart.asked_at);
      else if (requestedAt !== undefined) {
        restarting.current.delete(host.name);
        toast.good(
          `${host.name} is back`,
          `${wholeSeconds(Date.now() - Date.parse(requestedAt))} after the restart was requested.`,
        );
      }
    }
  }, [hosts]);
}
