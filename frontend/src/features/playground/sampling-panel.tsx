import { RotateCcw } from "lucide-react";
import { useId } from "react";
import { Button } from "@/components/button";
import { Field, Input, Select, Textarea } from "@/components/field";
import { DEFAULTS, EXAMPLE_SCHEMA, EXAMPLE_TOOLS, type Format, type Sampling, schemaProblem, toolsProblem } from "./sampling";

interface PanelProps {
  sampling: Sampling;
  onChange: (change: Partial<Sampling>) => void;
}

export function SamplingPanel({ sampling, onChange }: PanelProps) {
  return (
    <div className="grid gap-5">
      <Field label="System prompt" hint="Goes before the conversation, in every column.">
        {(control) => (
          <Textarea
            {...control}
            rows={4}
            value={sampling.system}
            placeholder="You answer in one sentence."
            onChange={(event) => onChange({ system: event.target.value })}
          />
        )}
      </Field>
      <Range
        label="Temperature"
        hint="0 always picks the likeliest token."
        value={sampling.temperature}
        max={2}
        step={0.05}
        onChange={(temperature) => onChange({ temperature })}
      />
      <Range label="Top-p" hint="Only the likeliest tokens up to this share." value={sampling.topP} min={0.05} max={1} step={0.05} onChange={(topP) => onChange({ topP })} />
      <Field label="Max tokens" hint="The answer ends here at the latest.">
        {(control) => (
          <Input
            {...control}
            type="number"
            min={1}
            max={32768}
            value={sampling.maxTokens}
            onChange={(event) => onChange({ maxTokens: Math.max(1, Math.floor(Number(event.target.value)) || 1) })}
          />
        )}
      </Field>
      <Field label="Seed" hint="The same seed gives the same answer.">
        {(control) => (
          <Input
            {...control}
            inputMode="numeric"
            value={sampling.seed}
            placeholder="random"
            onChange={(event) => onChange({ seed: event.target.value.replace(/\D/g, "").slice(0, 15) })}
          />
        )}
      </Field>
      <Field label="Answer">
        {(control) => (
          <Select {...control} value={sampling.format} onChange={(event) => onChange(withFormat(sampling, event.target.value as Format))} data-testid="playground-format">
            <option value="text">Text</option>
            <option value="json">Any JSON object</option>
            <option value="schema">JSON by a schema</option>
          </Select>
        )}
      </Field>
      {sampling.format === "schema" && (
        <Field label="Schema" error={schemaProblem(sampling) ?? undefined} hint="The answer always follows it.">
          {(control) => (
            <Textarea
              {...control}
              rows={9}
              spellCheck={false}
              className="font-mono text-xs"
              value={sampling.schema}
              onChange={(event) => onChange({ schema: event.target.value })}
              data-testid="playground-schema"
            />
          )}
        </Field>
      )}
      <div className="grid gap-1.5">
        <Field label="Tools" error={toolsProblem(sampling) ?? undefined} hint="Functions that the model may call, as JSON. You write what a call returns.">
          {(control) => (
            <Textarea
              {...control}
              rows={sampling.tools ? 9 : 2}
              spellCheck={false}
              className="font-mono text-xs"
              value={sampling.tools}
              placeholder="[]"
              onChange={(event) => onChange({ tools: event.target.value })}
              data-testid="playground-tools"
            />
          )}
        </Field>
        {!sampling.tools && (
          <Button size="sm" variant="ghost" className="justify-self-start" onClick={() => onChange({ tools: EXAMPLE_TOOLS })}>
            Use an example
          </Button>
        )}
      </div>
      <Button size="sm" variant="ghost" className="justify-self-start" onClick={() => onChange(DEFAULTS)}>
        <RotateCcw /> Reset
      </Button>
    </div>
  );
}

const withFormat = ({ schema }: Sampling, format: Format): Partial<Sampling> => ({ format, schema: format === "schema" && !schema ? EXAMPLE_SCHEMA : schema });

interface RangeProps {
  label: string;
  hint: string;
  value: number;
  min?: number;
  max: number;
  step: number;
  onChange: (value: number) => void;
}

function Range({ label, hint, value, min = 0, max, step, onChange }: RangeProps) {
  const id = useId();
  return (
    <div className="grid gap-1.5">
      <div className="flex items-baseline justify-between">
        <label htmlFor={id} className="text-sm font-medium">
          {label}
        </label>
        <output htmlFor={id} className="tnum font-mono text-xs text-ink-2">
          {value.toFixed(2)}
        </output>
      </div>
      <input
        id={id}
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        aria-describedby={`${id}-hint`}
        onChange={(event) => onChange(Number(event.target.value))}
        className="h-5 w-full accent-accent"
      />
      <p id={`${id}-hint`} className="text-xs text-ink-3">
        {hint}
      </p>
    </div>
  );
}
