import { X } from "lucide-react";
import { type ReactNode, useEffect, useRef } from "react";
import type { Model } from "@/api/types";
import { Button } from "@/components/button";
import { AnswerView } from "./answer";
import { type Column, isRunning, type ToolResult, type Turn, wholeCalls } from "./conversation";
import { ModelPicker } from "./model-picker";
import { ToolResultsForm, ToolResultView } from "./tool-results";

interface ColumnProps {
  column: Column;
  turns: Turn[];
  models: Model[];
  onChoose: (model: string) => void;
  onRemove: (() => void) | null;
  /** Sends what the tools returned that the last answer calls; null while nothing can be sent. */
  onResults: ((results: ToolResult[]) => void) | null;
  empty: ReactNode;
}

export function ColumnView({ column, turns, models, onChoose, onRemove, onResults, empty }: ColumnProps) {
  const answered = turns.filter((turn) => turn.answers[column.id]);
  return (
    <section aria-label={`Conversation with ${column.model}`} className="card flex min-h-0 min-w-0 snap-center flex-col">
      <div className="flex items-center gap-1.5 border-b p-2">
        <ModelPicker models={models} value={column.model} onChange={onChoose} />
        {onRemove && (
          <Button variant="ghost" size="icon" aria-label={`Remove ${column.model}`} onClick={onRemove}>
            <X />
          </Button>
        )}
      </div>
      <Scroller follow={answered}>
        {answered.length === 0 && empty}
        {answered.map((turn, index) => (
          <TurnView key={turn.id} turn={turn} column={column} latest={index === answered.length - 1} onResults={onResults} />
        ))}
      </Scroller>
    </section>
  );
}

/** Stays at the end while text streams in, unless the reader scrolled up. */
function Scroller({ follow, children }: { follow: unknown; children: ReactNode }) {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useEffect(() => {
    if (box.current && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [follow]);
  return (
    <div
      ref={box}
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
      tabIndex={0}
      role="log"
      aria-live="off"
      aria-label="Messages"
      onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => (atEnd.current = scrollHeight - scrollTop - clientHeight < 48)}
      className="scroll-quiet flex min-h-0 flex-1 flex-col gap-6 overflow-y-auto p-4 -outline-offset-2"
    >
      {children}
    </div>
  );
}

interface TurnProps {
  turn: Turn;
  column: Column;
  latest: boolean;
  onResults: ColumnProps["onResults"];
}

function TurnView({ turn, column, latest, onResults }: TurnProps) {
  const answer = turn.answers[column.id];
  if (!answer) return null;
  const calls = latest && !isRunning(answer) ? wholeCalls(answer) : [];
  return (
    <div className="grid gap-3">
      {turn.prompt && (
        <p className="max-w-[90%] justify-self-end rounded-2xl rounded-br-md bg-fill-2 px-3.5 py-2 text-base break-words whitespace-pre-wrap">
          <span className="sr-only">You: </span>
          {turn.prompt}
        </p>
      )}
      {turn.results.map((result) => (
        <ToolResultView key={result.id} result={result} />
      ))}
      {answer.model !== column.model && <p className="text-xs text-ink-3">answered by {answer.model}</p>}
      <AnswerView answer={answer} latest={latest} />
      {calls.length > 0 && <ToolResultsForm calls={calls} onSend={onResults} />}
    </div>
  );
}
