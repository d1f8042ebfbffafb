import { RotateCcw } from "lucide-react";
import { type ReactNode, useId, useState } from "react";
import { Button } from "@/components/button";
import { Field, Input, Select, Textarea } from "@/components/field";
import {
  bounded,
  BOUNDS,
  DEFAULTS,
  EXAMPLE_SCHEMA,
  EXAMPLE_TOOLS,
  type Format,
  MAX_SALT_LENGTH,
  type NumberName,
  type Sampling,
  schemaProblem,
  seedOf,
  toolsProblem,
} from "./sampling";

interface PanelProps {
  sampling: Sampling;
  onChange: (change: Partial<Sampling>) => void;
}

export function SamplingPanel({ sampling, onChange }: PanelProps) {
  const rest = { sampling, onChange };
  return (
    <div className="grid gap-5">
      <Field label="System prompt" hint="Sent before the conversation in every column.">
        <Textarea
          rows={4}
          value={sampling.system}
          placeholder="You answer in one sentence."
          onChange={(event) => onChange({ system: event.target.value })}
        />
      </Field>
      <Setting
        name="temperature"
        label="Temperature"
        hint="0 always picks the most likely token."
        step={0.05}
        {...rest}
      />
      <Setting
        name="topP"
        label="Top-p"
        hint="Samples from the most likely tokens up to this cumulative probability."
        step={0.05}
        {...rest}
      />
      <Setting name="maxTokens" label="Max tokens" hint="Maximum length of the answer." step={1} {...rest} />
      <Field label="Seed" hint="The same seed gives the same answer.">
        <Input
          inputMode="numeric"
          value={sampling.seed}
          placeholder="random"
          onChange={(event) => onChange({ seed: seedOf(event.target.value) })}
        />
      </Field>
      <Penalties {...rest} />
      <Field label="Cache salt" hint="Cached prompt prefixes are shared only between requests with the same salt.">
        <Input
          value={sampling.cacheSalt}
          placeholder="none"
          maxLength={MAX_SALT_LENGTH}
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => onChange({ cacheSalt: event.target.value })}
        />
      </Field>
      <Field label="Answer">
        <Select
          value={sampling.format}
          onChange={(event) => onChange(withFormat(sampling, event.target.value as Format))}
          data-testid="playground-format"
          options={[
            ["text", "Text"],
            ["json", "Any JSON object"],
            ["schema", "JSON schema"],
          ]}
        />
      </Field>
      {sampling.format === "schema" && (
        <Field label="Schema" error={schemaProblem(sampling) ?? undefined} hint="The answer always conforms to it.">
          <Textarea
            rows={9}
            spellCheck={false}
            className="font-mono text-xs"
            value={sampling.schema}
            onChange={(event) => onChange({ schema: event.target.value })}
            data-testid="playground-schema"
          />
        </Field>
      )}
      <div className="grid gap-1.5">
        <Field
          label="Tools"
          error={toolsProblem(sampling) ?? undefined}
          hint="Functions that the model may call, as JSON. You enter the results of calls."
        >
          <Textarea
            rows={sampling.tools ? 9 : 2}
            spellCheck={false}
            className="font-mono text-xs"
            value={sampling.tools}
            placeholder="[]"
            onChange={(event) => onChange({ tools: event.target.value })}
            data-testid="playground-tools"
          />
        </Field>
        {toolsProblem(sampling) && (
          <Button size="sm" variant="ghost" className="justify-self-start" onClick={() => onChange({ tools: "" })}>
            Clear tools
          </Button>
        )}
        {!sampling.tools && (
          <Button
            size="sm"
            variant="ghost"
            className="justify-self-start"
            onClick={() => onChange({ tools: EXAMPLE_TOOLS })}
          >
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

const withFormat = ({ schema }: Sampling, format: Format): Partial<Sampling> => ({
  format,
  schema: format === "schema" && !schema ? EXAMPLE_SCHEMA : schema,
});

const IN_PENALTIES: NumberName[] = ["presencePenalty", "frequencyPenalty", "repetitionPenalty", "topK", "minP"];

/** Settings that are collapsed while they have their defaults. */
function Penalties(rest: PanelProps) {
  const [open, setOpen] = useState(() => IN_PENALTIES.some((name) => rest.sampling[name] !== DEFAULTS[name]));
  return (
    <details
      open={open}
      onToggle={({ currentTarget }) => setOpen(currentTarget.open)}
      className="rounded-lg border"
      data-testid="playground-penalties"
    >
      <summary className="cursor-pointer px-3 py-2 text-sm font-medium select-none">Penalties and cut-offs</summary>
      <div className="grid gap-5 border-t p-3">
        <Setting
          name="presencePenalty"
          label="Presence penalty"
          hint="Above 0 makes tokens that the answer already contains less likely."
          step={0.1}
          {...rest}
        />
        <Setting
          name="frequencyPenalty"
          label="Frequency penalty"
          hint="Above 0 makes tokens less likely each time that they occur."
          step={0.1}
          {...rest}
        />
        <Setting
          name="repetitionPenalty"
          label="Repetition penalty"
          hint="Above 1 makes tokens of the prompt and the answer less likely."
          slider={[0.5, 2]}
          step={0.05}
          {...rest}
        />
        <Setting
          name="topK"
          label="Top-k"
          hint="Number of most likely tokens to sample from; 0 for all."
          slider={[0, 100]}
          step={1}
          {...rest}
        />
        <Setting
          name="minP"
          label="Min-p"
          hint="Minimum probability, relative to the most likely token."
          step={0.01}
          {...rest}
        />
      </div>
    </details>
  );
}

interface SettingProps extends PanelProps {
  name: NumberName;
  label: string;
  hint: ReactNode;
  step: number;
  /** Range of the slider, if it is smaller than the range of the input. */
  slider?: [min: number, max: number];
}

/** A number with a slider, where one is useful, and a button that restores the default. */
function Setting({ name, label, hint, step, slider, sampling, onChange }: SettingProps) {
  const id = useId();
  const { min, max, whole } = BOUNDS[name];
  const value = sampling[name];
  const [from, to] = slider ?? [min, max];
  const set = (next: number) => onChange({ [name]: bounded(name, next) });
  return (
    <div className="grid gap-1.5">
      <div className="flex items-center justify-between gap-1">
        <label htmlFor={id} className="mr-auto text-sm font-medium">
          {label}
        </label>
        {value !== DEFAULTS[name] && (
          <button
            type="button"
            aria-label={`Reset ${label}`}
            title={`Reset to ${DEFAULTS[name]}`}
            onClick={() => {
              set(DEFAULTS[name]);
              document.getElementById(id)?.focus(); // this button disappears
            }}
            className="grid size-6 place-items-center rounded-md text-ink-3 hover:bg-fill-2 hover:text-ink"
          >
            <RotateCcw className="size-3" />
          </button>
        )}
        <NumberBox id={id} value={value} min={min} max={max} step={whole ? 1 : "any"} onChange={set} />
      </div>
      {to - from <= 100 && (
        <input
          type="range"
          aria-label={`${label}, as a slider`}
          min={from}
          max={to}
          step={step}
          value={value}
          onChange={(event) => set(Number(event.target.value))}
          className="h-5 w-full accent-accent"
        />
      )}
      <p id={`${id}-hint`} className="text-xs text-ink-3">
        {hint}
      </p>
    </div>
  );
}

interface BoxProps {
  id: string;
  value: number;
  min: number;
  max: number;
  step: number | "any";
  onChange: (value: number) => void;
}

/** A number input. It applies valid values while typing, and corrects other values when it loses the focus. */
function NumberBox({ id, value, min, max, step, onChange }: BoxProps) {
  const [typed, setTyped] = useState<string>();
  const take = (text: string, inBounds: boolean) => {
    const next = text.trim() ? Number(text) : NaN;
    if (Number.isFinite(next) && (inBounds || (next >= min && next <= max))) onChange(next);
  };
  const leave = () => {
    if (typed !== undefined) take(typed, true);
    setTyped(undefined);
  };
  return (
    <Input
      id={id}
      type="number"
      aria-describedby={`${id}-hint`}
      min={min}
      max={max}
      step={step}
      value={typed ?? String(value)}
      onChange={(event) => {
        setTyped(event.target.value);
        take(event.target.value, false);
      }}
      onBlur={leave}
      onKeyDown={(event) => event.key === "Enter" && leave()}
      className="tnum h-7! w-20! shrink-0 px-2! text-right font-mono text-xs!"
    />
  );
}
