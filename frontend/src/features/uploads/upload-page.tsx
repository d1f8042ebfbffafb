import { zodResolver } from "@hookform/resolvers/zod";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { Pause, Play, Upload as UploadIcon, X } from "lucide-react";
import { lazy, Suspense, useDeferredValue, useState } from "react";
import { useForm, useWatch } from "react-hook-form";
import type { Progress as Numbers } from "@/api/send-upload";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Progress } from "@/components/bars";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Field, Input } from "@/components/field";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { adapterSearchQuery, modelsQuery } from "@/features/adapters/queries";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { bytes, eta, percent, rate } from "@/lib/format";
import type { Selection } from "@/lib/selection";
import { z } from "@/lib/zod";
import { lazyPart } from "@/lib/lazy-part";
import { BaseChoice } from "./base-choice";
import { Dropzone } from "./dropzone";
import { suggestName } from "./suggest-name";
import { type UploadStatus, useUpload } from "./use-upload";

// The next part of the page is loaded while the upload runs.
const UploadProgress = lazy(() =>
  import("./upload-progress").then(({ UploadProgress }) => ({ default: UploadProgress })),
);
const InspectionCard = lazyPart(() => import("./inspection-card"), "InspectionCard");
const ImportCard = lazyPart(() => import("./import-card"), "ImportCard");
const SupportedAdapters = lazyPart(() => import("./supported-adapters"), "SupportedAdapters");
const UnfinishedUploads = lazyPart(() => import("./unfinished-uploads"), "UnfinishedUploads");

export function UploadPage() {
  const { id } = useSearch({ from: "/t/$tenant/upload" });
  const tenant = useTenant();
  const navigate = useNavigate();
  const show = (upload: string | undefined) =>
    void navigate({ to: "/t/$tenant/upload", params: { tenant }, search: { id: upload } });
  return (
    <Page
      title="Upload adapter"
      note="An adapter is checked in your browser, validated against the base model by the server, and staged on all hosts."
    >
      <div className="grid items-start gap-5 lg:grid-cols-[minmax(0,1fr)_19rem]">
        <Suspense fallback={<Skeleton className="h-56 w-full" />}>
          {id ? <UploadProgress id={id} onAgain={() => show(undefined)} /> : <Ways onSent={show} />}
        </Suspense>
        <Suspense fallback={<Skeleton className="h-56 w-full" />}>
          <SupportedAdapters />
        </Suspense>
      </div>
    </Page>
  );
}

function Ways({ onSent }: { onSent: (id: string) => void }) {
  return (
    <div className="grid gap-5">
      <NewUpload onSent={onSent} />
      {useCan("adapters.write") && (
        <Suspense fallback={<Skeleton className="h-56 w-full" />}>
          <ImportCard onSent={onSent} />
        </Suspense>
      )}
    </div>
  );
}

const NAME_RULE =
  "Use 1–64 lower-case letters, digits, dots, hyphens and underscores, starting and ending with a letter or digit.";
const SCHEMA = z.object({
  name: z.string().check(z.regex(/^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$/, NAME_RULE)),
  description: z.string().check(z.maxLength(500, "At most 500 characters.")),
});
type Form = z.infer<typeof SCHEMA>;

function NewUpload({ onSent }: { onSent: (id: string) => void }) {
  const tenant = useTenant();
  const { name: prefilled } = useSearch({ from: "/t/$tenant/upload" });
  const { selection, inspecting, choose } = useSelection();
  const { sent, error, send, ...transfer } = useUpload();
  const form = useForm<Form>({
    resolver: zodResolver(SCHEMA),
    defaultValues: { name: prefilled ?? "", description: "" },
  });
  const [base, setBase] = useState("");

  const name = useWatch({ control: form.control, name: "name" });

  const take = (files: File[]) => {
    if (files.length === 0) return;
    choose(files);
    if (!form.getValues("name")) form.setValue("name", suggestName(files));
  };
  const submit = form.handleSubmit((values) => {
    if (!selection?.files.length) return;
    send({ tenant, ...values, base, files: selection.files }, onSent);
    // The button is replaced by the progress.
    document.getElementById("main")?.focus({ preventScroll: true });
  });

  if (!useCan("adapters.write")) return <NotAllowed />;
  return (
    <form onSubmit={submit} noValidate className="grid gap-5">
      {!sent && <Dropzone onFiles={take} compact={selection !== null} />}
      {inspecting && <Skeleton className="h-32 w-full" />}
      <Suspense fallback={<Skeleton className="h-32 w-full" />}>
        {selection && !inspecting && <InspectionCard selection={selection} />}
      </Suspense>
      <Card>
        <fieldset disabled={sent !== null} className="field-pairs p-4">
          <legend className="sr-only">Name and description</legend>
          <Field label="Name" hint={<NameHint name={name} />} error={form.formState.errors.name?.message}>
            <Input
              {...form.register("name")}
              autoComplete="off"
              spellCheck={false}
              placeholder="support"
              className="font-mono"
              data-testid="upload-name"
            />
          </Field>
          <Field
            label="Description"
            hint="Optional. Shown in lists."
            error={form.formState.errors.description?.message}
          >
            <Input {...form.register("description")} autoComplete="off" placeholder="Answers tickets of the web shop" />
          </Field>
          <BaseChoice value={base} onChange={setBase} />
        </fieldset>
      </Card>
      {error && <ErrorNotice error={error} />}
      {sent ? <Sending sent={sent} {...transfer} /> : <Submit selection={selection} />}
      <Suspense>{!sent && <UnfinishedUploads />}</Suspense>
    </form>
  );
}

function NotAllowed() {
  return (
    <Card className="p-6 text-sm text-ink-2">
      Your role does not allow uploads. Ask an owner or admin of this tenant for the developer role.
    </Card>
  );
}

/** Inspects the selected files. A later selection cancels an inspection that still runs. */
function useSelection() {
  const { data: models } = useQuery(modelsQuery(useTenant()));
  const [state, setState] = useState<{ files: File[]; selection: Selection | null } | null>(null);
  const bases = models?.filter(({ kind }) => kind === "base") ?? [];
  const base = bases.length === 1 ? bases[0]?.id : undefined; // if several are served, the server finds the right one
  const choose = (files: File[]) => {
    setState({ files, selection: null });
    void import("@/lib/selection")
      .then(({ inspectSelection }) => inspectSelection(files, base))
      .then((selection) => setState((current) => (current?.files === files ? { files, selection } : current)))
      // A newer console was installed, and the part that inspects is gone: the notice asks to reload the page.
      .catch((cause: Error) => {
        setState((current) => (current?.files === files ? null : current));
        toast.bad(cause);
      });
  };
  return { selection: state?.selection ?? null, inspecting: state !== null && state.selection === null, choose };
}

function NameHint({ name }: { name: string }) {
  // The server receives the complete name first.
  const { data } = useQuery({ ...adapterSearchQuery(useTenant(), useDeferredValue(name), 1), enabled: name !== "" });
  const existing = data?.find((adapter) => adapter.name === name);
  if (existing)
    return (
      <>
        Adds a version to {name}, which has {existing.versions_count}. The live version does not change until you change
        it.
      </>
    );
  return <>The value of “model” in requests.</>;
}

function Submit({ selection }: { selection: Selection | null }) {
  const blocked = !selection || selection.files.length === 0;
  const doubtful = selection?.findings.some(({ level }) => level === "error");
  return (
    <div className="flex flex-wrap items-center justify-end gap-3">
      {doubtful && !blocked && <p className="text-sm text-ink-2">The server will probably refuse this upload.</p>}
      <Button type="submit" variant={doubtful ? "secondary" : "primary"} disabled={blocked} data-testid="upload-submit">
        <UploadIcon /> {doubtful && !blocked ? "Upload anyway" : "Upload"}
      </Button>
    </div>
  );
}

interface SendingProps {
  sent: UploadStatus;
  pause: () => void;
  resume: () => void;
  cancel: () => void;
}

function Sending({ sent: { phase, progress }, pause, resume, cancel }: SendingProps) {
  const arrived = progress.sent >= progress.total && progress.total > 0;
  const paused = phase === "paused";
  return (
    <Card className="grid gap-3 p-4">
      <div className="flex items-center justify-between gap-3 text-sm">
        <p className="font-medium" aria-live="polite">
          {arrived ? "Waiting for the server…" : HEADINGS[phase]}{" "}
          {!arrived && <span aria-live="off">{percent(progress.sent, progress.total)}</span>}
        </p>
        <span className="flex gap-2">
          <Button size="sm" onClick={paused ? resume : pause} disabled={arrived && !paused}>
            {paused ? <Play /> : <Pause />} {paused ? "Resume" : "Pause"}
          </Button>
          <Button size="sm" onClick={cancel}>
            <X /> Cancel
          </Button>
        </span>
      </div>
      <Progress
        label="Upload"
        value={progress.sent}
        max={progress.total}
        className="h-2!"
        data-testid="upload-progress"
      />
      <p className="tnum text-xs text-ink-3">
        {bytes(progress.sent)} of {bytes(progress.total)}
        {phase === "sending" && !arrived && speed(progress)}
        {paused && " · received data is kept on the server for one day, even if you leave this page"}
      </p>
    </Card>
  );
}

const HEADINGS: Record<UploadStatus["phase"], string> = {
  sending: "Sending,",
  retrying: "Connection lost; retrying at",
  paused: "Paused at",
};

const speed = ({ rate: now, sent, total }: Numbers) =>
  now > 0 ? ` · ${rate(now)} · ${eta((total - sent) / now)}` : "";
