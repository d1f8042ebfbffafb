import { useQueryClient } from "@tanstack/react-query";
import { Plus, X } from "lucide-react";
import { type RefObject, useState } from "react";
import type { Model } from "@/api/types";
import { Button } from "@/components/button";
import { CodeBlock } from "@/components/code-block";
import { Dialog } from "@/components/dialog";
import { Input } from "@/components/field";
import { Snippets } from "@/components/snippets";
import { useTenant } from "@/features/session/queries";
import { combinationProblem, MAX_WEIGHT, listOf, MAX_PARTS, nameOf, type Part, weightProblem } from "./combination";
import { ModelPicker } from "./model-picker";

interface CombineProps {
  models: Model[];
  begun: Part[];
  onUse: (model: string) => void;
  onClose: () => void;
  /** Receives the focus after the dialog is closed. */
  focusAfter: RefObject<HTMLElement | null>;
}

/** A dialog that combines several adapters with weights into one model, and shows the request for it. */
export function CombineDialog({ models, begun: initial, onUse, onClose, focusAfter }: CombineProps) {
  const [parts, setParts] = useState(initial);
  const loaded = useLoadedModels(models);
  const problem = combinationProblem(parts, loaded);
  const change = (at: number, part: Partial<Part>) =>
    setParts(parts.map((old, index) => (index === at ? { ...old, ...part } : old)));
  return (
    <Dialog
      onClose={onClose}
      title="Combine adapters"
      description="The combination adds up the changes of several plain LoRA adapters of one base model, each multiplied by its weight. The first request on a host builds it there."
      className="max-w-4xl!"
      focusAfter={focusAfter}
    >
      <form
        className="grid grid-cols-[minmax(0,1fr)] gap-5 lg:grid-cols-2"
        onSubmit={(event) => {
          event.preventDefault();
          if (!problem) onUse(nameOf(parts));
        }}
      >
        <div className="grid grid-cols-[minmax(0,1fr)] content-start gap-3">
          <ul className="grid gap-3">
            {parts.map((part, index) => (
              <PartRow
                key={index}
                number={index + 1}
                part={part}
                models={models}
                onChange={(next) => change(index, next)}
                onRemove={parts.length > 1 ? () => setParts(parts.filter((_, other) => other !== index)) : null}
              />
            ))}
          </ul>
          <div className="flex flex-wrap items-center gap-2">
            <Button
              size="sm"
              disabled={parts.length >= MAX_PARTS}
              onClick={() => setParts([...parts, { model: "", weight: "1" }])}
            >
              <Plus /> Add an adapter
            </Button>
            {parts.length >= MAX_PARTS && (
              <span className="text-xs text-ink-3">At most {MAX_PARTS} in one request.</span>
            )}
          </div>
          <p role="status" className="min-h-5 text-xs text-ink-2" data-testid="combine-problem">
            {problem}
          </p>
          <div className="flex justify-end gap-2">
            <Button onClick={onClose}>Cancel</Button>
            <Button type="submit" variant="primary" disabled={problem !== null}>
              Use in this column
            </Button>
          </div>
        </div>
        <div className="grid grid-cols-[minmax(0,1fr)] content-start gap-3">
          {problem ? (
            <p className="rounded-lg border border-dashed px-4 py-8 text-center text-sm text-ink-3">
              The code of the request is shown here when the combination is valid.
            </p>
          ) : (
            <>
              <Snippets model={nameOf(parts)} origin={location.origin} />
              <p className="text-xs text-ink-3">
                <code className="font-mono">model</code> can also be a list:
              </p>
              <CodeBlock code={JSON.stringify(listOf(parts))} label="The model as a list" />
            </>
          )}
        </div>
      </form>
    </Dialog>
  );
}

/** Returns the models that are loaded, including the results of searches in the rows. */
function useLoadedModels(models: Model[]): Model[] {
  const loaded = useQueryClient().getQueriesData<Model[]>({ queryKey: ["t", useTenant(), "models"] });
  return [...models, ...loaded.flatMap(([, data]) => data ?? [])];
}

interface RowProps {
  number: number;
  part: Part;
  models: Model[];
  onChange: (part: Partial<Part>) => void;
  onRemove: (() => void) | null;
}

function PartRow({ number, part, models, onChange, onRemove }: RowProps) {
  const problem = weightProblem(part);
  const note = `combine-weight-${number}`;
  return (
    <li aria-label={`Adapter ${number}`} className="grid gap-1">
      <div className="flex items-center gap-2">
        <ModelPicker models={models} value={part.model} onChange={(model) => onChange({ model })} />
        <Input
          type="number"
          aria-label={`Weight of ${part.model || `adapter ${number}`}`}
          title="Weight"
          min={-MAX_WEIGHT}
          max={MAX_WEIGHT}
          step="any"
          value={part.weight}
          aria-invalid={problem ? true : undefined}
          aria-describedby={problem ? note : undefined}
          onChange={({ target }) => onChange({ weight: target.value })}
          className="tnum w-20! shrink-0"
        />
        <Button
          type="button"
          size="icon"
          variant="ghost"
          disabled={!onRemove}
          aria-label={`Remove ${part.model || `adapter ${number}`}`}
          onClick={() => onRemove?.()}
        >
          <X />
        </Button>
      </div>
      {problem && (
        <p id={note} className="text-xs text-danger-text">
          Weight: {problem}
        </p>
      )}
    </li>
  );
}
