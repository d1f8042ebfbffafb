import { zodResolver } from "@hookform/resolvers/zod";
import { Link } from "@tanstack/react-router";
import { useForm } from "react-hook-form";
import { Button } from "@/components/button";
import { Field, Input } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { z } from "@/lib/zod";
import { SignInLayout } from "./sign-in-layout";
import { useForgotPassword, useSession } from "./queries";

const SCHEMA = z.object({ email: z.email("Enter the e-mail address of your account.") });

export function ForgotPasswordPage() {
  const forgot = useForgotPassword();
  const form = useForm<z.infer<typeof SCHEMA>>({ resolver: zodResolver(SCHEMA), defaultValues: { email: "" } });
  const { sends_mail } = useSession();
  const submit = form.handleSubmit(({ email }) => forgot.mutate(email));
  if (forgot.isSuccess) {
    return (
      <SignInLayout
        title="Check your e-mail"
        note={`If ${forgot.variables} has an account, a link was sent to it. The link is valid for one hour.`}
      >
        <BackToSignIn />
      </SignInLayout>
    );
  }
  if (!sends_mail) {
    return (
      <SignInLayout
        title="Forgot your password?"
        note="No mail server is set up here, so no link can be sent. Ask the operator of this platform for help."
      >
        <BackToSignIn />
      </SignInLayout>
    );
  }
  return (
    <SignInLayout
      title="Forgot your password?"
      note="Enter your e-mail address to receive a link for choosing a new password."
    >
      <form onSubmit={submit} noValidate className="grid gap-4">
        <ErrorNotice error={forgot.error} />
        <Field label="E-mail" error={form.formState.errors.email?.message}>
          <Input {...form.register("email")} type="email" autoComplete="username" data-testid="forgot-email" />
        </Field>
        <Button type="submit" variant="primary" busy={forgot.isPending} className="h-9.5!" data-testid="forgot-submit">
          Send link
        </Button>
      </form>
      <BackToSignIn />
    </SignInLayout>
  );
}

export function BackToSignIn() {
  return (
    <Link to="/login" className="text-sm text-blue-text underline underline-offset-2">
      Back to sign in
    </Link>
  );
}
