import { getRouteApi } from "@tanstack/react-router";
import { CalendarClock, Download, FileSpreadsheet } from "lucide-react";
import { useState } from "react";
import type { ExportSchedule, Export } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Status, type Tone } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { FormDialog } from "@/components/dialog";
import { Field, Select } from "@/components/field";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { HiddenTh, Table, Td, Tr } from "@/components/table";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { bytes, daySpan, number } from "@/lib/format";
import {
  exportsQuery,
  type Grain,
  schedulesQuery,
  useAddSchedule,
  useDeleteSchedule,
  useRequestExport,
} from "./queries";

const STATES: Record<Export["state"], { tone: Tone; label: string; live?: boolean }> = {
  queued: { tone: "neutral", label: "Queued", live: true },
  running: { tone: "blue", label: "Running", live: true },
  ready: { tone: "green", label: "Ready" },
  failed: { tone: "danger", label: "Failed" },
};

const route = getRouteApi("/t/$tenant/usage");

export function ExportsCard() {
  const tenant = useTenant();
  const { data, error, refetch } = useQuery(exportsQuery(tenant));
  const { data: schedules, error: unscheduled, refetch: readSchedules } = useQuery(schedulesQuery(tenant));
  const { export: asking = false } = route.useSearch();
  const navigate = route.useNavigate();
  const setAsking = (open: boolean) =>
    void navigate({ search: (now) => ({ ...now, export: open || undefined }), replace: true, resetScroll: false });
  const may = useCan("exports.write");
  return (
    <Card
      title="Exports"
      note="Large usage tables as files, created in the background and kept for 90 days"
      actions={
        may && (
          <Button size="sm" onClick={() => setAsking(true)} data-testid="new-export">
            <FileSpreadsheet /> New export
          </Button>
        )
      }
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={2} />}
      {unscheduled && !error && <ErrorNotice error={unscheduled} onRetry={readSchedules} className="m-4" />}
      {schedules && schedules.length > 0 && <Schedules schedules={schedules} may={may} />}
      {data?.length === 0 && (
        <p className="px-4 py-6 text-center text-sm text-ink-3">
          No exports yet. For small tables, use “Download CSV” above.
        </p>
      )}
      {data && data.length > 0 && <Exports tenant={tenant} exports={data} />}
      {asking && <NewExport onClose={() => setAsking(false)} />}
    </Card>
  );
}

function Schedules({ schedules, may }: { schedules: ExportSchedule[]; may: boolean }) {
  const remove = useDeleteSchedule(useTenant());
  return (
    <ul className="divide-y border-b">
      {schedules.map((schedule) => (
        <li key={schedule.id} className="flex min-h-row items-center gap-3 px-4 text-sm">
          <CalendarClock className="size-4 text-ink-3" aria-hidden />
          Every {schedule.cadence} once it is over, by {schedule.grain}
          {may && (
            <Button
              size="sm"
              variant="ghost"
              className="ml-auto"
              aria-label={`Stop exporting every ${schedule.cadence} by ${schedule.grain}`}
              onClick={() => remove.mutate(schedule.id, { onError: toast.bad })}
            >
              Stop
            </Button>
          )}
        </li>
      ))}
    </ul>
  );
}

function Exports({ tenant, exports }: { tenant: string; exports: Export[] }) {
  return (
    <Table
      label="Exports"
      columns={[
        "Days",
        "Rows by",
        "State",
        ["Rows", "text-right"],
        ["Size", "text-right"],
        "Requested",
        <HiddenTh label="Download" />,
      ]}
    >
      {exports.map((one) => (
        <Tr key={one.id}>
          <Td className="font-medium">{daySpan(one.first, one.last)}</Td>
          <Td>{one.grain}</Td>
          <Td>
            <Status {...STATES[one.state]} />
          </Td>
          <Td className="tnum text-right">{one.state === "ready" ? number(one.lines) : "–"}</Td>
          <Td className="tnum text-right">{one.state === "ready" ? bytes(one.bytes) : "–"}</Td>
          <Td>
            <RelativeTime at={one.created_at} />
            {one.scheduled && <span className="text-ink-3"> · scheduled</span>}
          </Td>
          <Td className="text-right">
            {one.state === "ready" && (
              <Button asChild size="sm" variant="ghost">
                <a
                  href={`/api/tenants/${tenant}/exports/${one.id}/file`}
                  download={one.file_name}
                  aria-label={`Download ${one.file_name}`}
                >
                  <Download /> Download
                </a>
              </Button>
            )}
          </Td>
        </Tr>
      ))}
    </Table>
  );
}

const TIMES = [
  ["7", "The last 7 days"],
  ["30", "The last 30 days"],
  ["90", "The last 90 days"],
  ["366", "The last year"],
  ["week", "Every week from now on"],
  ["month", "Every month from now on"],
] as const;

function NewExport({ onClose }: { onClose: () => void }) {
  const tenant = useTenant();
  const request = useRequestExport(tenant);
  const schedule = useAddSchedule(tenant);
  const [time, setTime] = useState<(typeof TIMES)[number][0]>("30");
  const [grain, setGrain] = useState<Grain>("day");
  const error = request.error ?? schedule.error;
  const submit = () => {
    if (time === "week" || time === "month") schedule.mutate({ cadence: time, grain }, { onSuccess: onClose });
    else request.mutate({ days: Number(time), grain }, { onSuccess: onClose });
  };
  return (
    <FormDialog
      onClose={onClose}
      title="New export"
      description="A gzip-compressed CSV of usage by adapter version, key and outcome."
      write={{ error, isPending: request.isPending || schedule.isPending }}
      action={time === "week" || time === "month" ? "Schedule" : "Export"}
      testId="export-submit"

      onSubmit={() => {
        submit();
      }}
    >
      <Field label="Period">
        <Select value={time} onChange={(event) => setTime(event.target.value as typeof time)} options={TIMES} />
      </Field>
      <Field label="One row per">
        <Select value={grain} onChange={(event) => setGrain(event.target.value as Grain)} options={["day", "hour"]} />
      </Field>
    </FormDialog>
  );
}
