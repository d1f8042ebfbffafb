import { useSession, useTenant } from "@/features/session/queries";
import { type Destination, NAVIGATION } from "./navigation";

/** Returns the pages that the person may open here. The server decides; this only hides links that would be refused. */
export function useDestinations(): typeof NAVIGATION {
  const { tenants, user } = useSession();
  const tenant = useTenant();
  const capabilities = tenants.find(({ slug }) => slug === tenant)?.capabilities ?? [];
  const allowed = ({ needs }: Destination) =>
    !needs || (needs === "operator" ? Boolean(user?.is_operator) : capabilities.includes(needs));
  return NAVIGATION.map((group) => ({ ...group, items: group.items.filter(allowed) })).filter(
    ({ items }) => items.length > 0,
  );
}
