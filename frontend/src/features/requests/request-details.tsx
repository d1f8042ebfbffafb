import type { RequestRecord } from "@/api/types";
import { CopyButton } from "@/components/code-block";
import { useCan } from "@/features/session/queries";
import { fullTime, money, number, percent } from "@/lib/format";
import { ReplayLink, TranscriptView } from "./transcript";
import { Waterfall } from "./waterfall";

/** Finish reasons of the API, with their meaning. */
const FINISH_REASONS: Record<string, string> = {
  stop: "stop: end of the answer or a stop sequence",
  length: "length: max_tokens or the context limit",
  tool_calls: "tool_calls: the answer calls tools",
  abort: "abort: cancelled by the caller",
};

/** The phases, figures and text of a request, below its row. */
export function RequestDetails({ row }: { row: RequestRecord }) {
  const mayRead = useCan("transcripts.read");
  const facts: [string, string][] = [
    ["Received", fullTime(row.created_at)],
    ["Endpoint", `${row.endpoint}${row.streamed ? ", streamed" : ""}${row.batch ? ", of a batch" : ""}`],
    ...(row.base_model ? ([["Base model", row.base_model]] as [string, string][]) : []),
    ["Host", row.host || "none"],
    ["Cached prompt tokens", number(row.cached_prompt_tokens)],
    ...(row.completion_tokens > 1 && row.decode_ms > 0
      ? ([["Tokens per second", number(Math.round((row.completion_tokens / row.decode_ms) * 1000))]] as [
          string,
          string,
        ][])
      : []),
    ...(row.drafted_tokens > 0
      ? ([
          [
            "Accepted drafts",
            `${number(row.accepted_tokens)} of ${number(row.drafted_tokens)} (${percent(row.accepted_tokens, row.drafted_tokens)})`,
          ],
        ] as [string, string][])
      : []),
    ...(row.cost_micros === null ? [] : ([["Cost", money(row.cost_micros, row.currency)]] as [string, string][])),
    ...(row.finish_reason
      ? ([
          [
            "Finish reason",
            row.finish_reason
              .split(",")
              .map((reason) => FINISH_REASONS[reason] ?? reason)
              .join(", "),
          ],
        ] as [string, string][])
      : []),
    ["Key", row.key ? row.key : "the console (no key)"],
    ...(row.ignored.length > 0 ? ([["Ignored fields", row.ignored.join(", ")]] as [string, string][]) : []),
    ...(row.schema_violations.length > 0
      ? ([["Schema violations", row.schema_violations.join(", ")]] as [string, string][])
      : []),
    ...(row.error_code ? ([["Error", row.error_code]] as [string, string][]) : []),
  ];
  // On a phone it is as wide as the screen and stays there, though the table is wider and scrolls.
  return (
    <div className="sticky left-4 grid w-[calc(100vw-4.5rem)] max-w-3xl gap-4 sm:static sm:w-auto">
      <div className="flex items-center gap-1 font-mono text-xs break-all text-ink-2">
        {row.id}
        <CopyButton text={row.id} label="Copy request id" />
      </div>
      <Waterfall row={row} />
      <dl className="grid grid-cols-2 gap-x-6 gap-y-2.5 sm:grid-cols-3">
        {facts.map(([label, value]) => (
          <div key={label}>
            <dt className="text-xs text-ink-3">{label}</dt>
            <dd className="text-sm">{value}</dd>
          </div>
        ))}
      </dl>
      {mayRead ? <TranscriptView row={row} /> : <ReplayLink row={row} whole={false} />}
    </div>
  );
}
