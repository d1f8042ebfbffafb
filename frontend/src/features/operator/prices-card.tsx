import { zodResolver } from "@hookform/resolvers/zod";
import { Tag } from "lucide-react";
import { useState } from "react";
import { useForm } from "react-hook-form";
import type { PriceVersion } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm, FormDialog } from "@/components/dialog";
import { Field, Input, type Option, Select } from "@/components/field";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { HiddenTh, Table, Td, Th, Tr } from "@/components/table";
import { cn } from "@/lib/cn";
import { money } from "@/lib/format";
import { z } from "@/lib/zod";
import { baseModelsQuery, pricesQuery, useEndPrices, usePublishPrices } from "./queries";

/** Labels of the prices in the form and in the table, which states once that they are per million tokens. */
const AMOUNTS = [
  ["input_per_million", "Input, per million tokens", "Input"],
  ["cached_input_per_million", "Cached input, per million tokens", "Cached"],
  ["output_per_million", "Output, per million tokens", "Output"],
  ["storage_per_gb_month", "Adapter storage, per GB-month", "GB-month"],
  ["batch_input_per_million", "Batch input, per million tokens", "Batch input"],
  ["batch_cached_input_per_million", "Cached batch input, per million tokens", "Batch cached"],
  ["batch_output_per_million", "Batch output, per million tokens", "Batch output"],
] as const;

/** Prices that apply to all base models and are not part of a base model's list. */
const GENERAL = new Set<string>(["storage_per_gb_month"]);

export function PricesCard() {
  const { data, error, refetch } = useQuery(pricesQuery);
  const [publishing, setPublishing] = useState(false);
  const [ending, setEnding] = useState<PriceVersion | null>(null);
  return (
    <Card
      title="Prices"
      note="Prices per million tokens. A price list takes effect at midnight UTC of its date; earlier usage keeps its price. Prices of a base model override the general prices."
      actions={
        data && (
          <Button size="sm" onClick={() => setPublishing(true)}>
            <Tag /> Publish prices
          </Button>
        )
      }
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={2} />}
      {data?.length === 0 && (
        <p className="px-4 py-8 text-center text-sm text-ink-3">
          No prices yet, so every cost is zero. The first price list may start in the past.
        </p>
      )}
      {data && data.length > 0 && <Versions versions={data} onEnd={setEnding} />}
      {publishing && data && <Publish versions={data} onClose={() => setPublishing(false)} />}
      {ending && <End version={ending} onClose={() => setEnding(null)} />}
    </Card>
  );
}

const today = () => new Date().toISOString().slice(0, 10);
const tomorrow = () => new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);

/** Returns the version of a price list that applies on a day. */
function inForceOn(day: string, versions: PriceVersion[]): PriceVersion | undefined {
  return versions
    .filter((version) => version.effective_on <= day)
    .toSorted((a, b) => b.effective_on.localeCompare(a.effective_on) || b.number - a.number)[0];
}

const listOf = (version: PriceVersion) => version.base_model_digest ?? null;
const ofList = (versions: PriceVersion[], digest: string | null) =>
  versions.filter((version) => listOf(version) === digest);

const FAR = "9999-12-31";

function Versions({ versions, onEnd }: { versions: PriceVersion[]; onEnd: (version: PriceVersion) => void }) {
  const lists = [...new Set(versions.map(listOf))];
  const current = new Set(lists.map((digest) => inForceOn(today(), ofList(versions, digest))?.number));
  const last = new Set(lists.map((digest) => inForceOn(FAR, ofList(versions, digest))?.number));
  const several = lists.length > 1 || lists[0] !== null;
  return (
    <Table
      label="Prices"
      columns={[
        "Version",
        several && "Base model",
        "From",
        ...AMOUNTS.map(([name, label, heading]) => (
          <Th key={name} className="text-right" title={label}>
            {heading}
          </Th>
        )),
        ["Published by", several ? "hidden 2xl:table-cell" : ""],
        several && <HiddenTh label="Change" />,
      ]}
    >
      {versions.map((version) => (
        <Tr key={version.number}>
          <Td className="font-medium">
            {version.number} {current.has(version.number) && <Badge tone="green">now</Badge>}
            {version.effective_on > today() && <Badge tone="blue">to come</Badge>}
          </Td>
          {several && (
            <Td>
              <bdi className="block max-w-44 truncate" title={version.base_model ?? undefined}>
                {version.base_model ?? <span className="text-ink-3">all others</span>}
              </bdi>
            </Td>
          )}
          <Td>{version.effective_on}</Td>
          {version.inherits ? (
            <Td colSpan={AMOUNTS.length} className="text-ink-3">
              no longer has separate prices
            </Td>
          ) : (
            AMOUNTS.map(([name]) => (
              <Td key={name} className="tnum text-right">
                <Amount version={version} name={name} />
              </Td>
            ))
          )}
          <Td className={cn("text-ink-2", several && "hidden 2xl:table-cell")}>
            <span className="block max-w-40 truncate" title={version.created_by ?? undefined}>
              {version.created_by ?? "–"}
            </span>
          </Td>
          {several && (
            <Td className="text-right">
              {version.base_model_digest && !version.inherits && last.has(version.number) && (
                <Button size="sm" aria-label={`End the prices of ${version.base_model}`} onClick={() => onEnd(version)}>
                  End
                </Button>
              )}
            </Td>
          )}
        </Tr>
      ))}
    </Table>
  );
}

function Amount({ version, name }: { version: PriceVersion; name: (typeof AMOUNTS)[number][0] }) {
  const amount = version[name];
  if (amount != null) return money(amount, version.currency);
  return <span className="text-ink-3">{GENERAL.has(name) ? "–" : "as others"}</span>;
}

function End({ version, onClose }: { version: PriceVersion; onClose: () => void }) {
  const end = useEndPrices();
  const [day, setDay] = useState(tomorrow());
  return (
    <Confirm
      onClose={onClose}
      title={`End the prices of ${version.base_model}?`}
      description="From that day the general prices apply. Earlier usage keeps its price."
      action="End its prices"
      write={end}
      disabled={!day}
      onConfirm={() =>
        end.mutate({ base_model_digest: version.base_model_digest!, effective_on: day }, { onSuccess: onClose })
      }
    >
      <Field label="From" hint="Midnight UTC">
        <Input type="date" value={day} onChange={(event) => setDay(event.target.value)} />
      </Field>
    </Confirm>
  );
}

/** A price as typed, with at most six decimal places, because it is sent as whole millionths. */
const amount = z
  .string()
  .check(z.regex(/^\d{1,3}(\.\d{1,6})?$/, "Enter a number up to 999 with at most six decimal places, such as 0.15."));
const amountOrNone = z
  .string()
  .check(
    z.regex(
      /^(\d{1,3}(\.\d{1,6})?)?$/,
      "Enter a number such as 0.15, or leave the field empty to use the price of other requests.",
    ),
  );
const SCHEMA = z.object({
  base_model_digest: z.string(),
  effective_on: z.string().check(z.regex(/^\d{4}-\d{2}-\d{2}$/, "Choose a day.")),
  currency: z.string().check(z.regex(/^[A-Z]{3}$/, "Enter three capital letters, such as USD.")),
  input_per_million: amount,
  cached_input_per_million: amount,
  output_per_million: amount,
  storage_per_gb_month: amountOrNone,
  batch_input_per_million: amountOrNone,
  batch_cached_input_per_million: amountOrNone,
  batch_output_per_million: amountOrNone,
});
type Form = z.infer<typeof SCHEMA>;

/** Converts "0.15" to 150000 without floating point. */
export function toMicros(text: string): number {
  const [whole = "0", places = ""] = text.split(".");
  return Number(whole) * 1_000_000 + Number(places.padEnd(6, "0"));
}

const fromMicros = (micros: number) => String(micros / 1e6);
const toMicrosOrNull = (text: string) => (text ? toMicros(text) : null);
const fromMicrosOrNull = (micros?: number | null) => (micros == null ? "" : fromMicros(micros));

/** Returns the initial amounts of the form: the newest of the list, or else of the general list. */
function defaultsFor(
  versions: PriceVersion[],
  digest: string,
): Omit<Form, "base_model_digest" | "effective_on" | "currency"> {
  const ofModel = digest ? inForceOn(FAR, ofList(versions, digest)) : undefined;
  const from = ofModel && !ofModel.inherits ? ofModel : inForceOn(FAR, ofList(versions, null));
  return {
    input_per_million: fromMicrosOrNull(from?.input_per_million),
    cached_input_per_million: fromMicrosOrNull(from?.cached_input_per_million),
    output_per_million: fromMicrosOrNull(from?.output_per_million),
    storage_per_gb_month: fromMicrosOrNull(from?.storage_per_gb_month),
    batch_input_per_million: fromMicrosOrNull(from?.batch_input_per_million),
    batch_cached_input_per_million: fromMicrosOrNull(from?.batch_cached_input_per_million),
    batch_output_per_million: fromMicrosOrNull(from?.batch_output_per_million),
  };
}

function Publish({ versions, onClose }: { versions: PriceVersion[]; onClose: () => void }) {
  const publish = usePublishPrices();
  const bases = (useQuery(baseModelsQuery).data ?? []).filter(({ state }) => state !== "waiting");
  const form = useForm<Form>({
    resolver: zodResolver(SCHEMA),
    defaultValues: {
      base_model_digest: "",
      effective_on: versions.length > 0 ? tomorrow() : today(),
      currency: versions[0]?.currency ?? "USD",
      ...defaultsFor(versions, ""),
    },
  });
  const { errors } = form.formState;
  const [digest, setDigest] = useState("");
  const choose = (chosen: string) => {
    setDigest(chosen);
    const { effective_on, currency } = form.getValues();
    form.reset({ base_model_digest: chosen, effective_on, currency, ...defaultsFor(versions, chosen) });
  };
  const submit = form.handleSubmit(({ base_model_digest, effective_on, currency, ...amounts }) => {
    if (!base_model_digest && !amounts.storage_per_gb_month) {
      form.setError("storage_per_gb_month", { message: "Enter a number such as 0.15, or 0 if storage is free." });
      return;
    }
    publish.mutate(
      {
        base_model_digest: base_model_digest || null,
        effective_on,
        currency,
        input_per_million: toMicros(amounts.input_per_million),
        cached_input_per_million: toMicros(amounts.cached_input_per_million),
        output_per_million: toMicros(amounts.output_per_million),
        storage_per_gb_month: base_model_digest ? null : toMicros(amounts.storage_per_gb_month),
        batch_input_per_million: toMicrosOrNull(amounts.batch_input_per_million),
        batch_cached_input_per_million: toMicrosOrNull(amounts.batch_cached_input_per_million),
        batch_output_per_million: toMicrosOrNull(amounts.batch_output_per_million),
      },
      { onSuccess: onClose },
    );
  });
  return (
    <FormDialog
      onClose={onClose}
      title="Publish prices"
      description="Published prices cannot be changed, only replaced by a later price list."
      write={publish}
      action="Publish"
      onSubmit={submit}
    >
      <div className="field-pairs">
        {(bases.length > 1 || digest) && (
          <div className="min-w-0 sm:col-span-2">
            <Field
              label="Base model"
              hint={digest ? "These prices override the general prices. Storage has one price for all." : undefined}
            >
              <Select
                value={digest}
                onChange={(event) => choose(event.target.value)}
                options={[
                  ["", "All base models without separate prices"],
                  ...bases.map((base): Option => [
                    base.digest,
                    base.state === "withdrawn" ? `${base.name} (withdrawn)` : base.name,
                  ]),
                ]}
              />
            </Field>
          </div>
        )}
        <Field label="From" hint="Midnight UTC" error={errors.effective_on?.message}>
          <Input type="date" {...form.register("effective_on")} />
        </Field>
        <Field label="Currency" error={errors.currency?.message}>
          <Input {...form.register("currency")} maxLength={3} />
        </Field>
        {AMOUNTS.filter(([name]) => !digest || !GENERAL.has(name)).map(([name, label]) => (
          <Field key={name} label={label} error={errors[name]?.message}>
            <Input inputMode="decimal" autoComplete="off" {...form.register(name)} />
          </Field>
        ))}
      </div>
    </FormDialog>
  );
}
