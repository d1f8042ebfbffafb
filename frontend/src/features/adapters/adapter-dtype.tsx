import type { AdapterDtype, DtypeReport, Placement, Version } from "@/api/types";
import { Badge } from "@/components/badge";
import { ErrorNotice } from "@/components/notices";
import { SegmentedControl } from "@/components/segmented-control";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { number } from "@/lib/format";
import { useSetAdapterDtype } from "./queries";

const SETTINGS: { value: AdapterDtype; label: string; text: string }[] = [
  {
    value: "auto",
    label: "Auto",
    text: "FP8 on hosts with FP8 adapters, if its answers agree with those in the model’s data type.",
  },
  { value: "bf16", label: "BF16", text: "The model’s data type on every host." },
  { value: "fp8", label: "FP8", text: "FP8 on hosts with FP8 adapters, even if its answers do not agree." },
];

/** The data type in which each host serves a version, the comparison that decided it, and the version's setting. */
export function AdapterDtypeView({ version }: { version: Version }) {
  const may = useCan("adapters.write");
  const set = useSetAdapterDtype(useTenant(), version.adapter, version.number);
  const inUse = version.state !== "archived" && version.state !== "deleted";
  const setting = SETTINGS.find(({ value }) => value === version.adapter_dtype);
  const change = (dtype: AdapterDtype) =>
    set.mutate(dtype, { onSuccess: () => toast.good("The hosts load the version in its new data type") });
  return (
    <section data-testid="adapter-dtype" className="border-t px-4 py-4">
      <h3 className="mb-3 text-sm font-semibold">Data type on hosts</h3>
      <div className="grid gap-3">
        <div className="flex flex-wrap items-center gap-x-3 gap-y-2">
          {may && inUse ? (
            <SegmentedControl
              label="Data type on hosts"
              value={version.adapter_dtype}
              options={SETTINGS}
              onChange={change}
              className={set.isPending ? "opacity-60" : undefined}
            />
          ) : (
            <span className="text-sm">{setting?.label}</span>
          )}
          <p className="min-w-0 text-xs text-ink-3">{setting?.text} Running requests keep theirs.</p>
        </div>
        <ErrorNotice error={set.error} />
        {version.placements.length > 0 && (
          // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
          <ul tabIndex={0} aria-label="Hosts" className="max-h-80 divide-y overflow-y-auto rounded-lg border">
            {version.placements.map((placement) => (
              <HostDtype key={placement.host} placement={placement} />
            ))}
          </ul>
        )}
      </div>
    </section>
  );
}

function HostDtype({ placement: { host, dtype, dtype_report: report } }: { placement: Placement }) {
  return (
    <li className="grid gap-1 px-3.5 py-2.5 text-sm">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <span className="min-w-0 wrap-anywhere">{host}</span>
        {dtype && <Badge tone={report?.outcome === "differs" ? "amber" : "neutral"}>{dtype}</Badge>}
        {report && report.tokens > 0 && (
          <span className="tnum ml-auto text-xs text-ink-3">
            {number(report.agreeing)} of {number(report.tokens)} tokens agree in FP8
          </span>
        )}
      </div>
      <p className="text-xs text-ink-3">{explain(report)}</p>
    </li>
  );
}

/** Returns why the host serves the version in this data type, as far as it has reported it. */
function explain(report: DtypeReport | null): string {
  if (!report) return "The host has not reported its data type yet.";
  if (report.outcome === "pending") {
    return "The host compares FP8 with the model’s data type when it has time. Until then, Auto serves the model’s data type.";
  }
  if (report.outcome === "not_measured") return report.reason;
  const largest = `${report.largest_distance.toFixed(2)} at most`;
  if (report.outcome === "differs")
    return report.tokens > 0 ? `${report.reason} They differ by ${largest}.` : report.reason;
  const share = Math.round(100 * report.least_agreeing);
  return `Log-probabilities differ by ${report.mean_distance.toFixed(3)} on average and by ${largest}. FP8 is accepted from ${share}% of tokens and up to ${report.most_distance.toFixed(2)} on average.`;
}
