import { useState } from "react";
import type { TenantDetail } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { toastThen } from "@/components/toast";
import { plural } from "@/lib/format";
import { useTenantActions } from "./queries";

type Step = "rename" | "suspend" | "resume" | "delete";

/** Buttons that rename, suspend and delete a tenant, with dialogs that state the consequences. */
export function TenantLife({ tenant }: { tenant: TenantDetail }) {
  const [step, setStep] = useState<Step | null>(null);
  const close = () => setStep(null);
  return (
    <Card aria-label="Manage tenant" title="Manage tenant">
      <div className="flex flex-wrap gap-2 px-4 py-3.5">
        <Button onClick={() => setStep("rename")}>Rename</Button>
        {tenant.state === "suspended" && (
          <Button onClick={() => setStep("resume")} data-testid="resume">
            End suspension
          </Button>
        )}
        <Button variant="danger" onClick={() => setStep("suspend")} data-testid="suspend">
          {tenant.state === "suspended" ? "Change the reason" : "Suspend"}
        </Button>
        <Button variant="danger" onClick={() => setStep("delete")} data-testid="delete-tenant">
          Delete
        </Button>
      </div>
      {step === "rename" && <Rename tenant={tenant} onClose={close} />}
      {step === "suspend" && <Suspend tenant={tenant} onClose={close} />}
      {step === "resume" && <Resume tenant={tenant} onClose={close} />}
      {step === "delete" && <Delete tenant={tenant} onClose={close} />}
    </Card>
  );
}

interface StepProps {
  tenant: TenantDetail;
  onClose: () => void;
}

const done = (text: string, onClose: () => void) => toastThen(text, onClose);

function Rename({ tenant, onClose }: StepProps) {
  const { rename } = useTenantActions(tenant.slug);
  const [name, setName] = useState(tenant.name);
  return (
    <Confirm
      onClose={onClose}
      title={`Rename ${tenant.name}?`}
      description={`Only the display name changes. ${tenant.slug} remains in addresses, in the API and on statements.`}
      action="Rename"
      harmless
      write={rename}
      disabled={name.trim() === "" || name.length > 120}
      onConfirm={() => rename.mutate({ name }, done("Renamed", onClose))}
    >
      <div className="mt-3 grid gap-3">
        <Field label="Name">
          <Input value={name} onChange={(event) => setName(event.target.value)} dir="auto" autoComplete="off" />
        </Field>
      </div>
    </Confirm>
  );
}

function Suspend({ tenant, onClose }: StepProps) {
  const { suspend } = useTenantActions(tenant.slug);
  const [reason, setReason] = useState(tenant.suspended_for);
  return (
    <Confirm
      onClose={onClose}
      title={`Suspend ${tenant.name}?`}
      description={`Within a second its ${plural(tenant.keys, "API key")} are refused with 403, its websockets are closed, and its ${plural(tenant.members, "member")} can only read. Running requests finish and are billed. You can end the suspension at any time.`}
      action="Suspend"
      write={suspend}
      disabled={reason.trim() === ""}
      onConfirm={() => suspend.mutate({ reason }, done(`Suspended ${tenant.name}`, onClose))}
    >
      <div className="mt-3 grid gap-3">
        <Field label="Reason" hint="Shown to its members and callers.">
          <Input
            value={reason}
            maxLength={500}
            onChange={(event) => setReason(event.target.value)}
            dir="auto"
            autoComplete="off"
            data-testid="suspend-reason"
          />
        </Field>
      </div>
    </Confirm>
  );
}

function Resume({ tenant, onClose }: StepProps) {
  const { resume } = useTenantActions(tenant.slug);
  return (
    <Confirm
      onClose={onClose}
      title={`End the suspension of ${tenant.name}?`}
      description="Its API keys and the permissions of its members work again within a second."
      action="End suspension"
      harmless
      write={resume}
      onConfirm={() => resume.mutate(undefined, done(`${tenant.name} is active again`, onClose))}
    />
  );
}

function Delete({ tenant, onClose }: StepProps) {
  const { remove } = useTenantActions(tenant.slug);
  const [typed, setTyped] = useState("");
  return (
    <Confirm
      onClose={onClose}
      title={`Delete ${tenant.name}?`}
      description={
        <>
          This cannot be undone. {plural(tenant.members, "member")} leave, {plural(tenant.keys, "API key")} are revoked,
          kept prompts and answers are deleted, {plural(tenant.adapters, "adapter")} are removed from all hosts, and
          their files are deleted after the retention time. Running requests finish. Usage, statements and the audit log
          are kept, and the short name cannot be reused.
        </>
      }
      action="Delete for good"
      write={remove}
      disabled={typed !== tenant.slug}
      onConfirm={() => remove.mutate(undefined, done(`Deleted ${tenant.name}`, onClose))}
    >
      <div className="mt-3 grid gap-3">
        <Field label={`Type ${tenant.slug} to confirm`}>
          <Input
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
            autoComplete="off"
            spellCheck={false}
            data-testid="delete-confirm"
          />
        </Field>
      </div>
    </Confirm>
  );
}
