import { useState } from "react";
import type { ListedBaseModel } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Badge, type Tone } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { Field, Input, type Option, Select } from "@/components/field";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { HiddenTh, Table, Td, Tr } from "@/components/table";
import { toastThen } from "@/components/toast";
import { number, shortDigest } from "@/lib/format";
import {
  baseModelsQuery,
  useApproveBaseModel,
  useLetBaseModelSleep,
  useRenameBaseModel,
  useWithdrawBaseModel,
} from "./queries";

const TONES: Record<ListedBaseModel["state"], Tone> = { served: "green", waiting: "amber", withdrawn: "neutral" };
type Step = "approve" | "rename" | "sleep" | "withdraw";
const MINUTES = [5, 15, 30, 60, 240, 1440];

/** Returns "waking" or "asleep" for a base model that no host serves, or null. */
function wakefulness(base: ListedBaseModel): string | null {
  if (base.state !== "served" || base.sleeps_after_s === 0 || base.hosts_online > 0) return null;
  return base.wanted ? "waking" : "asleep";
}

const duration = (minutes: number) =>
  minutes < 60 ? `${minutes} minutes` : minutes === 60 ? "an hour" : `${minutes / 60} hours`;

/** The served base models, those of hosts that were not approved, and the withdrawn ones. */
export function BaseModels() {
  const { data, error, refetch } = useQuery(baseModelsQuery);
  const [dialog, setDialog] = useState<{ step: Step; base: ListedBaseModel } | null>(null);
  const served = data?.filter(({ state }) => state === "served").length ?? 0;
  const close = () => setDialog(null);
  return (
    <Card
      title="Base models"
      note="A host whose base model is not served is in quarantine. Approve the model to serve it in addition to the others."
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={2} />}
      {data?.length === 0 && <p className="px-4 py-8 text-center text-sm text-ink-3">No host has connected yet.</p>}
      {data && data.length > 0 && (
        <Table
          label="Base models"
          columns={[
            "Name",
            "State",
            ["Digest", "hidden md:table-cell"],
            "Hosts",
            ["Adapters", "text-right"],
            <HiddenTh label="Change" />,
          ]}
        >
          {data.map((base) => (
            <Tr key={base.digest}>
              <Td className="font-medium">
                <bdi className="block max-w-48 truncate lg:max-w-64" title={base.name}>
                  {base.name}
                </bdi>
              </Td>
              <Td>
                <span className="inline-flex flex-wrap gap-1.5">
                  <Badge tone={TONES[base.state]}>{base.state}</Badge>
                  {wakefulness(base) && <Badge tone={base.wanted ? "amber" : "neutral"}>{wakefulness(base)}</Badge>}
                </span>
              </Td>
              <Td className="hidden font-mono text-xs text-ink-2 md:table-cell">{shortDigest(base.digest)}</Td>
              <Td className="text-ink-2">
                <span className="block max-w-40 truncate" title={base.hosts.join(", ")}>
                  {base.hosts.join(", ") || "none"}
                </span>
              </Td>
              <Td className="text-right">{number(base.adapters)}</Td>
              <Td className="text-right">
                <span className="inline-flex justify-end gap-2">
                  {base.state === "served" && (
                    <Button
                      size="sm"
                      aria-label={`Rename ${base.name}`}
                      onClick={() => setDialog({ step: "rename", base })}
                    >
                      Rename
                    </Button>
                  )}
                  {base.state === "served" && (
                    <Button
                      size="sm"
                      aria-label={`Sleep of ${base.name}`}
                      onClick={() => setDialog({ step: "sleep", base })}
                    >
                      Sleep
                    </Button>
                  )}
                  {base.state === "served" && served > 1 && (
                    <Button
                      size="sm"
                      variant="danger"
                      aria-label={`Withdraw ${base.name}`}
                      onClick={() => setDialog({ step: "withdraw", base })}
                    >
                      Withdraw
                    </Button>
                  )}
                  {base.state !== "served" && base.hosts.length > 0 && (
                    <Button
                      size="sm"
                      aria-label={`Approve ${base.name}`}
                      onClick={() => setDialog({ step: "approve", base })}
                    >
                      Approve
                    </Button>
                  )}
                </span>
              </Td>
            </Tr>
          ))}
        </Table>
      )}
      {dialog?.step === "approve" && <Approve base={dialog.base} onClose={close} />}
      {dialog?.step === "rename" && <Rename base={dialog.base} onClose={close} />}
      {dialog?.step === "sleep" && <Sleep base={dialog.base} onClose={close} />}
      {dialog?.step === "withdraw" && <Withdraw base={dialog.base} onClose={close} />}
    </Card>
  );
}

interface StepProps {
  base: ListedBaseModel;
  onClose: () => void;
}

const done = (text: string, onClose: () => void) => toastThen(text, onClose);

function Name({ value, onChange }: { value: string; onChange: (name: string) => void }) {
  return (
    <Field label="Name" hint="The value of “model” in requests.">
      <Input
        value={value}
        onChange={(event) => onChange(event.target.value)}
        maxLength={200}
        autoComplete="off"
        spellCheck={false}
        className="font-mono"
      />
    </Field>
  );
}

function Approve({ base, onClose }: StepProps) {
  const approve = useApproveBaseModel();
  const [name, setName] = useState(base.name);
  const host = base.hosts[0] ?? "";
  return (
    <Confirm
      onClose={onClose}
      title={`Approve ${base.name}?`}
      description={`It is listed with the other models, and ${base.hosts.join(", ")} receives its adapters and requests.`}
      action="Approve"
      harmless
      write={approve}
      disabled={name.trim() === ""}
      onConfirm={() => approve.mutate({ host, name: name.trim() }, done(`${name.trim()} is served`, onClose))}
    >
      <div className="mt-3 grid gap-3">
        <Name value={name} onChange={setName} />
      </div>
    </Confirm>
  );
}

function Rename({ base, onClose }: StepProps) {
  const rename = useRenameBaseModel();
  const [name, setName] = useState(base.name);
  return (
    <Confirm
      onClose={onClose}
      title={`Rename ${base.name}?`}
      description="The new name takes effect immediately for all tenants. Requests that use the old name fail."
      action="Rename"
      write={rename}
      disabled={name.trim() === ""}
      onConfirm={() => rename.mutate({ digest: base.digest, name: name.trim() }, done("Renamed", onClose))}
    >
      <div className="mt-3 grid gap-3">
        <Name value={name} onChange={setName} />
      </div>
    </Confirm>
  );
}

function Sleep({ base, onClose }: StepProps) {
  const change = useLetBaseModelSleep();
  const now = base.sleeps_after_s / 60;
  const [minutes, setMinutes] = useState(now);
  const choices = [...new Set([...MINUTES, ...(now > 0 ? [now] : [])])].sort((a, b) => a - b);
  return (
    <Confirm
      onClose={onClose}
      title={`Sleep settings of ${base.name}`}
      description="A sleeping base model needs no host, so your autoscaler may stop all of them. A request wakes it and waits until a host has started."
      action="Save"
      harmless
      write={change}
      onConfirm={() =>
        change.mutate({ digest: base.digest, sleeps_after_s: Math.round(minutes * 60) }, done("Saved", onClose))
      }
    >
      <div className="mt-3 grid gap-3">
        <Field
          label="Sleeps"
          hint="Requires an autoscaler that reads lorikeet_base_model_wanted; without one, no host is stopped or started."
        >
          <Select
            value={minutes}
            onChange={(event) => setMinutes(Number(event.target.value))}
            options={[
              [0, "Never"],
              ...choices.map((each): Option => [each, `After ${duration(each)} without a request`]),
            ]}
          />
        </Field>
      </div>
    </Confirm>
  );
}

function Withdraw({ base, onClose }: StepProps) {
  const withdraw = useWithdrawBaseModel();
  return (
    <Confirm
      onClose={onClose}
      title={`Withdraw ${base.name}?`}
      description={`Its hosts go into quarantine, and its ${number(base.adapters)} adapters can no longer be called. Approve it again to undo this.`}
      action="Withdraw"
      write={withdraw}
      onConfirm={() => withdraw.mutate(base.digest, done(`${base.name} is no longer served`, onClose))}
    />
  );
}
