import { FlaskConical } from "lucide-react";
import { Suspense, useState } from "react";
import type { Evaluation, EvaluationScore, PromotionRule } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { ErrorNotice } from "@/components/notices";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { lazyPart } from "@/lib/lazy-part";
import { evaluationsQuery, isOpen, type Subject, useEvaluationActions } from "./queries";

const EvaluateDialog = lazyPart(() => import("./evaluate-dialog"), "EvaluateDialog");
const RuleDialog = lazyPart(() => import("./evaluate-dialog"), "RuleDialog");

const isOf = (evaluation: Evaluation, subject: Subject) =>
  "upload" in subject ? evaluation.upload === subject.upload : evaluation.version === subject.version;
const SHOWN = 5;

/** The scores of a version or of an upload, and the promotion rule of its adapter. */
export function Evaluations({ subject, rule }: { subject: Subject; rule?: PromotionRule | null }) {
  const { data, error, refetch } = useQuery(evaluationsQuery(useTenant(), subject.adapter));
  const may = useCan("adapters.write");
  const [dialog, setDialog] = useState<"evaluate" | "rule" | null>(null);
  const rows = data?.filter((evaluation) => isOf(evaluation, subject)).slice(0, SHOWN);
  const close = () => setDialog(null);
  return (
    <section className="border-t px-4 py-4" data-testid="evaluations">
      <div className="mb-3 flex flex-wrap items-center justify-between gap-2">
        <h3 className="text-sm font-semibold">Evaluation</h3>
        {may && (
          <span className="flex gap-2">
            {rule !== undefined && (
              <Button size="sm" variant="ghost" onClick={() => setDialog("rule")}>
                Promotion rule
              </Button>
            )}
            <Button size="sm" onClick={() => setDialog("evaluate")}>
              <FlaskConical /> Evaluate
            </Button>
          </span>
        )}
      </div>
      {rule && <p className="mb-3 text-sm break-words text-ink-2">{ruleText(rule)}</p>}
      <ErrorNotice error={error} onRetry={refetch} />
      {rows?.length === 0 && (
        <p className="text-sm text-ink-3">
          Not evaluated. An evaluation scores this version, the live version and the base model on a set of prompts with
          expected answers.
        </p>
      )}
      <ul className="grid grid-cols-[minmax(0,1fr)] gap-3">
        {rows?.map((evaluation) => (
          <li key={evaluation.id} className="rounded-lg border px-3.5 py-2.5 text-sm">
            <Row evaluation={evaluation} may={may} />
          </li>
        ))}
      </ul>
      <Suspense>
        {dialog === "evaluate" && <EvaluateDialog subject={subject} onClose={close} />}
        {dialog === "rule" && <RuleDialog adapter={subject.adapter} rule={rule ?? null} onClose={close} />}
      </Suspense>
    </section>
  );
}

function ruleText({ set, minimum, not_worse_than_live }: PromotionRule): string {
  const asks = [
    minimum !== null && `a score of at least ${minimum}`,
    not_worse_than_live && "a score not below the live version’s",
  ].filter(Boolean);
  return `To be live a version needs ${asks.join(" and ") || "an evaluation"} on ${set}.`;
}

function Row({ evaluation, may }: { evaluation: Evaluation; may: boolean }) {
  const { cancel } = useEvaluationActions(useTenant(), evaluation.adapter);
  const { set, state, problem, score, created_at } = evaluation;
  return (
    <>
      <p className="flex flex-wrap items-center gap-x-2">
        <span className="min-w-0 font-medium break-words">{set}</span>
        <span className="text-ink-3">
          {score ? `${score.metric}, ${score.items} items` : state} · <RelativeTime at={created_at} />
        </span>
        {may && isOpen(evaluation) && (
          <Button
            size="sm"
            className="ml-auto"
            busy={cancel.isPending}
            onClick={() => cancel.mutate(evaluation.id, { onError: toast.bad })}
          >
            Cancel
          </Button>
        )}
      </p>
      {problem && !score && (
        <p className="mt-1 break-words text-ink-2">
          {problem.message} {problem.fix}
        </p>
      )}
      {score && <Score score={score} />}
    </>
  );
}

const figure = (value: number) => value.toFixed(3);

function Score({ score }: { score: EvaluationScore }) {
  const figures: [label: string, value: string][] = [
    ["This version", figure(score.score)],
    [score.live ? `Live v${score.live.version}` : "Live", score.live ? figure(score.live.score) : "–"],
    ["Base", figure(score.base)],
  ];
  return (
    <>
      <dl className="mt-2 flex gap-6">
        {figures.map(([label, value]) => (
          <div key={label}>
            <dt className="text-xs text-ink-3">{label}</dt>
            <dd className="tnum font-medium">{value}</dd>
          </div>
        ))}
      </dl>
      {score.worst.length > 0 && (
        <details className="mt-2">
          <summary className="cursor-pointer text-xs text-ink-3">Lowest scores</summary>
          <ul className="mt-2 grid grid-cols-[minmax(0,1fr)] gap-2">
            {score.worst.map((item) => (
              <li key={item.line} className="grid grid-cols-[auto_minmax(0,1fr)] gap-x-3 font-mono text-xs">
                <span className="text-ink-3">Line {item.line}</span>
                <span className="break-words text-ink-3">{item.prompt}</span>
                <span className="text-ink-3">Expected</span>
                <span className="break-words whitespace-pre-wrap">{item.expected}</span>
                <Answer by="Version" text={item.version ?? figure(item.score)} />
                <Answer by="Live" text={item.live} />
                <Answer by="Base" text={item.base} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

/** An answer under the name of its model, or nothing if there is none. */
function Answer({ by, text }: { by: string; text: string | null }) {
  if (text === null) return null;
  return (
    <>
      <span className="text-ink-3">{by}</span>
      <span className="break-words whitespace-pre-wrap">{text}</span>
    </>
  );
}
