import { zodResolver } from "@hookform/resolvers/zod";
import { useQuery } from "@tanstack/react-query";
import { Tag } from "lucide-react";
import { useState } from "react";
import { useForm } from "react-hook-form";
import { asApiError } from "@/api/errors";
import type { PriceVersion } from "@/api/types";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Dialog } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { Table, Td, Th, Tr } from "@/components/table";
import { money } from "@/lib/format";
import { z } from "@/lib/zod";
import { pricesQuery, usePublishPrices } from "./queries";

const AMOUNTS = [
  ["input_per_million", "Input, a million tokens"],
  ["cached_input_per_million", "Cached input, a million tokens"],
  ["output_per_million", "Output, a million tokens"],
  ["storage_per_gb_month", "Adapter storage, a GB for a month"],
  ["batch_input_per_million", "Input of batches, a million tokens"],
  ["batch_cached_input_per_million", "Cached input of batches, a million tokens"],
  ["batch_output_per_million", "Output of batches, a million tokens"],
] as const;

export function PricesCard() {
  const { data, error, refetch } = useQuery(pricesQuery);
  const [publishing, setPublishing] = useState(false);
  return (
    <Card>
      <CardHeader
        title="Prices"
        note="A version holds from midnight UTC of its day; what was used before keeps its price"
        actions={
          data && (
            <Button size="sm" onClick={() => setPublishing(true)}>
              <Tag /> Publish prices
            </Button>
          )
        }
      />
      {error && <ErrorNotice error={asApiError(error)} onRetry={() => void refetch()} className="m-4" />}
      {!error && !data && <SkeletonRows rows={2} />}
      {data?.length === 0 && <p className="px-4 py-8 text-center text-sm text-ink-3">No prices yet: every cost is zero. The first list may begin in the past.</p>}
      {data && data.length > 0 && <Versions versions={data} />}
      {publishing && data && <Publish newest={data[0]} onClose={() => setPublishing(false)} />}
    </Card>
  );
}

const today = () => new Date().toISOString().slice(0, 10);
const tomorrow = () => new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);

function Versions({ versions }: { versions: PriceVersion[] }) {
  const begun = versions.filter((version) => version.effective_on <= today());
  const current = begun.toSorted((a, b) => b.effective_on.localeCompare(a.effective_on) || b.number - a.number)[0];
  return (
    <Table label="Prices">
      <thead>
        <tr>
          <Th>Version</Th>
          <Th>From</Th>
          {AMOUNTS.map(([name, label]) => (
            <Th key={name} className="text-right">
              {label}
            </Th>
          ))}
          <Th>Published by</Th>
        </tr>
      </thead>
      <tbody>
        {versions.map((version) => (
          <Tr key={version.number}>
            <Td className="font-medium">
              {version.number} {version === current && <Badge tone="green">now</Badge>}
              {version.effective_on > today() && <Badge tone="blue">to come</Badge>}
            </Td>
            <Td>{version.effective_on}</Td>
            {AMOUNTS.map(([name]) => (
              <Td key={name} className="tnum text-right">
                {version[name] == null ? "as others" : money(version[name], version.currency)}
              </Td>
            ))}
            <Td className="text-ink-2">{version.created_by ?? "–"}</Td>
          </Tr>
        ))}
      </tbody>
    </Table>
  );
}

/** Typed as money, sent as whole millionths; at most six places, so that nothing is rounded away. */
const amount = z.string().check(z.regex(/^\d{1,3}(\.\d{1,6})?$/, "A number up to 999 with at most six places, like 0.15."));
const amountOrNone = z.string().check(z.regex(/^(\d{1,3}(\.\d{1,6})?)?$/, "A number like 0.15, or nothing: as of other requests."));
const SCHEMA = z.object({
  effective_on: z.string().check(z.regex(/^\d{4}-\d{2}-\d{2}$/, "Choose a day.")),
  currency: z.string().check(z.regex(/^[A-Z]{3}$/, "Three capitals, like USD.")),
  input_per_million: amount,
  cached_input_per_million: amount,
  output_per_million: amount,
  storage_per_gb_month: amount,
  batch_input_per_million: amountOrNone,
  batch_cached_input_per_million: amountOrNone,
  batch_output_per_million: amountOrNone,
});
type Form = z.infer<typeof SCHEMA>;

/** "0.15" as 150000, without floating point. */
export function toMicros(text: string): number {
  const [whole = "0", places = ""] = text.split(".");
  return Number(whole) * 1_000_000 + Number(places.padEnd(6, "0"));
}

const fromMicros = (micros: number) => String(micros / 1e6);
const toMicrosOrNull = (text: string) => (text ? toMicros(text) : null);
const fromMicrosOrNull = (micros?: number | null) => (micros == null ? "" : fromMicros(micros));

function Publish({ newest, onClose }: { newest?: PriceVersion; onClose: () => void }) {
  const publish = usePublishPrices();
  const form = useForm<Form>({
    resolver: zodResolver(SCHEMA),
    defaultValues: {
      effective_on: newest ? tomorrow() : today(),
      currency: newest?.currency ?? "USD",
      input_per_million: newest ? fromMicros(newest.input_per_million) : "",
      cached_input_per_million: newest ? fromMicros(newest.cached_input_per_million) : "",
      output_per_million: newest ? fromMicros(newest.output_per_million) : "",
      storage_per_gb_month: newest ? fromMicros(newest.storage_per_gb_month) : "",
      batch_input_per_million: fromMicrosOrNull(newest?.batch_input_per_million),
      batch_cached_input_per_million: fromMicrosOrNull(newest?.batch_cached_input_per_million),
      batch_output_per_million: fromMicrosOrNull(newest?.batch_output_per_million),
    },
  });
  const { errors } = form.formState;
  const submit = form.handleSubmit(({ effective_on, currency, ...amounts }) =>
    publish.mutate(
      {
        effective_on,
        currency,
        input_per_million: toMicros(amounts.input_per_million),
        cached_input_per_million: toMicros(amounts.cached_input_per_million),
        output_per_million: toMicros(amounts.output_per_million),
        storage_per_gb_month: toMicros(amounts.storage_per_gb_month),
        batch_input_per_million: toMicrosOrNull(amounts.batch_input_per_million),
        batch_cached_input_per_million: toMicrosOrNull(amounts.batch_cached_input_per_million),
        batch_output_per_million: toMicrosOrNull(amounts.batch_output_per_million),
      },
      { onSuccess: onClose },
    ),
  );
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title="Publish prices" description="They cannot be changed afterwards, only followed by others.">
      <form onSubmit={submit} noValidate className="grid gap-4 sm:grid-cols-2">
        {publish.error && <ErrorNotice error={asApiError(publish.error)} className="sm:col-span-2" />}
        <Field label="From" hint="Midnight UTC" error={errors.effective_on?.message}>
          {(control) => <Input {...control} type="date" {...form.register("effective_on")} />}
        </Field>
        <Field label="Currency" error={errors.currency?.message}>
          {(control) => <Input {...control} {...form.register("currency")} maxLength={3} />}
        </Field>
        {AMOUNTS.map(([name, label]) => (
          <Field key={name} label={label} error={errors[name]?.message}>
            {(control) => <Input {...control} inputMode="decimal" autoComplete="off" {...form.register(name)} />}
          </Field>
        ))}
        <div className="flex justify-end gap-2 sm:col-span-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary" busy={publish.isPending}>
            Publish
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
