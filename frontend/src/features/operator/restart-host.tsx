import { useEffect, useRef, useState } from "react";
import { asApiError } from "@/api/errors";
import type { OperatorHost } from "@/api/types";
import { Confirm } from "@/components/dialog";
import { Field, Select } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
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
      open
      onOpenChange={(open) => !open && onClose()}
      title={`Restart ${host.name}?`}
      description="Its engine takes nothing new, lets what runs there end, and ends. What supervises it (make run, Docker, Kubernetes, systemd) starts it again; then its adapters are loaded anew. It stays as it is otherwise: serving, cordoned or drained."
      action="Restart"
      busy={restart.isPending}
      onConfirm={confirm}
    >
      <div className="mt-4">
        <Field
          label={`Wait for requests there (${number(host.running + host.waiting)} now)`}
          hint="Answers that are cut off go on at another host, or here when it is back."
        >
          {(control) => (
            <Select {...control} value={wait} onChange={(event) => setWait(Number(event.target.value))}>
              {WAITS.map(({ seconds, label }) => (
                <option key={seconds} value={seconds}>
                  {label}
                </option>
              ))}
            </Select>
          )}
        </Field>
      </div>
      {last && (
        <p className="mt-3 text-sm font-medium text-danger-text">
          No other host serves its base model: every new request for it will be refused with 503 until it is back.
        </p>
      )}
      {!last && host.only_here > 0 && (
        <p className="mt-3 text-sm font-medium text-danger-text">
          {plural(host.only_here, "adapter version")} on no other host cannot be called meanwhile.
        </p>
      )}
      {restart.error && <ErrorNotice error={asApiError(restart.error)} className="mt-3" />}
    </Confirm>
  );
}

/** What a restart is at, until the host is back. */
export function RestartProgress({ host }: { host: OperatorHost }) {
  const now = useNow(1000);
  if (!host.restart) return null;
  const since = Math.max(0, now - Date.parse(host.restart.asked_at));
  return (
    <p role="status" className="basis-full text-xs text-ink-2">
      Restart asked {wholeSeconds(since)} ago: {describe(host, host.restart, since)}
    </p>
  );
}

const wholeSeconds = (ms: number) => (ms < 60_000 ? `${Math.floor(ms / 1000)} s` : milliseconds(ms - (ms % 1000)));

function describe(host: OperatorHost, { phase, wait_s }: NonNullable<OperatorHost["restart"]>, since: number): string {
  const busy = host.running + host.waiting;
  const left = wait_s * 1000 - since;
  if (phase === "asked") return "its engine is being told.";
  if (phase === "starting") {
    const hint =
      since - wait_s * 1000 > LONG_MS
        ? " Nothing has started it so far: start it where it runs, and look into its log."
        : "";
    return `its engine has ended and is waited for.${hint}`;
  }
  if (busy === 0) return "nothing runs there any more; its engine ends.";
  return `${plural(busy, "request")} may still end${left > 0 ? `, for ${wholeSeconds(left + 999)} at most` : ""}.`;
}

/** Says so when a host that was restarted is back. */
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
          `${wholeSeconds(Date.now() - Date.parse(requestedAt))} after the restart was asked for.`,
        );
      }
    }
  }, [hosts]);
}
