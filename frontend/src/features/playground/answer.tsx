import { Code, RotateCw, Snowflake, Wrench, Zap } from "lucide-react";
import { ApiError } from "@/api/errors";
import { CopyButton } from "@/components/code-block";
import { ErrorNotice } from "@/components/notices";
import { Tooltip } from "@/components/tooltip";
import type { Timings } from "@/lib/inference-socket";
import { milliseconds, money, number } from "@/lib/format";
import { type Answer, isRunning, type ToolCall } from "./conversation";

interface AnswerProps {
  answer: Answer;
  latest: boolean;
  /** Requests another answer; null while nothing can be sent. */
  onRegenerate: (() => void) | null;
  onCode: () => void;
}

export function AnswerView({ answer, latest, onRegenerate, onCode }: AnswerProps) {
  const running = isRunning(answer);
  return (
    <div className="group/answer min-w-0">
      {answer.reasoning && <Reasoning answer={answer} />}
      {(answer.text || (running && !answer.toolCalls.length)) && (
        <div
          data-testid={latest ? "playground-output" : undefined}
          data-status={answer.status}
          // Screen readers read the answer once it is complete, not token by token.
          aria-live={latest ? "polite" : undefined}
          aria-busy={running}
          dir="auto"
          className="text-base wrap-anywhere whitespace-pre-wrap text-ink"
        >
          {answer.text}
          {running && (
            <span
              aria-hidden
              className="ml-0.5 inline-block h-[1.1em] w-[2px] translate-y-[0.2em] animate-caret bg-accent"
            />
          )}
        </div>
      )}
      {answer.toolCalls.map((call, index) => (
        <ToolCallView key={index} call={call} running={running} />
      ))}
      {answer.error && <ErrorNotice error={new ApiError(answer.error, 0)} className="mt-2" />}
      <div className="mt-2 flex min-h-7 flex-wrap items-center gap-x-3 gap-y-1">
        <Metrics answer={answer} />
        {!running && <Tools answer={answer} onRegenerate={onRegenerate} onCode={onCode} />}
      </div>
    </div>
  );
}

/** The reasoning of the model, collapsed because it is long and not part of the answer. */
function Reasoning({ answer }: { answer: Answer }) {
  const thinking = isRunning(answer) && !answer.text && !answer.toolCalls.length;
  return (
    <details className="mb-2 rounded-lg border bg-fill/60 text-sm">
      <summary className="cursor-pointer px-3 py-1.5 text-ink-2 select-none">
        {thinking ? "Reasoning…" : "Reasoning"}
      </summary>
      <p className="border-t px-3 py-2 break-words whitespace-pre-wrap text-ink-2">{answer.reasoning}</p>
    </details>
  );
}

function ToolCallView({ call, running }: { call: ToolCall; running: boolean }) {
  return (
    <figure className="mt-2 min-w-0 rounded-lg border" data-testid="tool-call">
      <figcaption className="flex items-center gap-2 px-3 py-1.5 text-xs text-ink-2">
        <Wrench className="size-3.5 text-ink-3" aria-hidden />
        calls <code className="min-w-0 font-mono break-all text-ink">{call.name}</code>
      </figcaption>
      <pre className="border-t bg-fill px-3 py-2 font-mono text-xs break-words whitespace-pre-wrap">
        {running ? call.arguments : indented(call.arguments)}
      </pre>
    </figure>
  );
}

function indented(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

/** Returns tokens per second after the first one, or null if the answer is too short to tell. */
export function speed(answer: Answer): number | null {
  const { finish } = answer;
  if (!finish || finish.timings.decode_ms <= 0 || finish.usage.completion_tokens < 2) return null;
  return ((finish.usage.completion_tokens - 1) / finish.timings.decode_ms) * 1000;
}

function Metrics({ answer }: { answer: Answer }) {
  const { finish, firstTextMs, status, cost } = answer;
  const perSecond = speed(answer);
  if (firstTextMs === null && !finish && status !== "stopped") return null;
  return (
    <div className="tnum contents text-xs text-ink-3">
      {firstTextMs !== null && (
        <span title="Time from sending to the first text, measured in this browser">
          {milliseconds(firstTextMs)} to first token
        </span>
      )}
      {perSecond !== null && <span>{number(Math.round(perSecond))} tok/s</span>}
      {finish && (
        <span title="Prompt and completion tokens">
          {number(finish.usage.prompt_tokens)} → {number(finish.usage.completion_tokens)} tokens
        </span>
      )}
      {cost && cost.micros !== null && (
        <span title="Cost recorded in the ledger" data-testid="playground-cost">
          {money(cost.micros, cost.currency)}
        </span>
      )}
      {finish && <Warmth timings={finish.timings} />}
      {finish?.finishReason === "length" && <span className="text-amber-text">cut at the token limit</span>}
      {status === "stopped" && <span className="text-amber-text">stopped</span>}
    </div>
  );
}

const TOOL =
  "inline-grid size-7 shrink-0 place-items-center rounded-md text-ink-3 opacity-0 group-hover/answer:opacity-100 hover:bg-fill-2 hover:text-ink " +
  "focus-visible:opacity-100 disabled:invisible max-md:opacity-100";

function Tools({ answer, onRegenerate, onCode }: Omit<AnswerProps, "latest">) {
  return (
    <div className="ml-auto flex items-center">
      <button
        type="button"
        aria-label="Regenerate the answer"
        title="Regenerate the answer"
        disabled={!onRegenerate}
        onClick={() => onRegenerate?.()}
        className={TOOL}
      >
        <RotateCw className="size-3.5" />
      </button>
      <button
        type="button"
        aria-label="The request as code"
        title="The request as code"
        onClick={onCode}
        className={TOOL}
      >
        <Code className="size-3.5" />
      </button>
      {answer.text && <CopyButton text={answer.text} label="Copy answer" className={TOOL} />}
    </div>
  );
}

/** Details of a request: whether the adapter was on the device, and where the time went. */
function Warmth({ timings }: { timings: Timings }) {
  const cold = timings.adapter_load_ms > 0;
  const parts = [
    `queue ${milliseconds(timings.queue_ms)}`,
    `adapter ${milliseconds(timings.adapter_load_ms)}`,
    `prefill ${milliseconds(timings.prefill_ms)}`,
    `decode ${milliseconds(timings.decode_ms)}`,
  ];
  return (
    <Tooltip content={parts.join(" · ")}>
      <button
        type="button"
        className={cold ? "inline-flex items-center gap-1 text-blue-text" : "inline-flex items-center gap-1 text-ink-3"}
      >
        {cold ? <Snowflake className="size-3" aria-hidden /> : <Zap className="size-3" aria-hidden />}
        {cold ? `cold, +${milliseconds(timings.adapter_load_ms)}` : "warm"}
      </button>
    </Tooltip>
  );
}
