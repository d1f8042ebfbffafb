import { useState } from "react";
import { asApiError } from "@/api/errors";
import type { CreatedJoinToken, JoinToken, OperatorHost } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Confirm, Dialog } from "@/components/dialog";
import { Field, Input, Select } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { Secret } from "@/components/secret";
import { toast } from "@/components/toast";
import { isUsed } from "@/features/hosts/host-status";
import { fullTime, plural } from "@/lib/format";
import { joinTokensQuery, useCreateJoinToken, useForgetHost, useRevokeHost, useWithdrawJoinToken } from "./queries";

const LIFETIMES = [
  { seconds: 900, label: "15 minutes" },
  { seconds: 3600, label: "1 hour" },
  { seconds: 86_400, label: "1 day" },
  { seconds: 604_800, label: "1 week" },
];

/** Lets one machine join as an engine host. */
export function AddHost({ onClose }: { onClose: () => void }) {
  const create = useCreateJoinToken();
  const made = create.data;
  return (
    <Dialog
      keepOpen={Boolean(made)}
      open
      onOpenChange={(open) => !open && onClose()}
      title={made ? "Start its engine" : "Add a host"}
      description={made ? undefined : "Creates a token that one machine can use once to join."}
      className={made ? "max-w-2xl!" : undefined}
    >
      {made ? <JoinCommand made={made} onClose={onClose} /> : <TokenForm create={create} onClose={onClose} />}
    </Dialog>
  );
}

function TokenForm({ create, onClose }: { create: ReturnType<typeof useCreateJoinToken>; onClose: () => void }) {
  const [host, setHost] = useState("");
  const [seconds, setSeconds] = useState(3600);
  return (
    <form
      className="grid gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        create.mutate({ host: host.trim(), expires_s: seconds });
      }}
    >
      {create.error && <ErrorNotice error={asApiError(create.error)} />}
      <Field
        label="Name (optional)"
        hint="Enter the name of an existing host to replace it. If empty, the machine chooses its own name, which must be new."
      >
        {(control) => (
          <Input
            {...control}
            value={host}
            onChange={(event) => setHost(event.target.value)}
            autoComplete="off"
            maxLength={63}
          />
        )}
      </Field>
      <Field label="Valid for">
        {(control) => (
          <Select {...control} value={seconds} onChange={(event) => setSeconds(Number(event.target.value))}>
            {LIFETIMES.map((lifetime) => (
              <option key={lifetime.seconds} value={lifetime.seconds}>
                {lifetime.label}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" busy={create.isPending}>
          Create token
        </Button>
      </div>
    </form>
  );
}

function JoinCommand({ made, onClose }: { made: CreatedJoinToken; onClose: () => void }) {
  const command = `python -m lora_engine --model MODEL_FOLDER --device cuda --listen 0.0.0.0:7000 --data-dir /var/lib/lorikeet-engine --join ${made.join_url} --token ${made.token}`;
  return (
    <div className="grid gap-4">
      <Secret value={command} label="Copy the command" testId="join-command">
        The token is not shown again. It lets one machine join until {fullTime(made.expires_at)}.
      </Secret>
      <p className="text-sm text-ink-2">
        Run this command on the new machine, with the folder of its model and the extra{" "}
        <code className="font-mono text-xs">join</code> installed. The host appears here a few seconds after its model
        is loaded. Later restarts do not need the token.
      </p>
      <div className="flex justify-end">
        <Button variant="primary" onClick={onClose}>
          Done
        </Button>
      </div>
    </div>
  );
}

/** Tokens that somebody could still join with. */
export function OpenTokens() {
  const { data, error, refetch } = useQuery(joinTokensQuery);
  const [withdrawing, setWithdrawing] = useState<string | null>(null);
  const open = (data ?? []).filter(({ state }) => state === "open");
  const chosen = open.find(({ id }) => id === withdrawing);
  if (error) return <ErrorNotice error={asApiError(error)} onRetry={() => void refetch()} className="m-4" />;
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
            aria-label={`Withdraw the token of ${token.created_by}${token.host && ` for ${token.host}`}`}
            onClick={() => setWithdrawing(token.id)}
          >
            Withdraw
          </Button>
        </li>
      ))}
      {chosen && <Withdraw token={chosen} onClose={() => setWithdrawing(null)} />}
    </ul>
  );
}

function Withdraw({ token, onClose }: { token: JoinToken; onClose: () => void }) {
  const withdraw = useWithdrawJoinToken();
  const confirm = () =>
    withdraw.mutate(token.id, {
      onSuccess: () => {
        toast.good("Token withdrawn");
        onClose();
      },
    });
  return (
    <Confirm
      open
      onOpenChange={(open) => !open && onClose()}
      title="Withdraw this token?"
      description={`The machine that would use it${token.host && ` as ${token.host}`} cannot join and needs a new token. ${token.created_by} created it; it is valid until ${fullTime(token.expires_at)}.`}
      action="Withdraw"
      busy={withdraw.isPending}
      onConfirm={confirm}
    >
      {withdraw.error && <ErrorNotice error={asApiError(withdraw.error)} className="mt-3" />}
    </Confirm>
  );
}

/** Since when it is a host by its own credential, and until when that is good. */
export function Joined({ host }: { host: OperatorHost }) {
  if (!host.joined) return null;
  const { at, certificate_expires_at: until } = host.joined;
  return (
    <p className="basis-full text-xs text-ink-3">
      {host.address}, joined {fullTime(at)}
      {until && `, certificate until ${fullTime(until)}`}
    </p>
  );
}

/** Revokes a host that joined; one that was revoked is taken out of the list. */
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
    change.mutate(host.name, {
      onSuccess: () => {
        toast.good(revoked ? `Removed ${host.name}` : `Revoked ${host.name}`);
        onClose();
      },
    });
  return (
    <Confirm
      open
      onOpenChange={(open) => !open && onClose()}
      title={revoked ? `Remove ${host.name}?` : `Revoke ${host.name}?`}
      description={
        revoked
          ? "It is removed from this list, and its name becomes available."
          : "Its credential becomes invalid and its requests continue on other hosts. It can return only with a new join token for its name. To take it out of service temporarily, drain it instead."
      }
      action={revoked ? "Forget" : "Revoke"}
      busy={change.isPending}
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
      {change.error && <ErrorNotice error={asApiError(change.error)} className="mt-3" />}
    </Confirm>
  );
}
