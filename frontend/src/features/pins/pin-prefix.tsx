import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import { asApiError } from "@/api/errors";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Field, Input, Select, Textarea } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { toast } from "@/components/toast";
import { modelsQuery } from "@/features/adapters/queries";
import { useTenant } from "@/features/session/queries";
import { z } from "@/lib/zod";
import { usePinPrefix } from "./queries";

const SCHEMA = z.object({
  name: z
    .string()
    .check(
      z.trim(),
      z.regex(
        /^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$/,
        "Use lower-case letters, digits, dots, hyphens and underscores.",
      ),
    ),
  model: z.string().check(z.minLength(1, "Choose a model.")),
  kind: z.enum(["system", "prompt"]),
  text: z.string().check(z.minLength(1, "Paste the text that the requests start with.")),
  salt: z.string().check(z.maxLength(256, "At most 256 characters.")),
});
type Form = z.infer<typeof SCHEMA>;

/** Of one adapter, or of a model that is chosen. */
export function PinPrefix({ model, onClose }: { model?: string; onClose: () => void }) {
  const tenant = useTenant();
  const pin = usePinPrefix(tenant);
  const models = useQuery({ ...modelsQuery(tenant), enabled: !model });
  const form = useForm<Form>({
    resolver: zodResolver(SCHEMA),
    defaultValues: { name: "", model: model ?? "", kind: "system", text: "", salt: "" },
  });
  const { errors } = form.formState;
  const submit = form.handleSubmit(({ name, model, kind, text, salt }) => {
    const content = kind === "prompt" ? { prompt: text } : { messages: [{ role: "system" as const, content: text }] };
    pin.mutate(
      { name, model, cache_salt: salt, ...content },
      {
        onSuccess: () => {
          toast.good(`Pinned ${name}; hosts compute it in the background`);
          onClose();
        },
      },
    );
  });
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title="Pin a prefix"
      description="The text is stored until you unpin it. Computing it is free of charge; its memory counts against the tenant’s quota."
      className="max-w-2xl!"
    >
      <form onSubmit={submit} noValidate className="grid gap-4">
        {pin.error && <ErrorNotice error={asApiError(pin.error)} />}
        <div className="grid gap-4 sm:grid-cols-2">
          <Field label="Name" hint="For example: handbook." error={errors.name?.message}>
            {(control) => <Input {...control} {...form.register("name")} autoComplete="off" spellCheck={false} />}
          </Field>
          {model ? null : (
            <Field label="Model" error={errors.model?.message}>
              {(control) => (
                <Select {...control} {...form.register("model")}>
                  <option value="">Choose …</option>
                  {models.data?.map(({ id }) => (
                    <option key={id} value={id}>
                      {id}
                    </option>
                  ))}
                </Select>
              )}
            </Field>
          )}
          <Field label="Type">
            {(control) => (
              <Select {...control} {...form.register("kind")}>
                <option value="system">System prompt of chats</option>
                <option value="prompt">Start of completion prompts</option>
              </Select>
            )}
          </Field>
          <Field label="Salt" hint="The cache_salt of the requests, if they have one." error={errors.salt?.message}>
            {(control) => <Input {...control} {...form.register("salt")} autoComplete="off" spellCheck={false} />}
          </Field>
        </div>
        <Field
          label="Text"
          hint="Enter the text exactly as the requests send it. For several messages or tools, use the API or lorikeet pin."
          error={errors.text?.message}
        >
          {(control) => (
            <Textarea {...control} {...form.register("text")} rows={10} className="max-h-80" spellCheck={false} />
          )}
        </Field>
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary" busy={pin.isPending}>
            Pin prefix
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
