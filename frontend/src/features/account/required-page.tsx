import { getRouteApi, Link } from "@tanstack/react-router";
import { Button } from "@/components/button";
import { SignInLayout } from "@/features/session/sign-in-layout";
import { useLogout, useSession } from "@/features/session/queries";
import { safePath } from "@/lib/safe-path";
import { SecondFactorCard } from "./second-factor-card";

const route = getRouteApi("/second-factor");

/** The only page of a member who lacks the second factor that the tenant requires. */
export function SecondFactorRequiredPage() {
  const { user, tenants } = useSession();
  const { next } = route.useSearch();
  const logout = useLogout();
  const requiring = tenants.filter((tenant) => tenant.second_factor_required).map(({ name }) => name);
  const others = tenants.filter((tenant) => !tenant.second_factor_required);
  return (
    <SignInLayout
      wide
      title="Set up a second factor"
      note={
        requiring.length > 0
          ? `${requiring.join(", ")} ${requiring.length === 1 ? "requires" : "require"} two-factor authentication. Add an authenticator app or a passkey to continue.`
          : "It is asked for after your password when you sign in."
      }
    >
      <SecondFactorCard />
      {user?.second_factor && (
        <Button asChild variant="primary" className="h-9.5!">
          <Link to={safePath(next)} data-testid="continue">
            Continue
          </Link>
        </Button>
      )}
      <div className="flex flex-wrap gap-2">
        {others.map(({ slug, name }) => (
          <Button asChild key={slug}>
            <Link to="/t/$tenant" params={{ tenant: slug }}>
              Open {name}
            </Link>
          </Button>
        ))}
        <Button busy={logout.isPending} onClick={() => logout.mutate()}>
          Sign out
        </Button>
      </div>
    </SignInLayout>
  );
}
