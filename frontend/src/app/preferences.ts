import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";
export type Density = "comfortable" | "compact";

interface Preferences {
  theme: Theme;
  density: Density;
}

const KEYS = { theme: "lorikeet.theme", density: "lorikeet.density" } as const;
const DEFAULTS: Preferences = { theme: "system", density: "comfortable" };

// Storage may be blocked. A preference then lasts until the page is closed.
function read(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function write(key: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    console.info("Storage is blocked, so this preference lasts until the page is closed.");
  }
}

let current: Preferences = {
  theme: (read(KEYS.theme) as Theme | null) ?? DEFAULTS.theme,
  density: (read(KEYS.density) as Density | null) ?? DEFAULTS.density,
};
const watchers = new Set<() => void>();

function darkSystem(): MediaQueryList {
  return matchMedia("(prefers-color-scheme: dark)");
}

/** Applies the preferences to <html>; public/theme.js does the same before the first paint. */
function apply(): void {
  const dark = current.theme === "dark" || (current.theme === "system" && darkSystem().matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.documentElement.dataset.density = current.density;
}

export function setPreferences(change: Partial<Preferences>): void {
  current = { ...current, ...change };
  write(KEYS.theme, current.theme);
  write(KEYS.density, current.density);
  apply();
  watchers.forEach((watcher) => watcher());
}

/** Follows the theme of the system while the preference is "system". */
export function followSystemTheme(): void {
  darkSystem().addEventListener("change", apply);
}

export const isDark = () => document.documentElement.dataset.theme === "dark";

const subscribe = (watcher: () => void) => {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
};

export const usePreferences = () => useSyncExternalStore(subscribe, () => current);

/** The tenant that "/" opens. */
export const lastTenant = () => read("lorikeet.tenant");
export const rememberTenant = (slug: string) => write("lorikeet.tenant", slug);

const columnsKey = (table: string) => `lorikeet.columns.${table}`;
// The last value of each table. It is also kept where storage is blocked.
const columnsHere = new Map<string, string | null>();

function storedColumns(table: string): string | null {
  if (!columnsHere.has(table)) columnsHere.set(table, read(columnsKey(table)));
  return columnsHere.get(table) ?? null;
}

/** Keeps the columns of a table in this browser; null restores the defaults. */
export function chooseColumns(table: string, columns: readonly string[] | null): void {
  const value = columns?.join(",") ?? null;
  columnsHere.set(table, value);
  write(columnsKey(table), value);
  watchers.forEach((watcher) => watcher());
}

/** Returns the columns of a table that the person chose in this browser, or the defaults. */
export function useColumns<Name extends string>(table: string, known: readonly Name[], defaults: Name[]): Name[] {
  const stored = useSyncExternalStore(subscribe, () => storedColumns(table));
  if (stored === null) return defaults;
  const chosen = stored.split(",");
  return known.filter((name) => chosen.includes(name));
}

const hiddenKey = (name: string) => `lorikeet.hidden.${name}`;
const hiddenHere = new Set<string>();

/** Hides a part of the console in this browser permanently. */
export function hide(name: string): void {
  hiddenHere.add(name);
  write(hiddenKey(name), "1");
  watchers.forEach((watcher) => watcher());
}

export const useHidden = (name: string) =>
  useSyncExternalStore(subscribe, () => hiddenHere.has(name) || read(hiddenKey(name)) !== null);
