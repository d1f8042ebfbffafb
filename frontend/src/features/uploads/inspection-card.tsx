import { Check, CircleAlert, TriangleAlert } from "lucide-react";
import { Card } from "@/components/card";
import { TargetModules } from "@/components/target-modules";
import { cn } from "@/lib/cn";
import { bytes, number, params, plural } from "@/lib/format";
import type { AdapterSummary, Finding } from "@/lib/peft";
import type { Selection } from "@/lib/selection";

/** The result of the browser's check of the selected files, before anything is sent. */
export function InspectionCard({ selection }: { selection: Selection }) {
  const { files, findings, inspection } = selection;
  return (
    <Card
      aria-label="Inspection"
      title="Checked in your browser"
      note={
        files.length > 0
          ? `${files.map(({ name }) => name).join(" and ")} · ${bytes(selection.bytes)}`
          : "No files to send"
      }
    >
      {inspection && <Summary summary={inspection.summary} />}
      <div className="border-t empty:hidden">
        <Findings findings={findings} />
      </div>
      {selection.ignored.length > 0 && (
        <p className="border-t px-4 py-2.5 text-xs text-ink-3" title={selection.ignored.join("\n")}>
          {plural(selection.ignored.length, "other file")} will not be sent: {selection.ignored.slice(0, 4).join(", ")}
          {selection.ignored.length > 4 && "…"}
        </p>
      )}
    </Card>
  );
}

function Summary({ summary }: { summary: AdapterSummary }) {
  const facts = [
    { label: "Base model", value: summary.base ?? "not named", wide: true },
    { label: "Rank", value: summary.rank },
    { label: summary.rslora ? "Alpha, rsLoRA" : "Alpha", value: summary.alpha ?? "–" },
    { label: "Data type", value: summary.dtype },
    { label: "Targets", value: <TargetModules targets={summary.targets} />, wide: true },
    { label: "Layers", value: summary.layers },
    { label: "Parameters", value: params(summary.parameters) },
    { label: "Tensors", value: number(summary.tensors) },
  ];
  return (
    <dl className="grid grid-cols-3 gap-x-5 gap-y-3.5 px-4 py-4 sm:grid-cols-5">
      {facts.map(({ label, value, wide }) => (
        <div key={label} className={cn("min-w-0", wide && "col-span-3 sm:col-span-2")}>
          <dt className="text-xs text-ink-3">{label}</dt>
          <dd className="tnum mt-0.5 truncate text-sm font-medium">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Findings({ findings }: { findings: Finding[] }) {
  if (findings.length === 0) {
    return (
      <p className="flex items-center gap-2 px-4 py-3 text-sm text-accent-text">
        <Check className="size-4" aria-hidden /> The browser found no problems. The server also checks all shapes and
        values.
      </p>
    );
  }
  return (
    <ul className="divide-y">
      {findings.slice(0, 8).map((finding, index) => (
        <li key={index} className="flex gap-2.5 px-4 py-3 text-sm">
          {finding.level === "error" ? (
            <CircleAlert className="mt-0.5 size-4 shrink-0 text-danger-text" aria-label="Problem:" />
          ) : (
            <TriangleAlert className="mt-0.5 size-4 shrink-0 text-amber-text" aria-label="Warning:" />
          )}
          <div className="min-w-0">
            <p className="font-medium break-words">{finding.message}</p>
            <p className="break-words text-ink-2">{finding.fix}</p>
          </div>
        </li>
      ))}
      {findings.length > 8 && (
        <li className="px-4 py-2.5 text-xs text-ink-3">and {plural(findings.length - 8, "more")} of these.</li>
      )}
    </ul>
  );
}
