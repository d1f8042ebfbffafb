import { oneOf } from "@/lib/search-params";

/** The parts of the account page. */
export const ACCOUNT_TABS = ["profile", "security", "appearance"] as const;

export interface AccountSearch {
  tab?: (typeof ACCOUNT_TABS)[number];
}

export const readAccountSearch = (search: Record<string, unknown>): AccountSearch => ({
  tab: oneOf(search.tab, ACCOUNT_TABS),
});
