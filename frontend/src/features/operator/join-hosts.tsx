import { useState } from "react";
import type { CreatedJoinToken, JoinToken, OperatorHost } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Confirm, FormDialog } from "@/components/dialog";
import { Field, Input, Select } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { Secret } from "@/components/secret";
import { toastThen } from "@/components/toast";
import { isUsed } from "@/features/hosts/host-status";
import { fullTime, plural } from "@/lib/format";
import { useNow } from "@/lib/use-now";
import { joinTokensQuery, useCreateJoinToken, useForgetHost, useRevokeHost, useWithdrawJoinToken } from "./queries";

const LIFETIMES = [
  [900, "15 minutes"],
  [3600, "1 hour"],
  [86_400, "1 day"],
  [604_800, "1 week"],
] as const;

/** The dialog that creates a token with which one machine joins as an engine host. */
export function AddHost({ onClose }: { onClose: () => void }) {
  const create = useCreateJoinToken();
  const [host, setHost] = useState("");
  const [seconds, setSeconds] = useState(3600);
  return (
    <FormDialog
      onClose={onClose}
      title="Add a host"
      description="Creates a token that one machine can use once to join."
      write={create}
      action="Create token"
      onSubmit={() => create.mutate({ host: host.trim(), expires_s: seconds })}
      result={create.data && { title: "Start its engine", content: <JoinCommand made={create.data} /> }}
    >
      <Field
        label="Name (optional)"
        hint="Enter the name of an existing host to replace it. If empty, the machine chooses its own name, which must be new."
      >
        <Input value={host} onChange={(event) => setHost(event.target.value)} autoComplete="off" maxLength={63} />
      </Field>
      <Field label="Valid for">
        <Select value={seconds} onChange={(event) => setSeconds(Number(event.target.value))} options={LIFETIMES} />
      </Field>
    </FormDialog>
  );
}

function JoinCommand({ made }: { made: CreatedJoinToken }) {
  const command = `python -m lora_engine --model MODEL_FOLDER --device cuda --listen 0.0.0.0:7000 --data-dir /var/lib/lorikeet-engine --join ${made.join_url} --token ${made.token}`;
  return (
    <>
      <Secret value={command} label="Copy the command" testId="join-command">
        The token is not shown again. It lets one machine join until {fullTime(made.expires_at)}.
      </Secret>
      <p className="text-sm text-ink-2">
        Run this command on the new machine, with the folder of its model and the extra{" "}
        <code className="font-mono text-xs">join</code> installed. The host appears here a few seconds after its model
        is loaded. Later restarts do not need the token.
      </p>
    </>
  );
}

/** The unused join tokens. */
export function OpenTokens() {
  const { data, error, refetch } = useQuery(joinTokensQuery);
  const [withdrawing, setWithdrawing] = useState<string | null>(null);
  const open = (data ?? []).filter(({ state }) => state === "open");
  const chosen = open.find(({ id }) => id === withdrawing);
  if (error) return <ErrorNotice error={error} onRetry={refetch} className="m-4" />;
  if (open.length === 0) return null;
  return (
    <ul className="divide-y border-t bg-fill" aria-label="Open join tokens">
      {open.map((token) => (
        <li key={token.id} className="flex flex-wrap items-center gap-x-4 gap-y-2 px-4 py-2 text-sm">
          <span className="min-w-0 flex-1 break-words text-ink-2">
            {token.host ? `A machine may join as ${token.host}` : "A machine may join"} until{" "}
            {fullTime(token.expires_at)}, by a token of {token.created_by}.
          </span>
          <Button
            size="sm"
            aria-label={`Revoke the token of ${token.created_by}${token.host && ` for ${token.host}`}`}
            onClick={() => setWithdrawing(token.id)}
          >
            Revoke
          </Button>
        </li>
      ))}
      {chosen && <Withdraw token={chosen} onClose={() => setWithdrawing(null)} />}
    </ul>
  );
}

function Withdraw({ token, onClose }: { token: JoinToken; onClose: () => void }) {
  const withdraw = useWithdrawJoinToken();
  const confirm = () => withdraw.mutate(token.id, toastThen("Token revoked", onClose));
  return (
    <Confirm
      onClose={onClose}
      title="Revoke this token?"
      description={`The machine that would use it${token.host && ` as ${token.host}`} cannot join and needs a new token. ${token.created_by} created it; it is valid until ${fullTime(token.expires_at)}.`}
      action="Revoke"
      write={withdraw}
      onConfirm={confirm}
    />
  );
}

/** The time when a host joined, and the expiry of its certificate. */
export function Joined({ host }: { host: OperatorHost }) {
  const now = useNow(60_000);
  if (!host.joined) return null;
  const { at, certificate_expires_at: until } = host.joined;
  const expired = until !== null && Date.parse(until) <= now;
  return (
    <p className="basis-full text-xs text-ink-3">
      {host.address}, joined {fullTime(at)}
      {until && !expired && `, certificate until ${fullTime(until)}`}
      {expired && <strong className="font-medium text-danger-text">, certificate expired {fullTime(until)}</strong>}
    </p>
  );
}

/** The dialog that revokes a host that joined, or removes a revoked one from the list. */
export function RevokeDialog({
  host,
  others,
  onClose,
}: {
  host: OperatorHost;
  others: OperatorHost[];
  onClose: () => void;
}) {
  const revoked = Boolean(host.joined?.revoked_at);
  const revoke = useRevokeHost();
  const forget = useForgetHost();
  const change = revoked ? forget : revoke;
  const confirm = () =>
    change.mutate(host.name, toastThen(revoked ? `Removed ${host.name}` : `Revoked ${host.name}`, onClose));
  return (
    <Confirm
      onClose={onClose}
      title={revoked ? `Remove ${host.name}?` : `Revoke ${host.name}?`}
      description={
        revoked
          ? "It is removed from this list, and its name becomes available."
          : "Its credential becomes invalid and its requests continue on other hosts. It can return only with a new join token for its name. To take it out of service temporarily, drain it instead."
      }
      action={revoked ? "Remove" : "Revoke"}
      write={change}
      onConfirm={confirm}
    >
      {isUsed(host) && !others.some(isUsed) && (
        <p className="mt-3 text-sm font-medium text-danger-text">
          No other host serves its base model: every new request for it will be refused with 503.
        </p>
      )}
      {isUsed(host) && others.some(isUsed) && host.only_here > 0 && (
        <p className="mt-3 text-sm font-medium text-danger-text">
          {plural(host.only_here, "adapter version")} that are on no other host cannot be called until they are staged
          elsewhere.
        </p>
      )}
    </Confirm>
  );
}
