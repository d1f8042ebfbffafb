import { zodResolver } from "@hookform/resolvers/zod";
import { useQuery } from "@tanstack/react-query";
import { Link, useLocation, useNavigate } from "@tanstack/react-router";
import { useEffect } from "react";
import { useForm } from "react-hook-form";
import { asApiError } from "@/api/errors";
import type { Offer } from "@/api/types";
import { Button } from "@/components/button";
import { Field, Input } from "@/components/field";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { z } from "@/lib/zod";
import { Frame } from "./frame";
import { newPassword } from "./new-password";
import { ProviderButton } from "./provider-button";
import { offerQuery, useAcceptInvitation, useLogout, useSession } from "./queries";

/** Behind an invitation's link; its secret is in the fragment, which browsers keep to themselves. */
export function InvitationPage() {
  const token = useInvitationToken();
  const { data: offer, error } = useQuery(offerQuery(token));
  if (error) {
    return (
      <Frame title="This invitation does not work">
        <ErrorNotice error={asApiError(error)} />
        <Button asChild>
          <Link to="/">To the console</Link>
        </Button>
      </Frame>
    );
  }
  if (!offer) {
    return (
      <Frame title="Invitation">
        <Skeleton className="h-24" />
      </Frame>
    );
  }
  return (
    <Frame title={`Join ${offer.tenant_name}`} note={`${offer.invited_by ?? "An administrator"} invites ${offer.email} as ${offer.role}.`}>
      <Way offer={offer} token={token} />
    </Frame>
  );
}

const KEPT = "lorikeet-invitation";

/** From the link, or as it was before somebody went away to sign in: it must not travel through addresses. */
function useInvitationToken(): string {
  const hash = useLocation({ select: (location) => location.hash });
  useEffect(() => {
    if (hash) sessionStorage.setItem(KEPT, hash);
  }, [hash]);
  return hash || (sessionStorage.getItem(KEPT) ?? "none");
}

function Way({ offer, token }: { offer: Offer; token: string }) {
  const { user, password_login } = useSession();
  const next = "/invitation";
  if (user && user.email !== offer.email) return <AnotherPerson email={user.email} wanted={offer.email} />;
  if (user) return <Accept offer={offer} token={token} />;
  return (
    <>
      <ProviderButton next={next} />
      {offer.has_account && password_login && (
        <Button asChild variant="primary" className="h-9.5!">
          <Link to="/login" search={{ next }}>
            Sign in to accept
          </Link>
        </Button>
      )}
      {!offer.has_account && password_login && <NewAccount offer={offer} token={token} />}
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
        Sign out and go on
      </Button>
    </>
  );
}

function useAccept(offer: Offer) {
  const navigate = useNavigate();
  const accept = useAcceptInvitation();
  const send = (body: { token: string; name: string; password?: string }) =>
    accept.mutate(body, {
      onSuccess: () => {
        sessionStorage.removeItem(KEPT);
        void navigate({ to: "/t/$tenant", params: { tenant: offer.tenant }, replace: true });
      },
    });
  return { accept, send };
}

function Accept({ offer, token }: { offer: Offer; token: string }) {
  const { accept, send } = useAccept(offer);
  return (
    <>
      {accept.error && <ErrorNotice error={asApiError(accept.error)} />}
      <Button variant="primary" busy={accept.isPending} onClick={() => send({ token, name: "" })} className="h-9.5!" data-testid="invitation-accept">
        Accept invitation
      </Button>
    </>
  );
}

const SCHEMA = z.object({
  name: z.string().check(z.trim(), z.maxLength(120, "At most 120 characters.")),
  password: newPassword,
});

function NewAccount({ offer, token }: { offer: Offer; token: string }) {
  const { accept, send } = useAccept(offer);
  const form = useForm<z.infer<typeof SCHEMA>>({ resolver: zodResolver(SCHEMA), defaultValues: { name: "", password: "" } });
  const { errors } = form.formState;
  return (
    <form onSubmit={form.handleSubmit((values) => send({ token, ...values }))} noValidate className="grid gap-4">
      {accept.error && <ErrorNotice error={asApiError(accept.error)} />}
      <Field label="E-mail">{(control) => <Input {...control} value={offer.email} readOnly autoComplete="username" />}</Field>
      <Field label="Name" hint="As others here should see you." error={errors.name?.message}>
        {(control) => <Input {...control} {...form.register("name")} autoComplete="name" data-testid="invitation-name" />}
      </Field>
      <Field label="Password" hint="At least 10 characters." error={errors.password?.message}>
        {(control) => <Input {...control} {...form.register("password")} type="password" autoComplete="new-password" data-testid="invitation-password" />}
      </Field>
      <Button type="submit" variant="primary" busy={accept.isPending} className="h-9.5!" data-testid="invitation-accept">
        Create account and join
      </Button>
    </form>
  );
}
