import { Link, Outlet, useLocation, useParams } from "@tanstack/react-router";
import { ChevronsUpDown, LogOut, Menu as MenuIcon, Moon, Search, Sun } from "lucide-react";
import { Dialog as Radix } from "radix-ui";
import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { Button } from "@/components/button";
import { Mark } from "@/components/logo";
import { useLogout, useSession, useTenant, versionQuery } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { initial } from "@/lib/format";
import { loaded } from "@/lib/lazy-part";
import type { PaletteMode } from "./command-palette";
import { LiveProvider, useConnectionState } from "./live-connection";
import { useDestinations } from "./destinations";
import { NotRefreshed } from "./not-refreshed";
import { isDark, rememberTenant, setPreferences, usePreferences } from "./preferences";
import { useQuery } from "./use-query";

const CommandPalette = lazy(() => loaded(() => import("./command-palette")));

/** The frame of all pages of a tenant: navigation, search, and the live connection. */
export function Shell() {
  const { tenant } = useParams({ from: "/t/$tenant" });
  const [palette, setPalette] = useState<PaletteMode | null>(null);
  useEffect(() => rememberTenant(tenant), [tenant]);
  useEffect(() => onCtrlK(() => setPalette((open) => (open ? null : "all"))), []);
  return (
    <LiveProvider key={tenant} tenant={tenant}>
      <a
        href="#main"
        className="fixed top-2 left-2 z-50 -translate-y-16 rounded-lg bg-accent px-3 py-2 text-sm font-medium text-on-accent focus:translate-y-0"
      >
        Skip to content
      </a>
      <div className="min-h-dvh md:grid md:grid-cols-[14.5rem_minmax(0,1fr)]">
        <aside className="sticky top-0 hidden h-dvh flex-col border-r bg-surface md:flex">
          <Sidebar onPalette={setPalette} />
        </aside>
        <MobileBar onPalette={setPalette} />
        <Main />
      </div>
      {palette && (
        <Suspense>
          <CommandPalette mode={palette} onClose={() => setPalette(null)} />
        </Suspense>
      )}
    </LiveProvider>
  );
}

function onCtrlK(action: () => void): () => void {
  const listen = (event: KeyboardEvent) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    action();
  };
  addEventListener("keydown", listen);
  return () => removeEventListener("keydown", listen);
}

/** Moves the focus to the main region when the page changes, as a full page load would. */
function Main() {
  const path = useLocation({ select: ({ pathname }) => pathname });
  const main = useRef<HTMLElement>(null);
  const shown = useRef(path);
  useEffect(() => {
    if (shown.current === path) return;
    shown.current = path;
    main.current?.focus({ preventScroll: true });
  }, [path]);
  return (
    <main id="main" ref={main} tabIndex={-1} className="min-w-0 outline-none">
      <Suspended />
      <NotRefreshed />
      <Outlet />
    </main>
  );
}

/** A notice that an operator suspended this tenant, and what still works. */
function Suspended() {
  const tenant = useTenant();
  const current = useSession().tenants.find(({ slug }) => slug === tenant);
  if (!current?.suspended_at) return null;
  return (
    <div role="note" className="border-b bg-amber-soft px-4 py-2.5 text-sm break-words text-amber-text sm:px-7">
      <span className="font-medium">
        {current.name} is suspended{current.suspended_for && `: ${current.suspended_for}`}
      </span>{" "}
      <span className="text-ink-2">
        Its API keys are refused. You can still read all data. The operator of this installation can end the suspension.
      </span>
    </div>
  );
}

interface SidebarProps {
  onPalette: (mode: PaletteMode) => void;
  onNavigate?: () => void;
}

function Sidebar({ onPalette, onNavigate }: SidebarProps) {
  return (
    <>
      <div className="p-2.5">
        <TenantSwitcher onSwitch={() => onPalette("tenants")} />
        <button
          type="button"
          onClick={() => onPalette("all")}
          className="mt-2 flex h-8 w-full items-center gap-2 rounded-lg border bg-bg px-2.5 text-sm text-ink-3 hover:border-line-2 hover:text-ink-2"
        >
          <Search className="size-3.5" />
          Search
          <kbd className="ml-auto font-sans text-2xs">Ctrl K</kbd>
        </button>
      </div>
      <Navigation onNavigate={onNavigate} />
      <div className="mt-auto border-t p-2.5">
        <LiveState />
        <UserRow onNavigate={onNavigate} />
        <ServerVersion />
      </div>
    </>
  );
}

function Navigation({ onNavigate }: { onNavigate?: () => void }) {
  const tenant = useTenant();
  return (
    <nav aria-label="Console" className="scroll-quiet flex-1 overflow-y-auto px-2.5 py-1">
      {useDestinations().map(({ title, items }) => (
        <div key={title} className="mb-4 md:[@media(max-height:60rem)]:mb-2">
          <p className="px-2.5 pb-1 text-2xs font-medium tracking-wide text-ink-3 uppercase">{title}</p>
          <ul className="grid gap-px">
            {items.map(({ to, label, icon: Icon }) => (
              <li key={to}>
                <Link
                  to={to}
                  params={{ tenant }}
                  onClick={onNavigate}
                  activeOptions={{ exact: to === "/t/$tenant" || to === "/t/$tenant/operator" }}
                  className="flex h-8 items-center gap-2.5 rounded-lg px-2.5 text-sm text-ink-2 transition-colors hover:bg-fill hover:text-ink md:[@media(max-height:60rem)]:h-7 [&_svg]:size-4 [&_svg]:text-ink-3"
                  activeProps={{ className: "bg-fill-2 font-medium text-ink [&_svg]:text-accent-text" }}
                >
                  <Icon aria-hidden />
                  {label}
                </Link>
              </li>
            ))}
          </ul>
        </div>
      ))}
    </nav>
  );
}

function TenantSwitcher({ onSwitch }: { onSwitch: () => void }) {
  const { tenants } = useSession();
  const slug = useTenant();
  const current = tenants.find((tenant) => tenant.slug === slug);
  const label = (
    <>
      <Mark className="size-7 shrink-0" />
      <span className="min-w-0 flex-1">
        <span className="block truncate text-sm leading-4 font-semibold">{current?.name ?? slug}</span>
        <span className="block truncate text-2xs text-ink-3 capitalize">{current?.role}</span>
      </span>
    </>
  );
  if (tenants.length < 2) return <div className="flex h-11 items-center gap-2.5 px-1.5">{label}</div>;
  return (
    <button
      type="button"
      onClick={onSwitch}
      aria-haspopup="dialog"
      data-testid="tenant-switcher"
      className="flex h-11 w-full items-center gap-2.5 rounded-lg px-1.5 text-left hover:bg-fill"
    >
      <span className="sr-only">Switch tenant, now </span>
      {label}
      <ChevronsUpDown className="size-3.5 text-ink-3" aria-hidden />
    </button>
  );
}

const LINK_LABELS = {
  open: "Live",
  connecting: "Connecting…",
  reconnecting: "Reconnecting…",
  closed: "Disconnected",
} as const;

function LiveState() {
  const state = useConnectionState();
  return (
    <p role="status" className="flex items-center gap-2 px-2.5 pb-1.5 text-2xs text-ink-3">
      <span className={cn("size-1.5 rounded-full", state === "open" ? "bg-series-1" : "animate-shimmer bg-amber")} />
      {LINK_LABELS[state]}
    </p>
  );
}

/**
 * The connection state for phones, where the navigation is hidden. It is shown only while live events do not arrive.
 */
function Lost() {
  const state = useConnectionState();
  const lost = state === "reconnecting" || state === "closed";
  return (
    <span role="status" className="ml-2 text-2xs text-amber-text">
      {lost && LINK_LABELS[state]}
    </span>
  );
}

/** The version of the server that serves this page, and nothing while it is not known. */
function ServerVersion() {
  const { data } = useQuery(versionQuery);
  if (!data) return null;
  return (
    <p className="truncate px-2.5 pt-1 text-2xs text-ink-3" title={`Lorikeet ${data.version}`}>
      Lorikeet {data.version}
    </p>
  );
}

function UserRow({ onNavigate }: { onNavigate?: () => void }) {
  const tenant = useTenant();
  const { user } = useSession();
  const logout = useLogout();
  usePreferences();
  const dark = isDark();
  const name = user?.name || user?.email || "";
  return (
    <div className="flex h-11 items-center gap-1 pl-2">
      <span
        aria-hidden
        className="mr-1.5 grid size-7 shrink-0 place-items-center rounded-full bg-blue-soft text-xs font-semibold text-blue-text uppercase"
      >
        {initial(name)}
      </span>
      <Link
        to="/t/$tenant/account"
        params={{ tenant }}
        onClick={onNavigate}
        title={user?.email}
        className="min-w-0 flex-1 rounded-md hover:underline"
      >
        <span className="sr-only">Your account: </span>
        <span className="block truncate text-sm leading-4 font-medium">{name}</span>
        {user?.name && <span className="block truncate text-2xs text-ink-3">{user.email}</span>}
      </Link>
      <Button
        variant="ghost"
        size="icon"
        aria-label={dark ? "Use the light theme" : "Use the dark theme"}
        title={dark ? "Light theme" : "Dark theme"}
        className="size-7!"
        onClick={() => setPreferences({ theme: dark ? "light" : "dark" })}
      >
        {dark ? <Sun /> : <Moon />}
      </Button>
      <Button
        variant="ghost"
        size="icon"
        aria-label="Sign out"
        title="Sign out"
        className="size-7!"
        onClick={() => logout.mutate()}
      >
        <LogOut />
      </Button>
    </div>
  );
}

function MobileBar({ onPalette }: Pick<SidebarProps, "onPalette">) {
  const [open, setOpen] = useState(false);
  return (
    <header className="sticky top-0 z-30 flex h-13 items-center gap-1 border-b bg-surface px-2.5 md:hidden">
      <Radix.Root open={open} onOpenChange={setOpen}>
        <Radix.Trigger asChild>
          <Button variant="ghost" size="icon" aria-label="Open navigation">
            <MenuIcon />
          </Button>
        </Radix.Trigger>
        <Radix.Portal>
          <Radix.Overlay className="fixed inset-0 z-40 animate-fade bg-black/45" />
          <Radix.Content
            aria-describedby={undefined}
            className="fixed inset-y-0 left-0 z-50 flex w-[min(17rem,85vw)] animate-sheet flex-col border-r bg-surface outline-none"
          >
            <Radix.Title className="sr-only">Navigation</Radix.Title>
            <Sidebar
              onPalette={(mode) => {
                setOpen(false);
                onPalette(mode);
              }}
              onNavigate={() => setOpen(false)}
            />
          </Radix.Content>
        </Radix.Portal>
      </Radix.Root>
      <Mark className="ml-1 size-6" />
      <span className="ml-1 text-base font-semibold tracking-tight">Lorikeet</span>
      <Lost />
      <Button variant="ghost" size="icon" aria-label="Search" className="ml-auto" onClick={() => onPalette("all")}>
        <Search />
      </Button>
    </header>
  );
}
