import { X } from "lucide-react";
import { type ReactNode, Suspense, useEffect, useRef, useState } from "react";
import type { Model } from "@/api/types";
import { Button } from "@/components/button";
import { lazyPart } from "@/lib/lazy-part";
import { AnswerView } from "./answer";
import { isCombination, partsOf } from "./combination";
import {
  type Answer,
  branchesOf,
  type Column,
  isRunning,
  type ToolResult,
  type Turn,
  wholeCalls,
} from "./conversation";
import { kindOf, ModelPicker } from "./model-picker";
import { Question } from "./question";
import { ToolResultsForm, ToolResultView } from "./tool-results";

const CombineDialog = lazyPart(() => import("./combine-dialog"), "CombineDialog");

export interface TurnActions {
  /** Actions that send a request; null while nothing can be sent. */
  send: {
    results: (results: ToolResult[]) => void;
    edit: (turn: Turn, prompt: string) => void;
    regenerate: (turn: Turn) => void;
  } | null;
  show: (turn: number) => void;
  /** Shows the code of the request behind an answer. */
  code: (turn: Turn, answer: Answer) => void;
}

interface ColumnProps {
  column: Column;
  /** The turns of the branch that is shown. */
  turns: Turn[];
  /** The turns of all branches. */
  all: Turn[];
  models: Model[];
  onChoose: (model: string) => void;
  onRemove: (() => void) | null;
  actions: TurnActions;
  empty: ReactNode;
}

export function ColumnView({ column, turns, all, models, onChoose, onRemove, actions, empty }: ColumnProps) {
  const answered = turns.filter((turn) => turn.answers[column.id]);
  return (
    <section
      aria-label={`Conversation with ${column.model}`}
      className="card flex min-h-0 min-w-0 snap-center flex-col"
    >
      <div className="flex items-center gap-1.5 border-b p-2">
        <ModelChoice models={models} value={column.model} onChange={onChoose} />
        {onRemove && (
          <Button variant="ghost" size="icon" aria-label={`Remove ${column.model}`} onClick={onRemove}>
            <X />
          </Button>
        )}
      </div>
      <Scroller follow={answered}>
        {answered.length === 0 && empty}
        {/* By place: what steps to another branch keeps the focus. */}
        {answered.map((turn, index) => (
          <TurnView
            key={index}
            turn={turn}
            branches={branchesOf(all, turn)}
            column={column}
            latest={index === answered.length - 1}
            actions={actions}
          />
        ))}
      </Scroller>
    </section>
  );
}

interface ChoiceProps {
  models: Model[];
  value: string;
  onChange: (model: string) => void;
}

/** The column's model: one from the list, or a combination of adapters made in a dialog. */
function ModelChoice({ models, value, onChange }: ChoiceProps) {
  const [combining, setCombining] = useState(false);
  const trigger = useRef<HTMLButtonElement>(null);
  const parts = isCombination(value, models)
    ? partsOf(value)
    : [
        { model: kindOf(value, models) === "adapter" ? value : "", weight: "1" },
        { model: "", weight: "1" },
      ];
  return (
    <>
      <ModelPicker
        models={models}
        value={value}
        onChange={onChange}
        onCombine={() => setCombining(true)}
        trigger={trigger}
      />
      {combining && (
        <Suspense>
          <CombineDialog
            models={models}
            begun={parts}
            onUse={(model) => {
              onChange(model);
              setCombining(false);
            }}
            onClose={() => setCombining(false)}
            focusAfter={trigger}
          />
        </Suspense>
      )}
    </>
  );
}

/** Keeps the view at the end while text streams in, unless the reader scrolled up. */
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
      onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) =>
        (atEnd.current = scrollHeight - scrollTop - clientHeight < 48)
      }
      className="scroll-quiet flex min-h-0 flex-1 flex-col gap-6 overflow-y-auto p-4 -outline-offset-2"
    >
      {children}
    </div>
  );
}

interface TurnProps {
  turn: Turn;
  branches: Turn[];
  column: Column;
  latest: boolean;
  actions: TurnActions;
}

function TurnView({ turn, branches, column, latest, actions: { send, show, code } }: TurnProps) {
  const answer = turn.answers[column.id];
  if (!answer) return null;
  const calls = latest && !isRunning(answer) ? wholeCalls(answer) : [];
  return (
    <div className="grid grid-cols-[minmax(0,1fr)] gap-1.5">
      {turn.results.map((result) => (
        <ToolResultView key={result.id} result={result} />
      ))}
      <Question turn={turn} branches={branches} onEdit={send && ((prompt) => send.edit(turn, prompt))} onShow={show} />
      {answer.model !== column.model && <p className="text-xs break-words text-ink-3">answered by {answer.model}</p>}
      <AnswerView
        answer={answer}
        latest={latest}
        onRegenerate={send && (() => send.regenerate(turn))}
        onCode={() => code(turn, answer)}
      />
      {calls.length > 0 && <ToolResultsForm key={turn.id} calls={calls} onSend={send && send.results} />}
    </div>
  );
}
