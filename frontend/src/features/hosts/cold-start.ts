import type { LoadTime } from "@/api/types";
import { milliseconds, rate } from "@/lib/format";

/** Returns how long a request would wait for its adapter to load, without the queue. */
export function coldStart(ms: number | null | undefined): string {
  if (ms == null) return "not measured";
  if (ms === 0) return "none";
  return ms < 1 ? "<1 ms" : milliseconds(ms);
}

const STEPS: Record<LoadTime["step"], string> = {
  to_device: "host memory → device",
  from_disk: "disk → host memory",
  download: "store → disk",
};

/** Returns the measured rate of a tier, such as "disk → host memory 210 MB/s + 3 ms (12 loads)". */
export function loadRates(times: LoadTime[]): string {
  return times
    .filter(({ loads }) => loads > 0)
    .map(({ step, loads, fixed_ms, bytes_per_second }) => {
      const parts = [
        bytes_per_second === null ? null : rate(bytes_per_second),
        fixed_ms >= 0.05 ? `${fixed_ms < 10 ? fixed_ms.toFixed(1) : Math.round(fixed_ms)} ms` : null,
      ];
      return `${STEPS[step]} ${parts.filter(Boolean).join(" + ")} (${loads} ${loads === 1 ? "load" : "loads"})`;
    })
    .join(", ");
}
