import { Building2 } from "lucide-react";
import { Button } from "@/components/button";
import { Empty } from "@/components/notices";
import { useTitle } from "@/lib/use-title";
import { useLogout } from "./queries";

export function NoTenantPage() {
  useTitle("No tenant");
  const logout = useLogout();
  return (
    <main id="main">
      <Empty
        icon={<Building2 />}
        heading="h1"
        title="You are not a member of a tenant"
        action={<Button onClick={() => logout.mutate()}>Sign out</Button>}
      >
        Ask an owner or admin of your organisation to add this account, then reload the page.
      </Empty>
    </main>
  );
}
