import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import { useQuery } from "@/app/use-query";
import { FormDialog } from "@/components/dialog";
import { Field, Input, type Option, Select, Textarea } from "@/components/field";
import { toastThen } from "@/components/toast";
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

/** The dialog that pins a prefix of one adapter, or of a model that is selected in it. */
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
      toastThen(`Pinned ${name}; hosts compute it in the background`, onClose),
    );
  });
  return (
    <FormDialog
      onClose={onClose}
      title="Pin a prefix"
      description="The text is stored until you unpin it. Computing it is free of charge; its memory counts against the tenant’s quota."
      className="max-w-2xl!"
      write={pin}
      action="Pin prefix"
      onSubmit={submit}
    >
      <div className="field-pairs">
        <Field label="Name" hint="For example: handbook." error={errors.name?.message}>
          <Input {...form.register("name")} autoComplete="off" spellCheck={false} />
        </Field>
        {model ? null : (
          <Field label="Model" error={errors.model?.message}>
            <Select
              {...form.register("model")}
              options={[["", "Choose …"], ...(models.data?.map(({ id }): Option => [id, id]) ?? [])]}
            />
          </Field>
        )}
        <Field label="Type">
          <Select
            {...form.register("kind")}
            options={[
              ["system", "System prompt of chats"],
              ["prompt", "Start of completion prompts"],
            ]}
          />
        </Field>
        <Field label="Salt" hint="The cache_salt of the requests, if they have one." error={errors.salt?.message}>
          <Input {...form.register("salt")} autoComplete="off" spellCheck={false} />
        </Field>
      </div>
      <Field
        label="Text"
        hint="Enter the text exactly as the requests send it. For several messages or tools, use the API or lorikeet pin."
        error={errors.text?.message}
      >
        <Textarea {...form.register("text")} rows={10} className="max-h-80" spellCheck={false} />
      </Field>
    </FormDialog>
  );
}
