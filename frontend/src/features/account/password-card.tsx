import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Field, Input } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { toast } from "@/components/toast";
import { newPassword } from "@/features/session/new-password";
import { useChangePassword, useSession } from "@/features/session/queries";
import { z } from "@/lib/zod";

const SCHEMA = z.object({
  current_password: z.string().check(z.minLength(1, "Enter your current password.")),
  password: newPassword,
});
const EMPTY = { current_password: "", password: "" };

export function PasswordCard() {
  const { user, password_login, provider } = useSession();
  if (!user) return null;
  return (
    <Card title="Password">
      {user.has_password && password_login ? (
        <ChangePassword />
      ) : (
        <p className="px-4 py-4 text-sm text-ink-3">
          You sign in with {provider ?? "your organisation's provider"}, so there is no password to change here.
        </p>
      )}
    </Card>
  );
}

function ChangePassword() {
  const change = useChangePassword();
  const form = useForm<z.infer<typeof SCHEMA>>({ resolver: zodResolver(SCHEMA), defaultValues: EMPTY });
  const { errors } = form.formState;
  const done = () => {
    toast.good("Password changed", "Your other sessions have ended.");
    form.reset(EMPTY);
  };
  return (
    <form
      onSubmit={form.handleSubmit((body) => change.mutate(body, { onSuccess: done }))}
      noValidate
      className="grid items-start gap-4 p-4 sm:grid-cols-2"
    >
      <ErrorNotice error={change.error} className="sm:col-span-2" />
      <Field label="Current password" error={errors.current_password?.message}>
        <Input
          {...form.register("current_password")}
          type="password"
          autoComplete="current-password"
          data-testid="current-password"
        />
      </Field>
      <Field label="New password" hint="At least 10 characters." error={errors.password?.message}>
        <Input {...form.register("password")} type="password" autoComplete="new-password" data-testid="new-password" />
      </Field>
      <div className="sm:col-span-2">
        <Button type="submit" busy={change.isPending} data-testid="change-password">
          Change password
        </Button>
      </div>
    </form>
  );
}
