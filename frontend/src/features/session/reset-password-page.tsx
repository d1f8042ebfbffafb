import { zodResolver } from "@hookform/resolvers/zod";
import { Link, useLocation } from "@tanstack/react-router";
import { useForm } from "react-hook-form";
import { Button } from "@/components/button";
import { Field, Input } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { z } from "@/lib/zod";
import { BackToSignIn } from "./forgot-password-page";
import { SignInLayout } from "./sign-in-layout";
import { newPassword } from "./new-password";
import { useResetPassword } from "./queries";

const SCHEMA = z.object({ password: newPassword });

/** The page behind a link of an e-mail. The secret is in the fragment, which browsers do not send to servers. */
export function ResetPasswordPage() {
  const token = useLocation({ select: ({ hash }) => hash });
  const reset = useResetPassword();
  const form = useForm<z.infer<typeof SCHEMA>>({ resolver: zodResolver(SCHEMA), defaultValues: { password: "" } });
  const submit = form.handleSubmit(({ password }) => reset.mutate({ token, password }));
  if (reset.isSuccess) {
    return (
      <SignInLayout title="Password changed" note="All open sessions have ended.">
        <Button asChild variant="primary" className="h-9.5!">
          <Link to="/login">Sign in</Link>
        </Button>
      </SignInLayout>
    );
  }
  return (
    <SignInLayout title="Choose a new password">
      <form onSubmit={submit} noValidate className="grid gap-4">
        <ErrorNotice error={reset.error} />
        <Field label="New password" hint="At least 10 characters." error={form.formState.errors.password?.message}>
          <Input
            {...form.register("password")}
            type="password"
            autoComplete="new-password"
            data-testid="reset-password"
          />
        </Field>
        <Button type="submit" variant="primary" busy={reset.isPending} className="h-9.5!" data-testid="reset-submit">
          Change password
        </Button>
      </form>
      <BackToSignIn />
    </SignInLayout>
  );
}
