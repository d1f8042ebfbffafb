import { Link, Outlet, useLocation, useNavigate, useParams } from "@tanstack/react-router";
import { Check, ChevronsUpDown, LogOut, Menu as MenuIcon, Moon, Search, Sun } from "lucide-react";
import { Dialog as Radix } from "radix-ui";
import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { Button } from "@/components/button";
import { Mark } from "@/components/logo";
import { Menu, MenuContent, MenuItem, MenuLabel, MenuSeparator, MenuTrigger } from "@/components/menu";
import { useLogout, useSession, useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { LiveProvider, useLinkState } from "./live";
import { NAVIGATION } from "./navigation";
import { isDark, rememberTenant, setPreferences, usePreferences } from "./preferences";

const CommandPalette = lazy(() => import("./command-palette"));

/** Everything around a tenant's page: navigation, search, and the live connection. */
export function Shell() {
  const { tenant } = useParams({ from: "/t/$tenant" });
  const [searching, setSearching] = useState(false);
  useEffect(() => rememberTenant(tenant), [tenant]);
  useEffect(() => onCtrlK(() => setSearching((open) => !open)), []);
  const search = () => setSearching(true);
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
          <Sidebar onSearch={search} />
        </aside>
        <MobileBar onSearch={search} />
        <Main />
      </div>
      {searching && (
        <Suspense>
          <CommandPalette onClose={() => setSearching(false)} />
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

/** Takes the focus when the page changes, as a full page load would. */
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
      <Outlet />
    </main>
  );
}

function Sidebar({ onSearch, onNavigate }: { onSearch: () => void; onNavigate?: () => void }) {
  return (
    <>
      <div className="p-2.5">
        <TenantSwitcher />
        <button
          type="button"
          onClick={onSearch}
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
        <UserMenu />
      </div>
    </>
  );
}

function Navigation({ onNavigate }: { onNavigate?: () => void }) {
  const tenant = useTenant();
  return (
    <nav aria-label="Console" className="scroll-quiet flex-1 overflow-y-auto px-2.5 py-1">
      {NAVIGATION.map(({ title, items }) => (
        <div key={title} className="mb-4">
          <p className="px-2.5 pb-1 text-2xs font-medium tracking-wide text-ink-3 uppercase">{title}</p>
          <ul className="grid gap-px">
            {items.map(({ to, label, icon: Icon }) => (
              <li key={to}>
                <Link
                  to={to}
                  params={{ tenant }}
                  onClick={onNavigate}
                  activeOptions={{ exact: to === "/t/$tenant" }}
                  className="flex h-8 items-center gap-2.5 rounded-lg px-2.5 text-sm text-ink-2 transition-colors hover:bg-fill hover:text-ink [&_svg]:size-4 [&_svg]:text-ink-3"
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

function TenantSwitcher() {
  const { tenants } = useSession();
  const slug = useTenant();
  const navigate = useNavigate();
  const current = tenants.find((tenant) => tenant.slug === slug);
  return (
    <Menu>
      <MenuTrigger className="flex h-11 w-full items-center gap-2.5 rounded-lg px-1.5 text-left hover:bg-fill data-[state=open]:bg-fill">
        <Mark className="size-7 shrink-0" />
        <span className="min-w-0 flex-1">
          <span className="block truncate text-sm leading-4 font-semibold">{current?.name ?? slug}</span>
          <span className="block truncate text-2xs text-ink-3 capitalize">{current?.role}</span>
        </span>
        <ChevronsUpDown className="size-3.5 text-ink-3" aria-label="Switch tenant" />
      </MenuTrigger>
      <MenuContent align="start" className="w-56">
        <MenuLabel>Tenants</MenuLabel>
        {tenants.map((tenant) => (
          <MenuItem key={tenant.slug} onSelect={() => void navigate({ to: "/t/$tenant", params: { tenant: tenant.slug } })}>
            <span className="grid size-5 place-items-center rounded-md bg-fill-2 text-2xs font-semibold uppercase">{tenant.name[0]}</span>
            <span className="flex-1 truncate">{tenant.name}</span>
            {tenant.slug === slug && <Check aria-label="current" />}
          </MenuItem>
        ))}
      </MenuContent>
    </Menu>
  );
}

const LINK_LABELS = {
  open: "Live",
  connecting: "Connecting…",
  reconnecting: "Reconnecting…",
  closed: "Not live",
} as const;

function LiveState() {
  const state = useLinkState();
  return (
    <p role="status" className="flex items-center gap-2 px-2.5 pb-1.5 text-2xs text-ink-3">
      <span className={cn("size-1.5 rounded-full", state === "open" ? "bg-series-1" : "animate-shimmer bg-amber")} />
      {LINK_LABELS[state]}
    </p>
  );
}

function UserMenu() {
  const { user } = useSession();
  const logout = useLogout();
  usePreferences();
  const dark = isDark();
  const name = user?.name || user?.email || "";
  return (
    <Menu>
      <MenuTrigger className="flex h-11 w-full items-center gap-2.5 rounded-lg px-2 text-left hover:bg-fill data-[state=open]:bg-fill">
        <span aria-hidden className="grid size-7 place-items-center rounded-full bg-blue-soft text-xs font-semibold text-blue-text uppercase">
          {name[0]}
        </span>
        <span className="min-w-0 flex-1">
          <span className="block truncate text-sm leading-4 font-medium">{name}</span>
          <span className="block truncate text-2xs text-ink-3">{user?.email}</span>
        </span>
      </MenuTrigger>
      <MenuContent align="start" side="top" className="w-56">
        <MenuItem onSelect={() => setPreferences({ theme: dark ? "light" : "dark" })}>
          {dark ? <Sun /> : <Moon />}
          {dark ? "Light theme" : "Dark theme"}
        </MenuItem>
        <MenuSeparator />
        <MenuItem onSelect={() => logout.mutate()}>
          <LogOut />
          Sign out
        </MenuItem>
      </MenuContent>
    </Menu>
  );
}

function MobileBar({ onSearch }: { onSearch: () => void }) {
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
              onSearch={() => {
                setOpen(false);
                onSearch();
              }}
              onNavigate={() => setOpen(false)}
            />
          </Radix.Content>
        </Radix.Portal>
      </Radix.Root>
      <Mark className="ml-1 size-6" />
      <span className="ml-1 text-base font-semibold tracking-tight">Lorikeet</span>
      <Button variant="ghost" size="icon" aria-label="Search" className="ml-auto" onClick={onSearch}>
        <Search />
      </Button>
    </header>
  );
}
