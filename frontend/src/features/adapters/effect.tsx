import { TriangleAlert } from "lucide-react";
import type { ProbedPrompt, VersionEffect, VersionSummary } from "@/api/types";
import { Button } from "@/components/button";
import { ErrorNotice } from "@/components/notices";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { plural } from "@/lib/format";
import { AgreementView } from "./agreement";
import { useVersionAction } from "./queries";

const WARNINGS = {
  changes_nothing: {
    title: "Changes nothing",
    text: "The host tested this version, and the base model’s answers did not change. Check that it was saved after training and that its lora_B weights are not zero.",
  },
  overflows: {
    title: "Overflows",
    text: "The host tested this version, and the model produced values that are not finite. Requests would fail with adapter_overflow. Train or export it with a smaller lora_alpha.",
  },
  differs: {
    title: "Differs on the quantised base",
    text: "The host compared this version with the unquantised base. Quantisation changes its answers more than it changes the base model’s, or more than the adapter itself does. Compare both on an evaluation set, or serve it from a host with an unquantised base.",
  },
};

/** Warns about a version that changes nothing, overflows, or differs on a quantised base. */
export function EffectWarning({
  version: { verdict, agreement },
  className,
}: {
  version: Pick<VersionSummary, "verdict" | "agreement">;
  className?: string;
}) {
  const kind =
    verdict === "changes_nothing" || verdict === "overflows" ? verdict : agreement === "differs" ? agreement : null;
  if (!kind) return null;
  const { title, text } = WARNINGS[kind];
  return (
    <div
      role="status"
      data-testid="effect-warning"
      className={cn("flex gap-3 rounded-lg bg-amber-soft px-3.5 py-3 text-sm", className)}
    >
      <TriangleAlert className="mt-0.5 size-4 shrink-0 text-amber-text" aria-hidden />
      <div className="min-w-0">
        <p className="font-medium text-amber-text">{title}</p>
        <p className="mt-0.5 text-ink-2">{text}</p>
      </div>
    </div>
  );
}

interface ConfirmationProps {
  adapter: string;
  version: VersionSummary;
  live: boolean;
  className?: string;
}

/** Asks for a confirmation before a flagged version can become live. */
export function EffectConfirmation({ adapter, version, live, className }: ConfirmationProps) {
  const confirm = useVersionAction(useTenant(), adapter, "confirm-effect");
  const may = useCan("adapters.write");
  if (!version.asks_for_effect || version.state !== "ready" || live) return null;
  const model = `${adapter}@v${version.number}`;
  return (
    <div data-testid="effect-confirmation" className={cn("grid gap-3 text-sm", className)}>
      <p className="break-words text-ink-2">Try it as {model}. It can be made live after you accept this result.</p>
      <ErrorNotice error={confirm.error} />
      {may && (
        <Button
          size="sm"
          className="justify-self-start"
          busy={confirm.isPending}
          onClick={() => confirm.mutate(version.number, { onSuccess: () => toast.good(`${model} may be live`) })}
        >
          Accept result
        </Button>
      )}
    </div>
  );
}

/** The effect of the version on a few prompts, as a host measured it. */
export function EffectView({ effect, state }: { effect: VersionEffect | null; state: VersionSummary["state"] }) {
  if (!effect) {
    return (
      <p className="text-sm text-ink-3">
        {state === "ready"
          ? "Not tested yet because the host was busy. The test runs automatically."
          : "A host tests each version when it is staged."}
      </p>
    );
  }
  return (
    <div data-testid="effect" className="grid gap-4">
      <p className="text-sm text-ink-2">
        {plural(effect.differing_tokens, "token")} of {effect.tokens} differ from the base model’s; log-probabilities
        change by up to <span className="tnum">{change(effect.largest_change)}</span>. Tried on {effect.host}{" "}
        <RelativeTime at={effect.at} />.
      </p>
      <ul className="grid gap-3">
        {effect.prompts.map((prompt) => (
          <li key={prompt.prompt} className="rounded-lg border px-3.5 py-2.5 text-sm">
            <PromptPair prompt={prompt} />
          </li>
        ))}
      </ul>
      {effect.layer_changes.length > 0 && (
        <LayerChanges changes={effect.layer_changes} quantised={effect.agreement?.layer_changes ?? []} />
      )}
      {effect.agreement && <AgreementView agreement={effect.agreement} effect={effect} />}
    </div>
  );
}

/** Returns a change of log-probabilities as text: small ones are not 0, and large ones have few digits. */
const change = (value: number) =>
  value === 0 || (value >= 0.01 && value < 1e4) ? value.toFixed(2) : value.toPrecision(2);

function PromptPair({ prompt }: { prompt: ProbedPrompt }) {
  return (
    <dl className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-1">
      <dt className="text-xs text-ink-3">Prompt</dt>
      <dd className="min-w-0 font-mono text-xs break-words text-ink-3">{prompt.prompt}</dd>
      <dt className="text-xs text-ink-3">Base</dt>
      <dd className="min-w-0 font-mono text-xs break-words whitespace-pre-wrap">{prompt.base_tokens.join("")}</dd>
      <dt className="text-xs text-ink-3">Version</dt>
      <dd className="min-w-0 font-mono text-xs break-words whitespace-pre-wrap">
        {prompt.finite
          ? prompt.adapter_tokens.map((token, index) => (
              <span key={index} className={cn(token !== prompt.base_tokens[index] && "rounded bg-accent-soft")}>
                {token}
              </span>
            ))
          : "not finite"}
      </dd>
      {prompt.finite && (
        <>
          <dt className="text-xs text-ink-3">Change</dt>
          <dd className="tnum min-w-0 text-xs text-ink-3">
            up to {change(prompt.largest_change)}, {change(prompt.mean_change)} on average
          </dd>
        </>
      )}
    </dl>
  );
}

/** A bar chart of the relative change of each layer, with a line at the change that quantisation causes. */
function LayerChanges({ changes, quantised }: { changes: number[]; quantised: number[] }) {
  const largest = Math.max(...changes, ...quantised);
  const percent = (change: number) => `${(change * 100).toPrecision(2)}%`;
  const height = (change: number) => `${largest ? (100 * change) / largest : 0}%`;
  const describe = (change: number, layer: number) =>
    `layer ${layer}: ${percent(change)}${quantised[layer] === undefined ? "" : `, by quantisation ${percent(quantised[layer])}`}`;
  return (
    <figure>
      <figcaption className="mb-1.5 text-xs text-ink-3">
        Change of each layer’s matrices, up to {percent(Math.max(...changes))} of their norm
        {quantised.length > 0 && (
          <>; quantising the base changes them by up to {percent(Math.max(...quantised))} (lines)</>
        )}
      </figcaption>
      <div
        role="img"
        aria-label={changes.map(describe).join("; ")}
        className={cn("flex h-10 items-end", changes.length <= 96 && "gap-px")}
      >
        {changes.map((change, layer) => (
          <span key={layer} className="relative flex h-full min-w-0 flex-1 items-end">
            <span className="w-full rounded-t-sm bg-accent" style={{ height: height(change) }} />
            {quantised[layer] !== undefined && (
              <span className="absolute inset-x-0 border-t-2 border-ink" style={{ bottom: height(quantised[layer]) }} />
            )}
          </span>
        ))}
      </div>
    </figure>
  );
}
