import { lazyRouteComponent } from "@tanstack/react-router";
import { type ComponentType, lazy } from "react";

const PAUSES_MS = [300, 1500];

/** A part of the console that did not arrive: the connection broke, or a newer console took its place. */
export class PartNotLoadedError extends Error {}

/** What `load` imports, tried again twice. Raises PartNotLoadedError. */
export async function loaded<T>(load: () => Promise<T>): Promise<T> {
  for (const pause of PAUSES_MS) {
    try {
      return await load();
    } catch {
      await new Promise((resume) => setTimeout(resume, pause));
    }
  }
  return load().catch((cause: unknown) => {
    throw new PartNotLoadedError("A part of the console could not be loaded.", { cause });
  });
}

/** A component of a module that is fetched when it is first shown. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- as React's own `lazy` has it
export function lazyPart<K extends string, M extends Record<K, ComponentType<any>>>(load: () => Promise<M>, name: K) {
  return lazy(async () => ({ default: (await loaded(load))[name] }));
}

/** A page whose module is fetched when it is first shown. One that a network that was gone kept away is fetched when that is back. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- as above
export function lazyPage<K extends string, M extends Record<K, ComponentType<any>>>(load: () => Promise<M>, name: K) {
  const page = lazyRouteComponent<M, K>(
    () =>
      loaded(load).catch((cause: unknown) => {
        addEventListener("online", () => void page.preload?.(), { once: true });
        throw cause;
      }),
    name,
  );
  return page;
}
