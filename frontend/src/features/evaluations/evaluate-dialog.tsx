import { useState } from "react";
import type { EvaluationMetric, PromotionRule } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { CodeBlock } from "@/components/code-block";
import { FormDialog } from "@/components/dialog";
import { Field, Input, type Option, Select } from "@/components/field";
import { toast } from "@/components/toast";
import { KeySelect } from "@/features/keys/key-select";
import { keyOptionsQuery, RUNNABLE } from "@/features/keys/queries";
import { useTenant } from "@/features/session/queries";
import { setsQuery, type Subject, useEvaluationActions } from "./queries";

const METRICS: [metric: EvaluationMetric, label: string][] = [
  ["exact", "Exact match"],
  ["contains", "Contains the expected text"],
  ["logprob", "Log-probability of the expected text"],
];
const NEW = "";
const nameOf = (file: File) =>
  file.name
    .toLowerCase()
    .replace(/\.[^.]*$/, "")
    .replace(/[^a-z0-9._-]+/g, "-")
    .slice(0, 64)
    .replace(/^[^a-z0-9]+|[^a-z0-9]+$/g, "") || "set";

/**
 * Fields for the evaluation set, which may be new, and the API key. The values of an existing rule are the defaults.
 */
function useChoice(tenant: string, adapter: string, rule: PromotionRule | null = null) {
  const actions = useEvaluationActions(tenant, adapter);
  const sets = useQuery(setsQuery(tenant));
  const keys = useQuery(keyOptionsQuery(tenant, rule?.key ?? "", RUNNABLE));
  const newest = useQuery(keyOptionsQuery(tenant, "", RUNNABLE));
  const [chosenSet, setSet] = useState<string>();
  const [chosenKey, setKey] = useState("");
  const [metric, setMetric] = useState<EvaluationMetric>("exact");
  const [file, setFile] = useState<File>();
  const known = sets.data?.find(({ name }) => name === rule?.set) ?? sets.data?.[0];
  const set = chosenSet ?? known?.name ?? NEW;
  const ofRule = keys.data?.options.find(({ value }) => value === rule?.key);
  const key = chosenKey || (ofRule ?? newest.data?.options[0])?.value || "";
  /** Returns the name of the set, after creating it if it is new. */
  const made = async () => {
    if (set !== NEW || !file) return set;
    const { name } = await actions.addSet.mutateAsync({ name: nameOf(file), metric, file });
    setSet(name); // the next step may fail and be retried
    return name;
  };
  const fields = (
    <>
      {newest.data?.total === 0 && (
        <p className="rounded-lg bg-amber-soft px-3.5 py-2.5 text-sm text-amber-text">
          An evaluation needs an active API key that may run inference, and there is none.
        </p>
      )}
      <Field label="Evaluation set" hint="Sets are immutable, so that scores can be compared.">
        <Select
          value={set}
          onChange={(event) => setSet(event.target.value)}
          options={[
            ...(sets.data?.map(({ name, metric: by, items }): Option => [name, `${name} (${by}, ${items} items)`]) ??
              []),
            [NEW, "New set…"],
          ]}
        />
      </Field>
      {set !== NEW && (
        <Button
          size="sm"
          variant="ghost"
          className="-mt-2 justify-self-start"
          busy={actions.removeSet.isPending}
          onClick={() =>
            actions.removeSet.mutate(set, {
              onSuccess: () => (setSet(undefined), toast.good(`Deleted ${set}; its scores are kept`)),
            })
          }
        >
          Delete this set
        </Button>
      )}
      {set === NEW && (
        <>
          <Field label="File" hint="JSON Lines, each with a prompt or messages and the expected answer.">
            <Input
              type="file"
              accept=".jsonl,.ndjson,.json,.txt"
              className="py-1.5"
              onChange={(event) => setFile(event.target.files?.[0])}
            />
          </Field>
          <CodeBlock code={`{"prompt": "2 + 2 =", "expected": "4"}`} label="A line" />
          <Field label="Scored by">
            <Select
              value={metric}
              onChange={(event) => setMetric(event.target.value as EvaluationMetric)}
              options={METRICS}
            />
          </Field>
        </>
      )}
      <Field label="API key" hint="The requests count against this key’s limits and run after all other requests.">
        <KeySelect value={key} disabled={!key} onChange={setKey} filter={RUNNABLE} />
      </Field>
    </>
  );
  return {
    actions,
    fields,
    key,
    made,
    complete: key !== "" && (set !== NEW || file !== undefined),
    error: actions.addSet.error ?? actions.removeSet.error ?? sets.error ?? newest.error,
  };
}

export function EvaluateDialog({ subject, onClose }: { subject: Subject; onClose: () => void }) {
  const { actions, fields, key, made, complete, error } = useChoice(useTenant(), subject.adapter);
  return (
    <FormDialog
      onClose={onClose}
      title="Evaluate"
      description="Sends prompts with expected answers to this version, the live version and the base model."
      write={{ error: error ?? actions.start.error, isPending: actions.addSet.isPending || actions.start.isPending }}
      action="Evaluate"
      disabled={!complete}
      onSubmit={() =>
        made().then(
          (set) => actions.start.mutate({ set, key, ...subject }, { onSuccess: onClose }),
          () => undefined, // shown as the mutation's error
        )
      }
    >
      {fields}
    </FormDialog>
  );
}

export function RuleDialog({
  adapter,
  rule,
  onClose,
}: {
  adapter: string;
  rule: PromotionRule | null;
  onClose: () => void;
}) {
  const { actions, fields, key, made, complete, error } = useChoice(useTenant(), adapter, rule);
  const [minimum, setMinimum] = useState(rule?.minimum == null ? "" : String(rule.minimum));
  const [notWorse, setNotWorse] = useState(rule?.not_worse_than_live ?? true);
  const least = minimum.trim() === "" ? null : Number(minimum);
  return (
    <FormDialog
      onClose={onClose}
      title="Promotion rule"
      description={`The score that a version needs before it can become live or a canary. New versions of ${adapter} are evaluated automatically.`}
      write={{
        error: error ?? actions.setRule.error ?? actions.removeRule.error,
        isPending: actions.addSet.isPending || actions.setRule.isPending,
      }}
      action="Set rule"
      disabled={!complete || Number.isNaN(least)}
      buttons={
        rule && (
          <Button
            busy={actions.removeRule.isPending}
            onClick={() => actions.removeRule.mutate(undefined, { onSuccess: onClose })}
          >
            Remove rule
          </Button>
        )
      }
      onSubmit={() =>
        made().then(
          (set) =>
            actions.setRule.mutate({ set, key, minimum: least, not_worse_than_live: notWorse }, { onSuccess: onClose }),
          () => undefined, // shown as the mutation's error
        )
      }
    >
      {fields}
      <Field
        label="Minimum score"
        hint="Leave empty for no minimum."
        error={Number.isNaN(least) ? "Enter a number such as 0.8." : undefined}
      >
        <Input inputMode="decimal" value={minimum} onChange={(event) => setMinimum(event.target.value)} />
      </Field>
      <label className="flex items-center gap-2 text-sm">
        <input
          type="checkbox"
          checked={notWorse}
          onChange={(event) => setNotWorse(event.target.checked)}
          className="size-4 accent-(--accent)"
        />
        Not worse than the live version
      </label>
    </FormDialog>
  );
}
