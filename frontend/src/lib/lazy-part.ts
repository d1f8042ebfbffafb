import { lazyRouteComponent } from "@tanstack/react-router";
import { type ComponentType, lazy } from "react";

const PAUSES_MS = [300, 1500];

/** A part of the console could not be loaded: the connection failed, or a newer console was deployed. */
export class PartNotLoadedError extends Error {}

/** Returns the module that `load` imports, with two retries. Raises PartNotLoadedError. */
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

/** Returns a component whose module is loaded when it is first shown. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- as React's own `lazy` has it
export function lazyPart<K extends string, M extends Record<K, ComponentType<any>>>(load: () => Promise<M>, name: K) {
  return lazy(async () => ({ default: (await loaded(load))[name] }));
}

/** Returns a page whose module is loaded when it is first shown, and again when the network returns after a failure. */
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
