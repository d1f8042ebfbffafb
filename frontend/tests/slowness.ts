import { getPriority } from "node:os";

/**
 * Factor by which timers are slower. A run at the lowest priority gets only what other processes leave of the
 * processor, perhaps a hundredth of a core. There polls, time-outs and messages that disappear would overtake a test,
 * and vitest would not wait long enough for its workers to start.
 */
export const SLOWNESS = getPriority() > 10 ? 30 : 1;

/** Slow all timers of this process down, except those so short that they only yield. */
export function slowDownTimers(): void {
  const { setTimeout, setInterval } = globalThis;
  if (SLOWNESS === 1 || setTimeout.name === "slowTimeout") return;
  const slow = (ms: number) => (ms < 100 ? ms : ms * SLOWNESS);
  const slowTimeout = (run: () => void, ms = 0, ...rest: []) => setTimeout(run, slow(ms), ...rest);
  const slowInterval = (run: () => void, ms = 0, ...rest: []) => setInterval(run, slow(ms), ...rest);
  Object.assign(globalThis, { setTimeout: slowTimeout, setInterval: slowInterval });
}
