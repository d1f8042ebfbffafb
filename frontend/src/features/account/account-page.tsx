import { getRouteApi } from "@tanstack/react-router";
import { Page } from "@/app/page";
import { Tabs } from "@/components/tabs";
import { lazyPart } from "@/lib/lazy-part";
import type { AccountSearch } from "./search";

// Forms are loaded on demand with their libraries.
const ProfileCard = lazyPart(() => import("./profile-card"), "ProfileCard");
const PasswordCard = lazyPart(() => import("./password-card"), "PasswordCard");
const SecondFactorCard = lazyPart(() => import("./second-factor-card"), "SecondFactorCard");
const DevicesCard = lazyPart(() => import("./devices-card"), "DevicesCard");
const AppearanceCards = lazyPart(() => import("./appearance-cards"), "AppearanceCards");

const route = getRouteApi("/t/$tenant/account");

/** The settings of the person, which are the same in all of their tenants. */
export function AccountPage() {
  const { tab = "profile" } = route.useSearch();
  const navigate = route.useNavigate();
  const show = (next: NonNullable<AccountSearch["tab"]>) =>
    void navigate({ search: { tab: next === "profile" ? undefined : next }, replace: true });
  return (
    <Page title="Your account" note="Your name, how you sign in, and how the console looks for you." narrow>
      <Tabs
        label="Parts of your account"
        value={tab}
        onChange={show}
        tabs={[
          { name: "profile", label: "Profile", content: <ProfileCard /> },
          {
            name: "security",
            label: "Security",
            content: (
              <>
                <PasswordCard />
                <SecondFactorCard />
                <DevicesCard />
              </>
            ),
          },
          { name: "appearance", label: "Appearance", content: <AppearanceCards /> },
        ]}
      />
    </Page>
  );
}
