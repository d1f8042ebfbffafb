import { CloudDownload } from "lucide-react";
import { type SyntheticEvent, useState } from "react";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { toast } from "@/components/toast";
import { useTenant } from "@/features/session/queries";
import { BaseChoice } from "./base-choice";
import { BucketKeysSection } from "./bucket-keys";
import { followsQuery, hubTokenQuery, useFollow, useHubToken, useImport } from "./queries";
import { RecentImports } from "./recent-imports";

/** A form that imports an adapter from the Hugging Face Hub or an address. The server validates it like an upload. */
export function ImportCard({ onSent }: { onSent: (id: string) => void }) {
  const [source, setSource] = useState("");
  const [name, setName] = useState("");
  const [base, setBase] = useState("");
  const bring = useImport(useTenant());
  const follow = useFollow(useTenant());
  const body = { source: source.trim(), name: name.trim() };
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    bring.mutate(base ? { ...body, base_model: base } : body, { onSuccess: ({ id }) => onSent(id) });
  };
  return (
    <Card title="Import an adapter" note="The server fetches the current commit of the revision.">
      <form onSubmit={submit} className="field-pairs p-4">
        <Field
          label="Source"
          hint="hub:org/name/folder@revision or its page’s address, s3://bucket/folder, or the https address of an archive."
        >
          <Input
            value={source}
            onChange={(event) => setSource(event.target.value)}
            autoComplete="off"
            spellCheck={false}
            placeholder="hub:org/name@main"
            className="font-mono"
          />
        </Field>
        <Field label="Adapter name" hint="The value of “model” in requests.">
          <Input
            value={name}
            onChange={(event) => setName(event.target.value)}
            autoComplete="off"
            spellCheck={false}
            placeholder="support"
            className="font-mono"
          />
        </Field>
        <BaseChoice value={base} onChange={setBase} />
        <ErrorNotice error={bring.error} className="sm:col-span-2" />
        <ErrorNotice error={follow.error} className="sm:col-span-2" />
        <div className="flex flex-wrap gap-3 sm:col-span-2">
          <Button type="submit" busy={bring.isPending} disabled={!source.trim() || !name.trim()}>
            <CloudDownload /> Import
          </Button>
          <Button
            busy={follow.isPending}
            disabled={!source.trim().startsWith("hub:") || !name.trim()}
            onClick={() => follow.mutate(body, { onSuccess: () => toast.good("Branch followed") })}
          >
            Follow branch
          </Button>
        </div>
      </form>
      <RecentImports />
      <Follows />
      <HubToken />
      <BucketKeysSection />
    </Card>
  );
}

/** The branches that adapters follow: each new commit becomes a version. */
function Follows() {
  const tenant = useTenant();
  const { data: follows, error, refetch } = useQuery(followsQuery(tenant));
  const end = useFollow(tenant);
  if (error) return <ErrorNotice error={error} onRetry={refetch} className="m-4" />;
  if (!follows?.length) return null;
  return (
    <ul aria-label="Followed branches" className="grid gap-3 border-t px-4 py-3 text-sm">
      {follows.map(({ id, name, source, commit, problem }) => (
        <li key={id} className="flex flex-wrap items-center justify-between gap-3 text-ink-2">
          <span className="min-w-0">
            {name} follows <span className="font-mono break-all">{source}</span>
            {commit && `, at ${commit.slice(0, 12)}`}
            {problem && (
              <span className="block text-danger-text">
                {problem.message} {problem.fix}
              </span>
            )}
          </span>
          <Button
            size="sm"
            busy={end.isPending}
            aria-label={`Stop following for ${name}`}
            onClick={() =>
              end.mutate(id, { onSuccess: () => toast.good("Branch no longer followed"), onError: toast.bad })
            }
          >
            Stop following
          </Button>
        </li>
      ))}
    </ul>
  );
}

/** The tenant's token for private repositories. It can be set and removed, but not shown. */
function HubToken() {
  const tenant = useTenant();
  const { data, error, refetch } = useQuery(hubTokenQuery(tenant));
  const [token, setToken] = useState("");
  const [confirming, setConfirming] = useState(false);
  const keep = useHubToken(tenant);
  if (error) return <ErrorNotice error={error} onRetry={refetch} className="m-4" />;
  if (!data) return null;
  const change = (value: string | null) =>
    keep.mutate(value, {
      onSuccess: () => (setToken(""), toast.good(value ? "Token saved, encrypted" : "Token removed")),
      onError: toast.bad,
      onSettled: () => setConfirming(false),
    });
  return (
    <div className="border-t px-4 py-3 text-sm">
      {confirming && (
        <Confirm
          onClose={() => setConfirming(false)}
          title="Remove the Hub token?"
          description="Private repositories cannot be imported or followed until a token is added again. The removed token cannot be recovered."
          action="Remove"
          write={{ error: null, isPending: keep.isPending }}
          onConfirm={() => change(null)}
        />
      )}
      {data.set ? (
        <p className="flex flex-wrap items-center justify-between gap-3 text-ink-2">
          This tenant’s token is used to read private repositories.
          <Button size="sm" onClick={() => setConfirming(true)}>
            Remove token
          </Button>
        </p>
      ) : (
        <form
          className="flex flex-wrap items-end gap-3"
          onSubmit={(event) => {
            event.preventDefault();
            change(token.trim());
          }}
        >
          <div className="min-w-56 flex-1">
            <Field label="Token for private repositories" hint="Stored encrypted for this tenant and never shown.">
              <Input
                type="password"
                value={token}
                onChange={(event) => setToken(event.target.value)}
                autoComplete="off"
                placeholder="hf_…"
              />
            </Field>
          </div>
          <Button type="submit" size="sm" className="mb-6" busy={keep.isPending} disabled={!token.trim()}>
            Save token
          </Button>
        </form>
      )}
    </div>
  );
}
