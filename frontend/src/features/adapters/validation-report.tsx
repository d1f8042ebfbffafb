import { Check, CircleAlert, Info, X } from "lucide-react";
import type { ValidationReport } from "@/api/types";
import { plural } from "@/lib/format";

const CHECKS: Record<string, string> = {
  config: "Configuration",
  features: "Supported features",
  safetensors: "Weights file",
  tensors: "Tensor names",
  shapes: "Shapes against the base model",
  modules: "Modules against the configuration",
  finite: "No NaN or infinity",
};

/** The server's validation report: every problem with its fix, then the checks that passed. */
export function ValidationReportView({ report }: { report: ValidationReport }) {
  const hidden = report.problem_count - report.problems.length;
  return (
    <div data-testid="validation-report" data-ok={report.ok} className="grid grid-cols-[minmax(0,1fr)] gap-4">
      <p className="flex items-center gap-2 text-sm font-medium">
        {report.ok ? (
          <Check className="size-4 text-accent-text" aria-hidden />
        ) : (
          <CircleAlert className="size-4 text-danger-text" aria-hidden />
        )}
        {report.ok ? "Valid: it fits the base model." : `${plural(report.problem_count, "problem")} to fix:`}
      </p>
      {report.problems.length > 0 && <Problems report={report} />}
      {hidden > 0 && (
        <p className="text-xs text-ink-3">and {plural(hidden, "more problem")}, probably of the same kind.</p>
      )}
      <ul className="grid gap-x-6 gap-y-1.5 sm:grid-cols-2">
        {report.checks.map((check) => (
          <li key={check.name} className="flex gap-2 text-sm">
            {check.ok ? (
              <Check className="mt-0.5 size-4 shrink-0 text-accent-text" aria-label="passed:" />
            ) : (
              <X className="mt-0.5 size-4 shrink-0 text-danger-text" aria-label="failed:" />
            )}
            <span className="min-w-0">
              {CHECKS[check.name] ?? check.name}
              {check.detail && <span className="block text-xs break-words text-ink-3">{check.detail}</span>}
            </span>
          </li>
        ))}
      </ul>
      {report.notes.map((note) => (
        <p key={note} className="flex gap-2 text-xs text-ink-3">
          <Info className="mt-px size-3.5 shrink-0" aria-hidden />
          <span className="min-w-0 break-words">{note}</span>
        </p>
      ))}
    </div>
  );
}

function Problems({ report }: { report: ValidationReport }) {
  return (
    <ul
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
      tabIndex={0}
      aria-label="Problems"
      className="max-h-[36rem] divide-y overflow-y-auto rounded-lg border border-danger/35"
    >
      {report.problems.map((problem, index) => (
        <li key={index} className="px-3.5 py-2.5 text-sm">
          <p className="font-medium break-words text-danger-text">{problem.message}</p>
          <p className="mt-0.5 break-words text-ink-2">{problem.fix}</p>
          <p className="mt-1 font-mono text-2xs break-all text-ink-3">
            {problem.code}
            {problem.tensor && ` · ${problem.tensor}`}
          </p>
        </li>
      ))}
    </ul>
  );
}
