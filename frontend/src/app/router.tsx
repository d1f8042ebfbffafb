import type { QueryClient } from "@tanstack/react-query";
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  Outlet,
  redirect,
  retainSearchParams,
  type RouterHistory,
} from "@tanstack/react-router";
import { sessionQuery } from "@/features/session/queries";
import { readAccountSearch } from "@/features/account/search";
import { ADAPTER_TABS, type AdapterTab, readAdaptersSearch } from "@/features/adapters/search";
import { readAuditSearch } from "@/features/audit/search";
import { readHostsSearch, readReportSearch, readTenantSearch, readTenantsSearch } from "@/features/operator/search";
import { readHostsSearch as readTenantHostsSearch } from "@/features/hosts/search";
import { readBatchesSearch } from "@/features/batches/search";
import { readKeysSearch } from "@/features/keys/search";
import { readLimitsSearch } from "@/features/limits/search";
import { readMembersSearch } from "@/features/members/search";
import { readUsageSearch } from "@/features/usage/search";
import { readWebhooksSearch } from "@/features/webhooks/search";
import { readRequestsSearch } from "@/features/requests/search";
import { type RangeSearch, readRangeSearch } from "@/lib/time-range";
import { lazyPage } from "@/lib/lazy-part";
import { safePath } from "@/lib/safe-path";
import { RouteError, NotFound, RouteLoading } from "./route-fallbacks";
import { text, oneOf } from "@/lib/search-params";
import { lastTenant } from "./preferences";

// Links between pages with charts keep the time range.
const rangeKept = { middlewares: [retainSearchParams<RangeSearch>(["range", "since", "until"])] };

const root = createRootRouteWithContext<{ client: QueryClient }>()({ component: Outlet });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: async ({ context }) => {
    const session = await context.client.ensureQueryData(sessionQuery);
    if (!session.authenticated) throw redirect({ to: "/login" });
    const tenant = session.tenants.find(({ slug }) => slug === lastTenant()) ?? session.tenants[0];
    if (tenant) throw redirect({ to: "/t/$tenant", params: { tenant: tenant.slug } });
  },
  component: lazyPage(() => import("@/features/session/no-tenant-page"), "NoTenantPage"),
});

const login = createRoute({
  getParentRoute: () => root,
  path: "/login",
  validateSearch: (search: Record<string, unknown>): { next?: string } => ({ next: text(search.next) }),
  beforeLoad: async ({ context, search }) => {
    const session = await context.client.ensureQueryData(sessionQuery);
    if (session.authenticated) throw redirect({ href: safePath(search.next) });
  },
  component: lazyPage(() => import("@/features/session/login-page"), "LoginPage"),
});

const forgotPassword = createRoute({
  getParentRoute: () => root,
  path: "/forgot-password",
  beforeLoad: ({ context }) => context.client.ensureQueryData(sessionQuery),
  component: lazyPage(() => import("@/features/session/forgot-password-page"), "ForgotPasswordPage"),
});

const resetPassword = createRoute({
  getParentRoute: () => root,
  path: "/reset-password",
  beforeLoad: ({ context }) => context.client.ensureQueryData(sessionQuery),
  component: lazyPage(() => import("@/features/session/reset-password-page"), "ResetPasswordPage"),
});

const invitation = createRoute({
  getParentRoute: () => root,
  path: "/invitation",
  beforeLoad: ({ context }) => context.client.ensureQueryData(sessionQuery),
  component: lazyPage(() => import("@/features/session/invitation-page"), "InvitationPage"),
});

const secondFactor = createRoute({
  getParentRoute: () => root,
  path: "/second-factor",
  validateSearch: (search: Record<string, unknown>): { next?: string } => ({ next: text(search.next) }),
  beforeLoad: async ({ context, location }) => {
    const session = await context.client.ensureQueryData(sessionQuery);
    if (!session.authenticated) throw redirect({ to: "/login", search: { next: location.href } });
  },
  component: lazyPage(() => import("@/features/account/required-page"), "SecondFactorRequiredPage"),
});

const tenant = createRoute({
  getParentRoute: () => root,
  path: "/t/$tenant",
  beforeLoad: async ({ context, location, params }) => {
    const session = await context.client.ensureQueryData(sessionQuery);
    if (!session.authenticated) throw redirect({ to: "/login", search: { next: location.href } });
    const entered = session.tenants.find(({ slug }) => slug === params.tenant);
    if (!entered) throw redirect({ to: "/" });
    if (entered.second_factor_required && !session.user?.second_factor)
      throw redirect({ to: "/second-factor", search: { next: location.href } });
  },
  component: lazyPage(() => import("./shell"), "Shell"),
});

const overview = createRoute({
  getParentRoute: () => tenant,
  path: "/",
  component: lazyPage(() => import("@/features/overview/overview-page"), "OverviewPage"),
});

const playground = createRoute({
  getParentRoute: () => tenant,
  path: "playground",
  validateSearch: (search: Record<string, unknown>): { model?: string; request?: string } => ({
    model: text(search.model),
    request: text(search.request),
  }),
  component: lazyPage(() => import("@/features/playground/playground-page"), "PlaygroundPage"),
});

const adapters = createRoute({
  getParentRoute: () => tenant,
  path: "adapters",
  validateSearch: readAdaptersSearch,
  component: lazyPage(() => import("@/features/adapters/adapters-page"), "AdaptersPage"),
});

const adapter = createRoute({
  getParentRoute: () => tenant,
  path: "adapters/$name",
  validateSearch: (search: Record<string, unknown>): RangeSearch & { version?: number; tab?: AdapterTab } => ({
    ...readRangeSearch(search),
    version: Number.isInteger(search.version) ? Number(search.version) : undefined,
    tab: oneOf(search.tab, ADAPTER_TABS),
  }),
  search: rangeKept,
  component: lazyPage(() => import("@/features/adapters/adapter-page"), "AdapterPage"),
});

const upload = createRoute({
  getParentRoute: () => tenant,
  path: "upload",
  validateSearch: (search: Record<string, unknown>): { name?: string; id?: string } => ({
    name: text(search.name),
    id: text(search.id),
  }),
  component: lazyPage(() => import("@/features/uploads/upload-page"), "UploadPage"),
});

const batches = createRoute({
  getParentRoute: () => tenant,
  path: "batches",
  validateSearch: readBatchesSearch,
  component: lazyPage(() => import("@/features/batches/batches-page"), "BatchesPage"),
});

const requests = createRoute({
  getParentRoute: () => tenant,
  path: "requests",
  validateSearch: readRequestsSearch,
  component: lazyPage(() => import("@/features/requests/requests-page"), "RequestsPage"),
});

const usage = createRoute({
  getParentRoute: () => tenant,
  path: "usage",
  validateSearch: readUsageSearch,
  search: rangeKept,
  component: lazyPage(() => import("@/features/usage/usage-page"), "UsagePage"),
});

const limits = createRoute({
  getParentRoute: () => tenant,
  path: "limits",
  validateSearch: readLimitsSearch,
  component: lazyPage(() => import("@/features/limits/limits-page"), "LimitsPage"),
});

const slo = createRoute({
  getParentRoute: () => tenant,
  path: "slo",
  validateSearch: readRangeSearch,
  search: rangeKept,
  component: lazyPage(() => import("@/features/slo/slo-page"), "SloPage"),
});

const hosts = createRoute({
  getParentRoute: () => tenant,
  path: "hosts",
  validateSearch: readTenantHostsSearch,
  search: rangeKept,
  component: lazyPage(() => import("@/features/hosts/hosts-page"), "HostsPage"),
});

const keys = createRoute({
  getParentRoute: () => tenant,
  path: "keys",
  validateSearch: readKeysSearch,
  component: lazyPage(() => import("@/features/keys/keys-page"), "KeysPage"),
});

const members = createRoute({
  getParentRoute: () => tenant,
  path: "members",
  validateSearch: readMembersSearch,
  component: lazyPage(() => import("@/features/members/members-page"), "MembersPage"),
});

const audit = createRoute({
  getParentRoute: () => tenant,
  path: "audit",
  validateSearch: readAuditSearch,
  component: lazyPage(() => import("@/features/audit/audit-page"), "AuditPage"),
});

const settings = createRoute({
  getParentRoute: () => tenant,
  path: "settings",
  component: lazyPage(() => import("@/features/settings/settings-page"), "SettingsPage"),
});

const account = createRoute({
  getParentRoute: () => tenant,
  path: "account",
  validateSearch: readAccountSearch,
  component: lazyPage(() => import("@/features/account/account-page"), "AccountPage"),
});

const webhooks = createRoute({
  getParentRoute: () => tenant,
  path: "webhooks",
  validateSearch: readWebhooksSearch,
  component: lazyPage(() => import("@/features/webhooks/webhooks-page"), "WebhooksPage"),
});

const operator = createRoute({
  getParentRoute: () => tenant,
  path: "operator",
  validateSearch: readReportSearch,
  component: lazyPage(() => import("@/features/operator/operator-page"), "OperatorPage"),
});

const operatorTenants = createRoute({
  getParentRoute: () => tenant,
  path: "operator/tenants",
  validateSearch: readTenantsSearch,
  component: lazyPage(() => import("@/features/operator/tenants-page"), "TenantsPage"),
});

const operatorTenant = createRoute({
  getParentRoute: () => tenant,
  path: "operator/tenants/$slug",
  validateSearch: readTenantSearch,
  component: lazyPage(() => import("@/features/operator/tenant-page"), "TenantPage"),
});

const operatorHosts = createRoute({
  getParentRoute: () => tenant,
  path: "operator/hosts",
  validateSearch: readHostsSearch,
  search: rangeKept,
  component: lazyPage(() => import("@/features/operator/hosts-page"), "OperatorHostsPage"),
});

const operatorAudit = createRoute({
  getParentRoute: () => tenant,
  path: "operator/audit",
  validateSearch: readAuditSearch,
  component: lazyPage(() => import("@/features/operator/operator-audit-page"), "OperatorAuditPage"),
});

const tree = root.addChildren([
  home,
  login,
  forgotPassword,
  resetPassword,
  invitation,
  secondFactor,
  tenant.addChildren([
    overview,
    playground,
    adapters,
    adapter,
    upload,
    batches,
    requests,
    usage,
    limits,
    slo,
    hosts,
    keys,
    members,
    audit,
    webhooks,
    settings,
    account,
    operator,
    operatorTenants,
    operatorTenant,
    operatorHosts,
    operatorAudit,
  ]),
]);

export function makeRouter(client: QueryClient, history?: RouterHistory) {
  return createRouter({
    history,
    routeTree: tree,
    context: { client },
    defaultPreload: "intent",
    defaultPendingComponent: RouteLoading,
    defaultPendingMs: 250,
    defaultErrorComponent: RouteError,
    defaultNotFoundComponent: NotFound,
    scrollRestoration: true,
  });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}
