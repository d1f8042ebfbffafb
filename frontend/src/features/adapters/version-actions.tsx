import { useNavigate } from "@tanstack/react-router";
import { Archive, ArchiveRestore, Trash2 } from "lucide-react";
import { useState } from "react";
import type { Adapter, VersionSummary } from "@/api/types";
import { Button } from "@/components/button";
import { Confirm, Dialog } from "@/components/dialog";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { useDeleteVersion, useVersionAction } from "./queries";

interface VersionActionsProps {
  adapter: Adapter;
  version: VersionSummary;
}

/** Returns the reasons why a version cannot be archived, such as "support@live points at it". */
function usersOf(adapter: Adapter, version: number): string[] {
  return adapter.aliases.flatMap((alias) => {
    const name = `${adapter.name}@${alias.name}`;
    if (alias.version === version) return [`${name} points at it`];
    return alias.canary === version ? [`it is the canary of ${name}`] : [];
  });
}

/** Buttons that archive, restore and delete a version. */
export function VersionActions({ adapter, version }: VersionActionsProps) {
  const tenant = useTenant();
  const navigate = useNavigate();
  const [dialog, setDialog] = useState<"archive" | "delete" | null>(null);
  const archive = useVersionAction(tenant, adapter.name, "archive");
  const remove = useDeleteVersion(tenant, adapter.name);
  const users = usersOf(adapter, version.number);
  if (!useCan("adapters.write")) return null;
  const archived = version.state === "archived";
  const close = () => setDialog(null);
  const name = `v${version.number}`;
  const removed = () => {
    toast.good(`Deleted ${adapter.name}@${name}`);
    close();
    void navigate({ to: "/t/$tenant/adapters/$name", params: { tenant, name: adapter.name } });
  };
  return (
    <>
      {archived && <Restore adapter={adapter} version={version} />}
      {!archived && (
        <Button
          size="icon"
          variant="ghost"
          aria-label={`Archive ${name}`}
          title="Archive"
          onClick={() => setDialog("archive")}
        >
          <Archive />
        </Button>
      )}
      <Button
        size="icon"
        variant="ghost"
        aria-label={`Delete ${name}`}
        title="Delete"
        onClick={() => setDialog("delete")}
      >
        <Trash2 />
      </Button>
      {dialog && users.length > 0 && <InUse name={`${adapter.name}@${name}`} users={users} onClose={close} />}
      {dialog === "archive" && users.length === 0 && (
        <Confirm
          onClose={close}
          title={`Archive ${adapter.name}@${name}?`}
          description="The version can no longer be called. It is removed from all hosts and does not count against limits. You can restore it for a limited time; after that it is deleted."
          action="Archive version"
          write={archive}
          onConfirm={() => archive.mutate(version.number, { onSuccess: close })}
        />
      )}
      {dialog === "delete" && users.length === 0 && (
        <Confirm
          onClose={close}
          title={`Delete ${adapter.name}@${name} for good?`}
          description="Its files are deleted unless another version has the same content. Its usage stays in the ledger. This cannot be undone."
          action="Delete version"
          write={remove}
          onConfirm={() => remove.mutate(version.number, { onSuccess: removed })}
        />
      )}
    </>
  );
}

function Restore({ adapter, version }: VersionActionsProps) {
  const restore = useVersionAction(useTenant(), adapter.name, "restore");
  return (
    <Button
      size="sm"
      busy={restore.isPending}
      onClick={() =>
        restore.mutate(version.number, {
          onSuccess: () => toast.good(`v${version.number} is staged again`),
          onError: toast.bad,
        })
      }
    >
      <ArchiveRestore /> Restore
    </Button>
  );
}

function InUse({ name, users, onClose }: { name: string; users: string[]; onClose: () => void }) {
  return (
    <Dialog
      onClose={onClose}
      title={`${name} is in use`}
      description="Point each alias at another version and end its canary first, or archive the entire adapter."
      done
    >
      <ul className="list-disc pl-5 text-sm">
        {users.map((user) => (
          <li key={user}>{user}</li>
        ))}
      </ul>
    </Dialog>
  );
}
