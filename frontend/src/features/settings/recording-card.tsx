import { zodResolver } from "@hookform/resolvers/zod";
import { useState } from "react";
import { useForm } from "react-hook-form";
import type { Recording } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Status } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { toast } from "@/components/toast";
import { recordingQuery, useDeleteTranscripts, useSetRecording } from "@/features/requests/queries";
import { useCan, useTenant } from "@/features/session/queries";
import { plural } from "@/lib/format";
import { z } from "@/lib/zod";

const SCHEMA = z.object({
  days: z.string().check(z.regex(/^\s*([1-9]\d?|[12]\d\d|3[0-5]\d|36[0-5])\s*$/, "Days from 1 to 365.")),
});

/** The setting whether prompts and answers are stored. It is off unless an admin enables it. */
export function RecordingCard() {
  const { data, error, refetch } = useQuery(recordingQuery(useTenant()));
  const may = useCan("transcripts.write");
  return (
    <Card
      title="Prompts and answers"
      note="Stores the text of requests in addition to their timings"
      actions={
        data && (
          <Status
            tone={data.enabled ? "amber" : "neutral"}
            label={data.enabled ? `kept for ${plural(data.days, "day")}` : "not kept"}
          />
        )
      }
    >
      <div className="grid gap-4 p-4 text-sm">
        <p className="max-w-prose text-ink-2">
          While recording is on, the prompt and answer of every request of this tenant are stored, up to 32,768
          characters each. Admins and owners can read them in the details of a request. They are deleted after the
          number of days below, and never appear in usage, exports, webhooks or logs.
        </p>
        <ErrorNotice error={error} onRetry={refetch} />
        {!error && !data && <Skeleton className="h-9 w-64" />}
        {data && may && <Choose key={`${data.enabled}.${data.days}`} recording={data} />}
        {data && !may && <p className="text-ink-3">Admins of the tenant can change this.</p>}
      </div>
    </Card>
  );
}

function Choose({ recording }: { recording: Recording }) {
  const set = useSetRecording(useTenant());
  const form = useForm<z.infer<typeof SCHEMA>>({
    resolver: zodResolver(SCHEMA),
    defaultValues: { days: String(recording.days) },
  });
  const save = (enabled: boolean) =>
    form.handleSubmit(({ days }) =>
      set.mutate(
        { enabled, days: Number(days) },
        {
          onSuccess: () => toast.good(enabled ? "Recording enabled" : "Recording disabled"),
        },
      ),
    );
  return (
    <form onSubmit={save(recording.enabled)} noValidate className="grid gap-3">
      <ErrorNotice error={set.error} />
      <div className="flex flex-wrap items-start gap-3">
        <div className="w-40">
          <Field label="Days" hint="Days after which the text is deleted." error={form.formState.errors.days?.message}>
            <Input {...form.register("days")} inputMode="numeric" autoComplete="off" data-testid="recording-days" />
          </Field>
        </div>
        <div className="flex flex-wrap gap-2 pt-6.5">
          {recording.enabled && <Button type="submit">Save days</Button>}
          <Button
            variant={recording.enabled ? "secondary" : "primary"}
            busy={set.isPending}
            onClick={() => void save(!recording.enabled)()}
            data-testid="recording-toggle"
          >
            {recording.enabled ? "Disable recording" : "Enable recording"}
          </Button>
          <DeleteAll />
        </div>
      </div>
    </form>
  );
}

function DeleteAll() {
  const [asking, setAsking] = useState(false);
  const remove = useDeleteTranscripts(useTenant());
  const confirm = () =>
    remove.mutate(undefined, {
      onSuccess: () => {
        toast.good("Deleted every prompt and answer");
        setAsking(false);
      },
    });
  return (
    <>
      <Button variant="danger" onClick={() => setAsking(true)} data-testid="recording-delete">
        Delete stored text
      </Button>
      <Confirm
        open={asking}
        onClose={() => setAsking(false)}
        title="Delete every prompt and answer?"
        description="Deletes all stored text of this tenant's requests. Usage and timings are kept. The setting for new requests does not change."
        action="Delete all text"
        write={remove}
        onConfirm={confirm}
      />
    </>
  );
}
