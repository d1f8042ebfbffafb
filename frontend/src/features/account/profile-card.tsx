import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Field, Input } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { toast } from "@/components/toast";
import { useSession, useSetName } from "@/features/session/queries";
import { z } from "@/lib/zod";

const SCHEMA = z.object({ name: z.string().check(z.trim(), z.maxLength(120, "At most 120 characters.")) });

/** The person's name and address. */
export function ProfileCard() {
  const { user } = useSession();
  const save = useSetName();
  const form = useForm<z.infer<typeof SCHEMA>>({
    resolver: zodResolver(SCHEMA),
    defaultValues: { name: user?.name ?? "" },
  });
  return (
    <Card title="Profile">
      <form
        noValidate
        className="grid items-start gap-4 p-4 sm:grid-cols-2"
        onSubmit={form.handleSubmit((body) => save.mutate(body, { onSuccess: () => toast.good("Name saved") }))}
      >
        <ErrorNotice error={save.error} className="sm:col-span-2" />
        <Field label="Name" hint="Shown to other members." error={form.formState.errors.name?.message}>
          <Input {...form.register("name")} autoComplete="name" data-testid="profile-name" />
        </Field>
        <Field label="E-mail" hint="Your address for signing in. It cannot be changed.">
          <Input value={user?.email ?? ""} readOnly autoComplete="username" />
        </Field>
        <div className="sm:col-span-2">
          <Button type="submit" busy={save.isPending} data-testid="save-profile">
            Save
          </Button>
        </div>
      </form>
    </Card>
  );
}
