import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import type { EventType, Webhook, WebhookSettings } from "@/api/types";
import { CheckOption } from "@/components/check-option";
import { FormDialog } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { useTenant } from "@/features/session/queries";
import { z } from "@/lib/zod";
import { NewSecret } from "./new-secret";
import { useWebhookActions } from "./queries";

const EVENTS: [type: EventType, meaning: string][] = [
  ["upload.accepted", "An upload passed validation"],
  ["upload.refused", "An upload was refused, with the reasons"],
  ["version.ready", "A version can be called"],
  ["version.failed", "A version could not be staged"],
  ["version.flagged", "A version changes nothing, overflows, or differs on a quantised base"],
  ["version.promoted", "An alias points at another version"],
  ["canary.failed", "A canary was ended for its errors or its latency"],
  ["adapter.archived", "An adapter was archived"],
  ["quota.warning", "80% of a quota is used"],
  ["quota.exhausted", "A quota is used up"],
  ["budget.alert", "A budget passed one of its thresholds"],
  ["export.ready", "An export can be downloaded"],
];

const SCHEMA = z.object({
  url: z
    .string()
    .check(
      z.trim(),
      z.regex(/^https?:\/\/\S+$/, "Enter a URL such as https://example.org/hooks/lorikeet."),
      z.maxLength(500, "At most 500 characters."),
    ),
  description: z.string().check(z.maxLength(200, "At most 200 characters.")),
  events: z.array(z.string()),
  active: z.boolean(),
});
type Form = z.infer<typeof SCHEMA>;

/** The dialog that adds or edits an endpoint. */
export function EditWebhook({ webhook, onClose }: { webhook?: Webhook; onClose: () => void }) {
  const { create, change } = useWebhookActions(useTenant());
  const form = useForm<Form>({
    resolver: zodResolver(SCHEMA),
    defaultValues: {
      url: webhook?.url ?? "",
      description: webhook?.description ?? "",
      events: webhook?.events ?? [],
      active: webhook?.active ?? true,
    },
  });
  const { errors } = form.formState;
  const error = create.error ?? change.error;
  const submit = form.handleSubmit((values) => {
    const body = values as WebhookSettings;
    if (webhook) change.mutate({ id: webhook.id, body }, { onSuccess: onClose });
    else create.mutate(body);
  });
  if (create.data)
    return (
      <NewSecret
        secret={create.data.secret}
        note="Use the secret to verify the signature of every message."
        onClose={onClose}
      />
    );
  return (
    <FormDialog
      onClose={onClose}
      title={webhook ? "Edit webhook" : "Add a webhook"}
      write={{ error, isPending: create.isPending || change.isPending }}
      action={webhook ? "Save" : "Add webhook"}
      testId="webhook-submit"
      onSubmit={submit}
    >
      <Field label="URL" hint="An https address that is reachable from the internet." error={errors.url?.message}>
        <Input
          {...form.register("url")}
          type="url"
          autoComplete="off"
          placeholder="https://example.org/hooks/lorikeet"
          data-testid="webhook-url"
        />
      </Field>
      <Field label="Description" error={errors.description?.message}>
        <Input {...form.register("description")} autoComplete="off" />
      </Field>
      <fieldset className="grid gap-1.5">
        <legend className="mb-1 text-sm font-medium">
          Events <span className="font-normal text-ink-3">(none selected: all events)</span>
        </legend>
        {EVENTS.map(([type, meaning]) => (
          <CheckOption key={type} {...form.register("events")} value={type} meaning={meaning} />
        ))}
      </fieldset>
      {webhook && (
        <label className="flex items-center gap-2.5 text-sm font-medium">
          <input type="checkbox" {...form.register("active")} className="size-4 accent-(--accent)" />
          Enabled
        </label>
      )}
    </FormDialog>
  );
}
