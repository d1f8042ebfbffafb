import { Link } from "@tanstack/react-router";
import { Check, CircleAlert, LoaderCircle, MessagesSquare, PartyPopper } from "lucide-react";
import type { ReactNode } from "react";
import type { Upload } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Progress } from "@/components/bars";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { BaseConfirmation } from "@/features/adapters/base-confirmation";
import { EffectConfirmation, EffectWarning } from "@/features/adapters/effect";
import { versionQuery } from "@/features/adapters/queries";
import { ValidationReportView } from "@/features/adapters/validation-report";
import { Staging } from "@/features/adapters/staging";
import { Evaluations } from "@/features/evaluations/evaluations";
import { useTenant } from "@/features/session/queries";
import { toast } from "@/components/toast";
import { bytes, percent } from "@/lib/format";
import { isUndecided, uploadQuery, useCancelUpload } from "./queries";

/** The progress of an upload after it was received: validation, then staging. */
export function UploadProgress({ id, onAgain }: { id: string; onAgain: () => void }) {
  const { data, error, refetch } = useQuery(uploadQuery(useTenant(), id));
  if (error) return <ErrorNotice error={error} onRetry={refetch} />;
  if (!data) return <Skeleton className="h-56 w-full" />;
  return (
    <div className="grid gap-5">
      <Card
        title={
          <span className="flex items-center gap-2">
            <StepIcon state={ICONS[data.state]} /> {heading(data)}
          </span>
        }
        note={[
          data.adapter,
          data.imported_from?.name ?? data.files.map(({ name }) => name).join(", "),
          data.bytes > 0 && bytes(data.bytes),
        ]
          .filter(Boolean)
          .join(" · ")}
        actions={
          isUndecided(data) ? (
            <CancelUpload id={id} />
          ) : (
            (data.state === "refused" || data.state === "cancelled") && (
              <Button size="sm" variant="primary" onClick={onAgain}>
                {data.imported_from ? "Choose another source" : "Choose other files"}
              </Button>
            )
          )
        }
      >
        <Progress
          label="Upload"
          value={data.fetched_bytes ?? 1}
          max={data.fetched_bytes == null ? 1 : Math.max(data.bytes, data.fetched_bytes, 1)}
          tone={data.state === "refused" ? "danger" : "accent"}
          className="h-0.5! rounded-none!"
          data-testid="upload-progress"
        />
        <Validation upload={data} />
        {data.state !== "refused" && data.state !== "cancelled" && (
          <Evaluations subject={{ adapter: data.adapter, upload: data.id }} />
        )}
      </Card>
      {data.state === "accepted" && data.version != null && (
        <StagingCard adapter={data.adapter} number={data.version} onAgain={onAgain} />
      )}
    </div>
  );
}

type Icon = "busy" | "good" | "bad";

const ICONS: Record<Upload["state"], Icon> = {
  arriving: "busy",
  received: "busy",
  validating: "busy",
  refused: "bad",
  accepted: "good",
  cancelled: "bad",
};
const HEADINGS: Record<Upload["state"], string> = {
  arriving: "Uploading…",
  received: "Received, waiting for validation",
  validating: "Validating names, shapes and values…",
  refused: "Refused",
  accepted: "Accepted",
  cancelled: "Cancelled",
};

function heading({ state, fetched_bytes: fetched, bytes: total }: Upload): string {
  if (fetched == null) return HEADINGS[state];
  if (state === "received")
    return fetched > 0 ? `Waiting; ${bytes(fetched)} received; the fetch will resume from there` : "Queued";
  return total > 0 ? `Fetching, ${percent(fetched, total)} of ${bytes(total)}…` : `Fetching, ${bytes(fetched)}…`;
}

function CancelUpload({ id }: { id: string }) {
  const cancel = useCancelUpload(useTenant());
  return (
    <Button size="sm" busy={cancel.isPending} onClick={() => cancel.mutate(id, { onError: toast.bad })}>
      Cancel
    </Button>
  );
}

function StepIcon({ state }: { state: Icon }) {
  if (state === "busy") return <LoaderCircle className="size-4 animate-spin text-blue-text" aria-hidden />;
  if (state === "bad") return <CircleAlert className="size-4 text-danger-text" aria-hidden />;
  return <Check className="size-4 text-accent-text" aria-hidden />;
}

function Validation({ upload }: { upload: Upload }) {
  const { report, reason } = upload;
  return (
    <div aria-live="polite" className="grid gap-4 p-4">
      {reason && !report?.problems.length && <Reason upload={upload} />}
      {report ? <ValidationReportView report={report} /> : !reason && <Skeleton className="h-16 w-full" />}
    </div>
  );
}

/** A notice if an upload was refused without a report, waits for something, or contains nothing new. */
function Reason({ upload: { reason, state } }: { upload: Upload }) {
  if (!reason) return null;
  const refused = state === "refused";
  return (
    <div
      data-testid={refused ? "validation-report" : undefined}
      data-ok={refused ? false : undefined}
      className={refused ? "rounded-lg bg-danger-soft px-3.5 py-3 text-sm" : "rounded-lg bg-fill px-3.5 py-3 text-sm"}
    >
      <p className={refused ? "font-medium text-danger-text" : "font-medium"}>{reason.message}</p>
      <p className="mt-0.5 text-ink-2">{reason.fix}</p>
    </div>
  );
}

function StagingCard({ adapter, number, onAgain }: { adapter: string; number: number; onAgain: () => void }) {
  const { data: version, error, refetch } = useQuery(versionQuery(useTenant(), adapter, number));
  if (error) return <ErrorNotice error={error} onRetry={refetch} />;
  if (!version) return <Skeleton className="h-40 w-full" />;
  const live = version.aliases.includes("live");
  const icon: Icon = version.state === "ready" ? "good" : version.state === "failed" ? "bad" : "busy";
  return (
    <>
      <Card
        title={
          <span className="flex items-center gap-2">
            <StepIcon state={icon} /> {version.state === "ready" ? "Staged on the hosts" : "Staging on the hosts"}
          </span>
        }
        note={`${adapter}, version ${number}`}
      >
        <div className="grid gap-4 p-4">
          <BaseConfirmation version={version} />
          <EffectWarning version={version} />
          <EffectConfirmation adapter={adapter} version={version} live={live} />
          <Staging version={version} />
        </div>
      </Card>
      {version.state === "ready" && (
        <Ready model={live ? adapter : `${adapter}@v${number}`} adapter={adapter} onAgain={onAgain} />
      )}
    </>
  );
}

function Ready({ model, adapter, onAgain }: { model: string; adapter: string; onAgain: () => void }) {
  const tenant = useTenant();
  return (
    <Banner>
      <div className="w-full">
        <p className="font-semibold text-accent-text">{model} is ready</p>
        <p className="text-ink-2">It can now be used in the playground and at /v1/chat/completions.</p>
      </div>
      <Button variant="primary" asChild>
        <Link to="/t/$tenant/playground" params={{ tenant }} search={{ model }} data-testid="try-in-playground">
          <MessagesSquare />
          Open in playground
        </Link>
      </Button>
      <Button asChild>
        <Link to="/t/$tenant/adapters/$name" params={{ tenant, name: adapter }}>
          View adapter
        </Link>
      </Button>
      <Button variant="ghost" onClick={onAgain}>
        Upload another
      </Button>
    </Banner>
  );
}

function Banner({ children }: { children: ReactNode }) {
  return (
    <div role="status" className="flex gap-3 rounded-card border border-accent/30 bg-accent-soft p-4 text-sm">
      <PartyPopper className="mt-0.5 size-5 shrink-0 text-accent-text" aria-hidden />
      <div className="flex flex-wrap items-center gap-2.5">{children}</div>
    </div>
  );
}
