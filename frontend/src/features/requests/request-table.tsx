import { ChevronRight } from "lucide-react";
import { Fragment, useState } from "react";
import type { RequestRecord } from "@/api/types";
import { Status, type Tone } from "@/components/badge";
import { CopyButton } from "@/components/code-block";
import { HiddenTh, Table, Td, Tr } from "@/components/table";
import { RelativeTime } from "@/components/relative-time";
import { useCan } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { fullTime, milliseconds, money, number } from "@/lib/format";
import { ReplayLink, TranscriptView } from "./transcript";
import { TimingBar, totalMs } from "./timings";
import { Waterfall } from "./waterfall";

const OUTCOMES: Record<RequestRecord["outcome"], Tone> = {
  finished: "green",
  aborted: "neutral",
  failed: "danger",
  refused: "amber",
};

/** Finish reasons of the API, with their meaning. */
const FINISH_REASONS: Record<string, string> = {
  stop: "stop: end of the answer or a stop sequence",
  length: "length: max_tokens or the context limit",
  tool_calls: "tool_calls: the answer calls tools",
  abort: "abort: cancelled by the caller",
};

interface TableProps {
  rows: RequestRecord[];
  brief?: boolean;
  /** ID of the open row, if the address has it; by default the table's state has it. */
  open?: string;
  onOpen?: (id: string | undefined) => void;
}

/** Requests, newest first. Each row opens to show its phases. */
export function RequestTable({ rows, brief = false, open: controlled, onOpen }: TableProps) {
  const [expanded, setExpanded] = useState<string>();
  const open = onOpen ? controlled : expanded;
  const toggle = (id: string) => (onOpen ?? setExpanded)(open === id ? undefined : id);
  // All rows have one scale, so that slow requests stand out.
  const longest = Math.max(1, ...rows.map(totalMs));
  return (
    <Table
      label="Requests"
      columns={[
        <HiddenTh label="Details" className="w-8 pr-0" />,
        "Model",
        "Outcome",
        ["Tokens", "text-right"],
        ["First token", "hidden text-right sm:table-cell"],
        !brief && ["Total", "text-right"],
        !brief && ["Time", "w-40"],
        ["When", "text-right"],
      ]}
    >
      {rows.map((row) => (
        <Fragment key={row.id}>
          <Row row={row} brief={brief} longest={longest} open={open === row.id} onToggle={() => toggle(row.id)} />
          {open === row.id && <Details row={row} span={brief ? 6 : 8} />}
        </Fragment>
      ))}
    </Table>
  );
}

interface RowProps {
  row: RequestRecord;
  brief: boolean;
  longest: number;
  open: boolean;
  onToggle: () => void;
}

function Row({ row, brief, longest, open, onToggle }: RowProps) {
  // A click anywhere opens the row, unless it ends a text selection. The keyboard uses the button.
  const toggle = () => getSelection()?.isCollapsed !== false && onToggle();
  return (
    <Tr onClick={toggle} className="cursor-pointer">
      <Td className="pr-0">
        <button
          type="button"
          aria-expanded={open}
          aria-label={`Details of request ${row.id}`}
          onClick={(event) => {
            event.stopPropagation();
            onToggle();
          }}
          className="grid size-6 place-items-center rounded-md text-ink-3 hover:bg-fill-2 hover:text-ink"
        >
          <ChevronRight className={cn("size-3.5 transition-transform", open && "rotate-90")} />
        </button>
      </Td>
      <Td className="max-w-56 truncate font-medium">{row.model}</Td>
      <Td>
        <Status tone={OUTCOMES[row.outcome]} label={row.outcome} />
        {row.error_code && !brief && (
          <span className="ml-2 hidden font-mono text-2xs text-ink-2 sm:inline">{row.error_code}</span>
        )}
      </Td>
      <Td className="tnum text-right">
        {number(row.prompt_tokens)} <span className="text-ink-3">→</span> {number(row.completion_tokens)}
      </Td>
      <Td className="tnum hidden text-right sm:table-cell">{firstToken(row)}</Td>
      {!brief && (
        <Td className="tnum text-right">
          {row.outcome === "failed" && totalMs(row) === 0 ? <Unknown /> : milliseconds(totalMs(row))}
        </Td>
      )}
      {!brief && (
        <Td>
          <TimingBar times={row} scale={longest} />
        </Td>
      )}
      <Td className="text-right text-ink-3">
        <RelativeTime at={row.created_at} />
      </Td>
    </Tr>
  );
}

/**
 * Milliseconds are rounded: an answer whose first token took 0 had it within half a millisecond. Of one whose engine died
 * nobody knows.
 */
function firstToken(row: RequestRecord) {
  if (row.first_token_ms > 0) return milliseconds(row.first_token_ms);
  return row.completion_tokens > 0 && row.outcome !== "failed" ? "< 1 ms" : <Unknown />;
}

const Unknown = () => <span className="text-ink-3">–</span>;

function Details({ row, span }: { row: RequestRecord; span: number }) {
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
    ...(row.cost_micros === null ? [] : ([["Cost", money(row.cost_micros, row.currency)]] as [string, string][])),
    ...(row.finish_reason
      ? ([
          [
            "Ended by",
            row.finish_reason
              .split(",")
              .map((reason) => FINISH_REASONS[reason] ?? reason)
              .join(", "),
          ],
        ] as [string, string][])
      : []),
    ["Caller", row.key ? `key ${row.key}` : "the console"],
    ...(row.ignored.length > 0 ? ([["Ignored fields", row.ignored.join(", ")]] as [string, string][]) : []),
    ...(row.error_code ? ([["Error", row.error_code]] as [string, string][]) : []),
  ];
  return (
    <tr className="border-b bg-fill/50">
      <td colSpan={span} className="px-4 py-4 sm:pl-12">
        {/* On a phone it is as wide as the screen and stays there, though the table is wider and scrolls. */}
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
      </td>
    </tr>
  );
}
