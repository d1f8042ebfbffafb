import type { Role } from "@/api/types";
import type { Tone } from "@/components/badge";

/** The roles with descending permissions. */
const ROLES: { role: Role; tone: Tone; can: string }[] = [
  { role: "owner", tone: "green", can: "Full access, including owners" },
  { role: "admin", tone: "blue", can: "Also members, webhooks and the audit log" },
  { role: "developer", tone: "neutral", can: "Adapters, keys, exports and inference" },
  { role: "viewer", tone: "neutral", can: "Read-only access" },
];

export const roleInfo = (role: Role) => ROLES.find((one) => one.role === role) ?? ROLES[3]!;

/** Returns the roles that a person may assign and revoke: at most their own. */
export const rolesWithin = (highest: Role | undefined): Role[] => {
  const from = ROLES.findIndex((one) => one.role === highest);
  return from < 0 ? [] : ROLES.slice(from).map(({ role }) => role);
};
