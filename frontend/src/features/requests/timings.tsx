import type { RequestRecord } from "@/api/types";
import { type Segment, StackedBar } from "@/components/bars";

type Times = Pick<RequestRecord, "auth_ms" | "quota_ms" | "queue_ms" | "adapter_load_ms" | "prefill_ms" | "decode_ms">;

/** Returns the milliseconds before the engine receives the request. */
export const gatewayMs = (times: Times) => times.auth_ms + times.quota_ms;

export const totalMs = (times: Times) =>
  gatewayMs(times) + times.queue_ms + times.adapter_load_ms + times.prefill_ms + times.decode_ms;

export const parts = (times: Times): Segment[] => [
  { key: "auth", label: "Key and adapter", value: times.auth_ms, className: "bg-ink-3" },
  { key: "quota", label: "Limits", value: times.quota_ms, className: "bg-ink-2" },
  { key: "queue", label: "Queue", value: times.queue_ms, className: "bg-series-4" },
  { key: "load", label: "Adapter load", value: times.adapter_load_ms, className: "bg-series-3" },
  { key: "prefill", label: "Prefill", value: times.prefill_ms, className: "bg-series-2" },
  { key: "decode", label: "Decode", value: times.decode_ms, className: "bg-series-1" },
];

/** A bar of the phases of a request. `scale` gives several requests one scale. */
export function TimingBar({ times, scale, className }: { times: Times; scale?: number; className?: string }) {
  return <StackedBar segments={parts(times)} total={scale ?? totalMs(times)} className={className} />;
}
