import { ChevronRight } from "lucide-react";
import { Fragment, type ReactNode, Suspense, useState } from "react";
import type { RequestRecord } from "@/api/types";
import { Badge, Status, type Tone } from "@/components/badge";
import { Skeleton } from "@/components/notices";
import { HiddenTh, Table, Td, Tr } from "@/components/table";
import { RelativeTime } from "@/components/relative-time";
import { cn } from "@/lib/cn";
import { ago, milliseconds, money, number } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";
import { BRIEF_COLUMNS, COLUMNS, type RequestColumn } from "./columns";
import { TimingBar, totalMs } from "./timings";

const RequestDetails = lazyPart(() => import("./request-details"), "RequestDetails");

const OUTCOMES: Record<RequestRecord["outcome"], Tone> = {
  finished: "green",
  aborted: "neutral",
  failed: "danger",
  refused: "amber",
};

/** Columns of numbers, aligned to the right. */
const NUMBERS = new Set<RequestColumn>(["tokens", "first_token", "total", "cost", "when"]);
const align = (column: RequestColumn) => (NUMBERS.has(column) ? "text-right" : column === "phases" ? "w-40" : "");
// On a phone the first cell of a row has what the columns have on a larger screen.
const HIDDEN_ON_PHONES = "hidden sm:table-cell";

interface TableProps {
  rows: RequestRecord[];
  columns?: readonly RequestColumn[];
  /** ID of the open row, if the address has it; by default the table's state has it. */
  open?: string;
  onOpen?: (id: string | undefined) => void;
}

/** Requests, newest first. Each row opens to show its phases. */
export function RequestTable({ rows, columns = BRIEF_COLUMNS, open: controlled, onOpen }: TableProps) {
  const [expanded, setExpanded] = useState<string>();
  const open = onOpen ? controlled : expanded;
  const toggle = (id: string) => (onOpen ?? setExpanded)(open === id ? undefined : id);
  // All rows have one scale, so that slow requests stand out.
  const longest = Math.max(1, ...rows.map(totalMs));
  return (
    <Table
      label="Requests"
      className="sm:[&_td]:px-3 sm:[&_th]:px-3"
      columns={[
        <HiddenTh label="Details" className="w-8 pr-0" />,
        "Model",
        "Outcome",
        ...columns.map((column) => [COLUMNS[column], cn(HIDDEN_ON_PHONES, align(column))] as const),
      ]}
    >
      {rows.map((row) => (
        <Fragment key={row.id}>
          <Row row={row} columns={columns} longest={longest} open={open === row.id} onToggle={() => toggle(row.id)} />
          {open === row.id && (
            <tr className="border-b bg-fill/50">
              <td colSpan={3 + columns.length} className="px-4 py-4 sm:pl-12">
                <Suspense fallback={<Skeleton className="h-56" />}>
                  <RequestDetails row={row} />
                </Suspense>
              </td>
            </tr>
          )}
        </Fragment>
      ))}
    </Table>
  );
}

interface RowProps {
  row: RequestRecord;
  columns: readonly RequestColumn[];
  longest: number;
  open: boolean;
  onToggle: () => void;
}

function Row({ row, columns, longest, open, onToggle }: RowProps) {
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
      <Td className="max-w-44 pr-0 max-sm:py-2 sm:max-w-44">
        <span className="block truncate font-medium" title={row.model}>
          {row.model}
        </span>
        <OnPhones row={row} />
      </Td>
      <Td>
        <span className="flex flex-wrap items-center gap-1.5">
          <Status tone={OUTCOMES[row.outcome]} label={row.outcome} />
          {isCutOff(row) && (
            <span title="The answer reached max_tokens or the model’s context limit.">
              <Badge tone="amber">cut off</Badge>
            </span>
          )}
          {row.error_code && columns !== BRIEF_COLUMNS && (
            <span className="hidden max-w-44 truncate font-mono text-2xs text-ink-2 sm:inline" title={row.error_code}>
              {row.error_code}
            </span>
          )}
        </span>
      </Td>
      {columns.map((column) => (
        <Td key={column} className={cn("tnum", HIDDEN_ON_PHONES, align(column), column === "when" && "text-ink-3")}>
          {cell(column, row, longest)}
        </Td>
      ))}
    </Tr>
  );
}

/** Returns whether an answer of the request ended at a limit of tokens. */
const isCutOff = ({ finish_reason }: RequestRecord) => finish_reason.split(",").includes("length");

/** The figures of a request below its model, on a phone. */
function OnPhones({ row }: { row: RequestRecord }) {
  const facts = [
    `${number(row.prompt_tokens)} → ${number(row.completion_tokens)} tokens`,
    milliseconds(totalMs(row)),
    row.cost_micros !== null && money(row.cost_micros, row.currency),
    ago(row.created_at),
  ];
  return (
    <span className="tnum mt-0.5 block text-xs whitespace-normal text-ink-3 sm:hidden">
      <span className="block truncate" title={row.key ?? undefined} dir="auto">
        {row.key ?? "console"}
      </span>
      {facts
        .filter(Boolean)
        .map((fact) => String(fact).replaceAll(" ", "\u00a0"))
        .join(" · ")}
    </span>
  );
}

function cell(column: RequestColumn, row: RequestRecord, longest: number): ReactNode {
  switch (column) {
    case "key":
      return <Short text={row.key ?? ""} otherwise="console" />;
    case "endpoint":
      return row.endpoint === "chat.completions" ? "chat" : row.endpoint;
    case "finish":
      return row.finish_reason ? row.finish_reason.split(",").join(", ") : <Unknown />;
    case "host":
      return <Short text={row.host} />;
    case "tokens":
      return (
        <>
          {number(row.prompt_tokens)} <span className="text-ink-3">→</span> {number(row.completion_tokens)}
        </>
      );
    case "first_token":
      return firstToken(row);
    case "total":
      return row.outcome === "failed" && totalMs(row) === 0 ? <Unknown /> : milliseconds(totalMs(row));
    case "phases":
      return <TimingBar times={row} scale={longest} />;
    case "cost":
      return row.cost_micros === null ? <Unknown /> : money(row.cost_micros, row.currency);
    case "when":
      return <RelativeTime at={row.created_at} />;
  }
}

function Short({ text, otherwise }: { text: string; otherwise?: string }) {
  if (!text) return otherwise ? <span className="text-ink-3">{otherwise}</span> : <Unknown />;
  return (
    <span className="block max-w-28 truncate" title={text} dir="auto">
      {text}
    </span>
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
