import { Plus, TriangleAlert, Undo2, X } from "lucide-react";
import { useState } from "react";
import type { Adapter, Alias } from "@/api/types";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm, FormDialog } from "@/components/dialog";
import { Field, Input, type Option, Select } from "@/components/field";
import { RelativeTime } from "@/components/relative-time";
import { toast, toastThen } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { Canary, StartCanary } from "./canary";
import { useRemoveAlias, useRollBack, useSetAlias } from "./queries";

/** The aliases of an adapter, with buttons to move them forward and back. */
export function Aliases({ adapter }: { adapter: Adapter }) {
  const may = useCan("adapters.write");
  const [adding, setAdding] = useState(false);
  return (
    <Card
      aria-label="Aliases"
      title="Aliases"
      note={`“${adapter.name}” without an alias refers to ${adapter.name}@live. Running requests keep the version they started with.`}
      actions={
        may && (
          <Button size="sm" onClick={() => setAdding(true)} disabled={ready(adapter).length === 0}>
            <Plus /> New alias
          </Button>
        )
      }
    >
      {adapter.aliases.length === 0 && (
        <p className="px-4 py-3 text-sm text-ink-3">
          No aliases yet. The first version that is ready becomes “live”, unless it requires confirmation.
        </p>
      )}
      <ul className="divide-y">
        {adapter.aliases.map((alias) => (
          <AliasRow key={alias.name} adapter={adapter} alias={alias} may={may} />
        ))}
      </ul>
      {adding && <NewAlias adapter={adapter} onClose={() => setAdding(false)} />}
    </Card>
  );
}

/** Returns the versions that an alias can point at. */
export const ready = (adapter: Adapter) => adapter.versions.filter(({ state }) => state === "ready");

interface RowProps {
  adapter: Adapter;
  alias: Alias;
  may: boolean;
}

function AliasRow({ adapter, alias, may }: RowProps) {
  return (
    <li className="grid gap-3 px-4 py-3" aria-label={`${adapter.name}@${alias.name}`}>
      <div className="flex flex-wrap items-center gap-x-3 gap-y-2">
        <code className="min-w-0 font-mono text-xs wrap-anywhere">
          {adapter.name}@{alias.name}
        </code>
        <Badge tone="green">v{alias.version}</Badge>
        <span className="text-xs text-ink-3">
          since <RelativeTime at={alias.updated_at} />
        </span>
        {may && <AliasActions adapter={adapter} alias={alias} />}
      </div>
      {alias.canary !== null && <Canary adapter={adapter} alias={alias} may={may} />}
      {alias.canary === null && alias.rolled_back && <RolledBack alias={alias} />}
    </li>
  );
}

function AliasActions({ adapter, alias }: Omit<RowProps, "may">) {
  const tenant = useTenant();
  const rollBack = useRollBack(tenant, adapter.name);
  const remove = useRemoveAlias(tenant, adapter.name);
  const [trying, setTrying] = useState(false);
  const [removing, setRemoving] = useState(false);
  const others = ready(adapter).filter(({ number }) => number !== alias.version);
  const leadsBack = others.some(({ number }) => number === alias.previous);
  return (
    <span className="ml-auto flex flex-wrap items-center gap-2">
      {leadsBack && (
        <Button
          size="sm"
          busy={rollBack.isPending}
          onClick={() =>
            rollBack.mutate(alias.name, {
              onSuccess: () => toast.good(`${adapter.name}@${alias.name} is v${alias.previous} again`),
              onError: toast.bad,
            })
          }
        >
          <Undo2 /> Roll back to v{alias.previous}
        </Button>
      )}
      {alias.canary === null && others.length > 0 && (
        <Button size="sm" onClick={() => setTrying(true)}>
          Start a canary
        </Button>
      )}
      {alias.name !== "live" && (
        <Button
          size="icon"
          variant="ghost"
          aria-label={`Remove the alias ${alias.name}`}
          title="Remove"
          onClick={() => setRemoving(true)}
        >
          <X />
        </Button>
      )}
      {removing && (
        <Confirm
          onClose={() => setRemoving(false)}
          title={`Remove ${adapter.name}@${alias.name}?`}
          description="Requests that use this alias are refused from now on. The version is kept."
          action="Remove alias"
          write={remove}
          onConfirm={() =>
            remove.mutate(alias.name, { onSuccess: () => toast.good(`Removed ${adapter.name}@${alias.name}`) })
          }
        />
      )}
      {trying && <StartCanary adapter={adapter} alias={alias} versions={others} onClose={() => setTrying(false)} />}
    </span>
  );
}

function RolledBack({ alias: { rolled_back: ended } }: { alias: Alias }) {
  if (!ended) return null;
  return (
    <p className="flex gap-2 rounded-lg bg-amber-soft px-3 py-2 text-sm">
      <TriangleAlert className="mt-0.5 size-4 shrink-0 text-amber-text" aria-hidden />
      <span>
        The canary v{ended.version} was ended <RelativeTime at={ended.at} />: {ended.message}
      </span>
    </p>
  );
}

function NewAlias({ adapter, onClose }: { adapter: Adapter; onClose: () => void }) {
  const versions = ready(adapter);
  const [alias, setAlias] = useState("");
  const [version, setVersion] = useState(versions[0]?.number ?? 1);
  const set = useSetAlias(useTenant(), adapter.name);
  return (
    <FormDialog
      onClose={onClose}
      title="Point an alias at a version"
      description="An existing alias is moved and its canary ends."
      write={set}
      action="Set alias"
      disabled={alias === ""}
      onSubmit={() => set.mutate({ alias, version }, toastThen(`${adapter.name}@${alias} is v${version}`, onClose))}
    >
      <Field label="Alias" hint={`Callers write ${adapter.name}@${alias || "prod"}.`}>
        <Input
          value={alias}
          onChange={({ target }) => setAlias(target.value)}
          placeholder="prod"
          className="font-mono"
          autoComplete="off"
        />
      </Field>
      <Field label="Version">
        <Select
          value={version}
          onChange={({ target }) => setVersion(Number(target.value))}
          options={versions.map(({ number }): Option => [number, `v${number}`])}
        />
      </Field>
    </FormDialog>
  );
}
