import { zodResolver } from "@hookform/resolvers/zod";
import { Link, useLocation, useNavigate } from "@tanstack/react-router";
import { useEffect } from "react";
import { useForm } from "react-hook-form";
import type { InvitationDetails } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Field, Input } from "@/components/field";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { z } from "@/lib/zod";
import { SignInLayout } from "./sign-in-layout";
import { newPassword } from "./new-password";
import { ProviderButton } from "./provider-button";
import { invitationQuery, useAcceptInvitation, useLogout, useSession } from "./queries";

/** The page behind an invitation's link. The secret is in the fragment, which browsers do not send to servers. */
export function InvitationPage() {
  const token = useInvitationToken();
  const { data: invitation, error } = useQuery(invitationQuery(token));
  if (error) {
    return (
      <SignInLayout title="This invitation is not valid">
        <ErrorNotice error={error} />
        <Button asChild>
          <Link to="/">Open console</Link>
        </Button>
      </SignInLayout>
    );
  }
  if (!invitation) {
    return (
      <SignInLayout title="Invitation">
        <Skeleton className="h-24" />
      </SignInLayout>
    );
  }
  return (
    <SignInLayout
      title={`Join ${invitation.tenant_name}`}
      note={`${invitation.invited_by ?? "An administrator"} invites ${invitation.email} as ${invitation.role}.`}
    >
      <InvitationOptions invitation={invitation} token={token} />
    </SignInLayout>
  );
}

const KEPT = "lorikeet-invitation";

/** Returns the token from the link, or the stored one after the person left to sign in: it must not be in addresses. */
function useInvitationToken(): string {
  const hash = useLocation({ select: (location) => location.hash });
  useEffect(() => {
    if (hash) sessionStorage.setItem(KEPT, hash);
  }, [hash]);
  return hash || (sessionStorage.getItem(KEPT) ?? "none");
}

function InvitationOptions({ invitation, token }: { invitation: InvitationDetails; token: string }) {
  const { user, password_login } = useSession();
  const next = "/invitation";
  if (user && user.email !== invitation.email) return <AnotherPerson email={user.email} wanted={invitation.email} />;
  if (user) return <Accept invitation={invitation} token={token} />;
  return (
    <>
      <ProviderButton next={next} />
      {invitation.has_account && password_login && (
        <Button asChild variant="primary" className="h-9.5!">
          <Link to="/login" search={{ next }}>
            Sign in to accept
          </Link>
        </Button>
      )}
      {!invitation.has_account && password_login && <NewAccount invitation={invitation} token={token} />}
    </>
  );
}

function AnotherPerson({ email, wanted }: { email: string; wanted: string }) {
  const logout = useLogout();
  return (
    <>
      <p className="text-sm text-ink-2">
        You are signed in as {email}. The invitation is for {wanted}.
      </p>
      <Button busy={logout.isPending} onClick={() => logout.mutate()}>
        Sign out and continue
      </Button>
    </>
  );
}

function useAccept(invitation: InvitationDetails) {
  const navigate = useNavigate();
  const accept = useAcceptInvitation();
  const send = (body: { token: string; name: string; password?: string }) =>
    accept.mutate(body, {
      onSuccess: () => {
        sessionStorage.removeItem(KEPT);
        void navigate({ to: "/t/$tenant", params: { tenant: invitation.tenant }, replace: true });
      },
    });
  return { accept, send };
}

function Accept({ invitation, token }: { invitation: InvitationDetails; token: string }) {
  const { accept, send } = useAccept(invitation);
  return (
    <>
      <ErrorNotice error={accept.error} />
      <Button
        variant="primary"
        busy={accept.isPending}
        onClick={() => send({ token, name: "" })}
        className="h-9.5!"
        data-testid="invitation-accept"
      >
        Accept invitation
      </Button>
    </>
  );
}

const SCHEMA = z.object({
  name: z.string().check(z.trim(), z.maxLength(120, "At most 120 characters.")),
  password: newPassword,
});

function NewAccount({ invitation, token }: { invitation: InvitationDetails; token: string }) {
  const { accept, send } = useAccept(invitation);
  const form = useForm<z.infer<typeof SCHEMA>>({
    resolver: zodResolver(SCHEMA),
    defaultValues: { name: "", password: "" },
  });
  const { errors } = form.formState;
  return (
    <form onSubmit={form.handleSubmit((values) => send({ token, ...values }))} noValidate className="grid gap-4">
      <ErrorNotice error={accept.error} />
      <Field label="E-mail">
        <Input value={invitation.email} readOnly autoComplete="username" />
      </Field>
      <Field label="Name" hint="Shown to other members." error={errors.name?.message}>
        <Input {...form.register("name")} autoComplete="name" data-testid="invitation-name" />
      </Field>
      <Field label="Password" hint="At least 10 characters." error={errors.password?.message}>
        <Input
          {...form.register("password")}
          type="password"
          autoComplete="new-password"
          data-testid="invitation-password"
        />
      </Field>
      <Button
        type="submit"
        variant="primary"
        busy={accept.isPending}
        className="h-9.5!"
        data-testid="invitation-accept"
      >
        Create account and join
      </Button>
    </form>
  );
}
