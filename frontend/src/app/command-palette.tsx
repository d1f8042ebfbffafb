import { useNavigate } from "@tanstack/react-router";
import { Command } from "cmdk";
import { Activity, Boxes, Building2, KeyRound, LogOut, Moon, Search, Sun, Upload, UserPlus } from "lucide-react";
import { Dialog as Radix } from "radix-ui";
import { type ReactNode, useDeferredValue, useState } from "react";
import { useFocusBefore } from "@/components/dialog";
import { adapterSearchQuery } from "@/features/adapters/queries";
import { useCan, useLogout, useSession, useTenant } from "@/features/session/queries";
import { useDestinations } from "./destinations";
import { isDark, setPreferences } from "./preferences";
import { useQuery } from "./use-query";

const GROUP =
  "[&_[cmdk-group-heading]]:px-3 [&_[cmdk-group-heading]]:pt-3 [&_[cmdk-group-heading]]:pb-1 [&_[cmdk-group-heading]]:text-2xs [&_[cmdk-group-heading]]:font-medium [&_[cmdk-group-heading]]:text-ink-3";

/** Number of adapters that the palette offers at a time. */
const MAX_ADAPTERS = 8;

/** "all" lists pages, actions, adapters and tenants; "tenants" lists only tenants. */
export type PaletteMode = "all" | "tenants";

/** A searchable dialog of all pages, adapters, tenants and actions. */
export default function CommandPalette({ mode, onClose }: { mode: PaletteMode; onClose: () => void }) {
  const [search, setSearch] = useState("");
  const focus = useFocusBefore();
  return (
    <Radix.Root open onOpenChange={(open) => !open && onClose()}>
      <Radix.Portal>
        <Radix.Overlay className="fixed inset-0 z-40 animate-fade bg-black/45" />
        <Radix.Content
          aria-describedby={undefined}
          {...focus}
          className="fixed top-[12vh] left-1/2 z-50 w-[min(36rem,calc(100vw-2rem))] -translate-x-1/2 overflow-hidden rounded-xl border border-line-2 bg-raised shadow-pop outline-none"
        >
          <Radix.Title className="sr-only">Search</Radix.Title>
          <Command label="Search" loop>
            <div className="flex items-center gap-2.5 border-b px-4">
              <Search className="size-4 text-ink-3" aria-hidden />
              <Command.Input
                value={search}
                onValueChange={setSearch}
                placeholder={mode === "all" ? "Go to a page, an adapter, an action…" : "Switch to a tenant…"}
                className="h-12 w-full bg-transparent text-base outline-none"
              />
            </div>
            <Command.List className="scroll-quiet max-h-[min(24rem,60vh)] overflow-y-auto p-1.5">
              <Command.Empty className="px-3 py-8 text-center text-ink-3">No results.</Command.Empty>
              {mode === "all" && (
                <>
                  <Pages onDone={onClose} />
                  <Actions search={search} onDone={onClose} />
                  <Adapters search={search} onDone={onClose} />
                </>
              )}
              <Tenants onDone={onClose} />
            </Command.List>
          </Command>
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

interface ItemProps {
  icon: ReactNode;
  value?: string;
  onSelect: () => void;
  children: ReactNode;
}

function Item({ icon, value, onSelect, children }: ItemProps) {
  return (
    <Command.Item
      value={value}
      onSelect={onSelect}
      className="flex min-h-9 cursor-pointer py-1.5 items-center gap-3 rounded-lg px-3 text-sm data-[selected=true]:bg-fill-2 [&_svg]:size-4 [&_svg]:shrink-0 [&_svg]:text-ink-3"
    >
      {icon}
      {children}
    </Command.Item>
  );
}

function Pages({ onDone }: { onDone: () => void }) {
  const navigate = useNavigate();
  const tenant = useTenant();
  return (
    <Command.Group heading="Pages" className={GROUP}>
      {useDestinations()
        .flatMap(({ items }) => items)
        .map(({ to, label, icon: Icon }) => (
          <Item
            key={to}
            icon={<Icon />}
            onSelect={() => {
              onDone();
              void navigate({ to, params: { tenant } });
            }}
          >
            {label}
          </Item>
        ))}
    </Command.Group>
  );
}

function Actions({ search, onDone }: { search: string; onDone: () => void }) {
  const navigate = useNavigate();
  const tenant = useTenant();
  const logout = useLogout();
  const may = useCan("adapters.write");
  const mayKeys = useCan("keys.write");
  const mayInvite = useCan("members.write");
  const isRequest = search.trim().startsWith("req_");
  const dark = isDark();
  const act = (action: () => void) => () => {
    onDone();
    action();
  };
  return (
    <Command.Group heading="Actions" className={GROUP}>
      {may && (
        <Item icon={<Upload />} onSelect={act(() => void navigate({ to: "/t/$tenant/upload", params: { tenant } }))}>
          Upload an adapter
        </Item>
      )}
      {mayKeys && (
        <Item
          icon={<KeyRound />}
          value="create an api key"
          onSelect={act(() => void navigate({ to: "/t/$tenant/keys", params: { tenant }, search: { create: true } }))}
        >
          Create an API key
        </Item>
      )}
      {mayInvite && (
        <Item
          icon={<UserPlus />}
          value="invite a person member"
          onSelect={act(
            () => void navigate({ to: "/t/$tenant/members", params: { tenant }, search: { invite: true } }),
          )}
        >
          Invite a person
        </Item>
      )}
      {isRequest && (
        <Item
          icon={<Activity />}
          value={search.trim()}
          onSelect={act(
            () => void navigate({ to: "/t/$tenant/requests", params: { tenant }, search: { id: search.trim() } }),
          )}
        >
          <span className="shrink-0">Open request</span>
          <span className="min-w-0 truncate font-mono text-xs">{search.trim()}</span>
        </Item>
      )}
      <Item icon={dark ? <Sun /> : <Moon />} onSelect={act(() => setPreferences({ theme: dark ? "light" : "dark" }))}>
        Switch to the {dark ? "light" : "dark"} theme
      </Item>
      <Item icon={<LogOut />} onSelect={act(() => logout.mutate())}>
        Sign out
      </Item>
    </Command.Group>
  );
}

function Adapters({ search, onDone }: { search: string; onDone: () => void }) {
  const navigate = useNavigate();
  const tenant = useTenant();
  const { data } = useQuery(adapterSearchQuery(tenant, useDeferredValue(search.trim()), MAX_ADAPTERS));
  if (!data?.length) return null;
  return (
    <Command.Group heading="Adapters" className={GROUP}>
      {data.map(({ name, description }) => (
        <Item
          key={name}
          icon={<Boxes />}
          value={`adapter ${name} ${description}`}
          onSelect={() => {
            onDone();
            void navigate({ to: "/t/$tenant/adapters/$name", params: { tenant, name } });
          }}
        >
          {/* Names have up to 64 characters: the name keeps its place, and the description takes what is left. */}
          <span className="line-clamp-2 min-w-0 font-medium wrap-anywhere" title={name} dir="auto">
            {name}
          </span>
          <span className="min-w-0 flex-1 basis-0 truncate text-xs text-ink-3 max-sm:hidden" dir="auto">
            {description}
          </span>
        </Item>
      ))}
    </Command.Group>
  );
}

function Tenants({ onDone }: { onDone: () => void }) {
  const navigate = useNavigate();
  const current = useTenant();
  const others = useSession().tenants.filter(({ slug }) => slug !== current);
  if (others.length === 0) return null;
  return (
    <Command.Group heading="Switch tenant" className={GROUP}>
      {others.map(({ slug, name }) => (
        <Item
          key={slug}
          icon={<Building2 />}
          value={`tenant ${name} ${slug}`}
          onSelect={() => {
            onDone();
            void navigate({ to: "/t/$tenant", params: { tenant: slug } });
          }}
        >
          <span className="line-clamp-2 min-w-0 wrap-anywhere" title={name} dir="auto">
            {name}
          </span>
        </Item>
      ))}
    </Command.Group>
  );
}
