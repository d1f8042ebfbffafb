import { useQuery } from "@tanstack/react-query";
import { KeyRound, Plus } from "lucide-react";
import { useState } from "react";
import { asApiError } from "@/api/errors";
import type { ApiKey } from "@/api/types";
import { Page } from "@/app/page";
import { Status } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { Table, Td, Th, Tr } from "@/components/table";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { fullTime } from "@/lib/format";
import { useNow } from "@/lib/use-now";
import { CreateKey } from "./create-key";
import { EditKey } from "./edit-key";
import { keysQuery, useRevokeKey } from "./queries";
import { RotateKey } from "./rotate-key";

export function KeysPage() {
  const { data, error, refetch } = useQuery(keysQuery(useTenant()));
  const [creating, setCreating] = useState(false);
  const may = useCan("keys.write");
  const create = may && (
    <Button variant="primary" onClick={() => setCreating(true)}>
      <Plus /> Create key
    </Button>
  );
  return (
    <Page title="API keys" note="Keys call the API as this tenant. A secret is shown once, when its key is made." actions={data?.length ? create : null}>
      {error && <ErrorNotice error={asApiError(error)} onRetry={() => void refetch()} />}
      {!error && (
        <Card>
          {!data && <SkeletonRows rows={4} />}
          {data?.length === 0 && (
            <Empty icon={<KeyRound />} title="No API keys yet" action={create}>
              Make one for each application, so that each can be revoked alone. Any OpenAI client works with it.
            </Empty>
          )}
          {data && data.length > 0 && <KeyTable keys={data} />}
        </Card>
      )}
      {creating && <CreateKey onClose={() => setCreating(false)} />}
    </Page>
  );
}

const ACTS = ["Edit", "Rotate", "Revoke"] as const;
type Act = (typeof ACTS)[number];

function KeyTable({ keys }: { keys: ApiKey[] }) {
  const [chosen, setChosen] = useState<{ key: ApiKey; act: Act } | null>(null);
  const may = useCan("keys.write");
  const close = () => setChosen(null);
  return (
    <>
      <Table label="API keys">
        <thead>
          <tr>
            <Th>Name</Th>
            <Th>Key</Th>
            <Th>State</Th>
            <Th className="hidden xl:table-cell">May</Th>
            <Th>Last used</Th>
            <Th>Expires</Th>
            <Th>Created</Th>
            <Th>
              <span className="sr-only">Actions</span>
            </Th>
          </tr>
        </thead>
        <tbody>
          {keys.map((key) => (
            <Tr key={key.id} className={key.revoked_at ? "text-ink-3" : undefined}>
              <Td className="font-medium">{key.name}</Td>
              <Td className="font-mono text-xs">lk_{key.prefix}_…</Td>
              <Td>
                <KeyState apiKey={key} />
              </Td>
              <Td className="hidden text-xs text-ink-3 xl:table-cell">{key.scopes.join(", ") || "nothing"}</Td>
              <Td>
                <RelativeTime at={key.last_used_at} />
              </Td>
              <Td>{key.expires_at ? new Date(key.expires_at).toLocaleDateString("en-GB", { dateStyle: "medium" }) : <span className="text-ink-3">never</span>}</Td>
              <Td>
                <RelativeTime at={key.created_at} />
              </Td>
              <Td className="text-right">
                {may &&
                  !key.revoked_at &&
                  ACTS.map((act) => (
                    <Button key={act} size="sm" variant="ghost" aria-label={`${act} ${key.name}`} onClick={() => setChosen({ key, act })}>
                      {act}
                    </Button>
                  ))}
              </Td>
            </Tr>
          ))}
        </tbody>
      </Table>
      {chosen?.act === "Edit" && <EditKey apiKey={chosen.key} onClose={close} />}
      {chosen?.act === "Rotate" && <RotateKey apiKey={chosen.key} onClose={close} />}
      {chosen?.act === "Revoke" && <Revoke apiKey={chosen.key} onClose={close} />}
    </>
  );
}

function KeyState({ apiKey }: { apiKey: ApiKey }) {
  const now = useNow(60_000);
  if (apiKey.revoked_at) return <Status tone="neutral" label="Revoked" />;
  if (apiKey.expires_at && Date.parse(apiKey.expires_at) < now) return <Status tone="amber" label="Expired" />;
  if (apiKey.previous_until && Date.parse(apiKey.previous_until) > now) {
    return (
      <span title={`The old secret works until ${fullTime(apiKey.previous_until)}`}>
        <Status tone="blue" label="Rotating" />
      </span>
    );
  }
  return <Status tone="green" label="Active" />;
}

function Revoke({ apiKey, onClose }: { apiKey: ApiKey; onClose: () => void }) {
  const revoke = useRevokeKey(useTenant());
  const confirm = () =>
    revoke.mutate(apiKey.id, {
      onSuccess: () => {
        toast.good(`Revoked ${apiKey.name}`);
        onClose();
      },
    });
  return (
    <Confirm
      open
      onOpenChange={(open) => !open && onClose()}
      title={`Revoke ${apiKey.name}?`}
      description="Every application that uses this key is refused from now on. This cannot be undone; a new key has to be made instead."
      action="Revoke key"
      busy={revoke.isPending}
      onConfirm={confirm}
    >
      {revoke.error && <ErrorNotice error={asApiError(revoke.error)} className="mt-3" />}
    </Confirm>
  );
}
