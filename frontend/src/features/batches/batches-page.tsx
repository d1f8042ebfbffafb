import { getRouteApi } from "@tanstack/react-router";
import { Download, Layers, Plus } from "lucide-react";
import { type ReactNode, useState } from "react";
import type { Batch, StoredFile } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Status, type Tone } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { CopyButton } from "@/components/code-block";
import { ExpandableRow } from "@/components/expandable-row";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { Pager } from "@/components/pager";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { bytes, fullTime, number } from "@/lib/format";
import { FilesCard } from "./files-card";
import { NewBatch } from "./new-batch";
import { batchErrorsQuery, batchesQuery, contentPath, isOpen, ROWS, useBatchActions } from "./queries";
import type { BatchesSearch } from "./search";

const STATES: Record<Batch["state"], { tone: Tone; label: string; live?: boolean }> = {
  validating: { tone: "blue", label: "Checking lines", live: true },
  in_progress: { tone: "blue", label: "Running", live: true },
  finalizing: { tone: "blue", label: "Writing results", live: true },
  completed: { tone: "green", label: "Completed" },
  failed: { tone: "danger", label: "Failed" },
  expired: { tone: "amber", label: "Expired" },
  cancelling: { tone: "amber", label: "Cancelling", live: true },
  cancelled: { tone: "neutral", label: "Cancelled" },
};

const route = getRouteApi("/t/$tenant/batches");

export function BatchesPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const show = (change: BatchesSearch) =>
    void navigate({ search: (now) => ({ ...now, ...change }), replace: true, resetScroll: false });
  const { data, error, refetch } = useQuery(batchesQuery(useTenant(), search.page ?? 0));
  const adding = search.add ?? false;
  const setAdding = (open: boolean) => show({ add: open || undefined });
  const may = useCan("keys.write");
  const add = may && (
    <Button variant="primary" onClick={() => setAdding(true)} data-testid="new-batch">
      <Plus /> New batch
    </Button>
  );
  return (
    <Page
      title="Batches"
      note="Files of requests that run at a separate price within one day, when the GPUs are otherwise idle."
      actions={data?.total ? add : null}
    >
      <div className="grid gap-4">
        <ErrorNotice error={error} onRetry={refetch} />
        {!error && !data && (
          <Card>
            <SkeletonRows rows={3} />
          </Card>
        )}
        {data && <Batches data={data} add={add} search={search} onSearch={show} />}
        <FilesCard page={search.files} onPage={(files) => show({ files })} />
      </div>
      {adding && <NewBatch onClose={() => setAdding(false)} />}
    </Page>
  );
}

interface BatchesProps {
  data: { rows: Batch[]; total: number };
  add: ReactNode;
  search: BatchesSearch;
  onSearch: (change: BatchesSearch) => void;
}

function Batches({ data: { rows: batches, total }, add, search, onSearch }: BatchesProps) {
  return (
    <Card>
      {total === 0 && (
        <Empty icon={<Layers />} title="No batches yet" action={add}>
          Send thousands of requests that are not urgent as one file: here, with the <code>lorikeet batches</code>{" "}
          command, or with any OpenAI client.
        </Empty>
      )}
      <ul className="divide-y" aria-label="Batches">
        {batches.map((batch) => (
          <Row
            key={batch.id}
            batch={batch}
            open={batch.id === search.batch}
            onOpen={(open) => onSearch({ batch: open ? batch.id : undefined })}
          />
        ))}
      </ul>
      <Pager
        label="Pages of batches"
        page={search.page}
        size={ROWS}
        total={total}
        onPage={(page) => onSearch({ page, batch: undefined })}
      />
    </Card>
  );
}

function Row({ batch, open, onOpen }: { batch: Batch; open: boolean; onOpen: (open: boolean) => void }) {
  return (
    <ExpandableRow
      open={open}
      onToggle={() => onOpen(!open)}
      className="min-h-row flex-wrap gap-x-4 gap-y-1 px-4 py-2 sm:flex-nowrap"
      details={<Detail batch={batch} />}
    >
      <span className="min-w-0 flex-1 basis-40 truncate font-medium" title={batch.input_file?.name}>
        {batch.input_file?.name ?? "deleted file"}
      </span>
      <span className="sm:w-28">
        <Status {...STATES[batch.state]} />
      </span>
      <Progress batch={batch} />
      <span className="ml-auto text-right text-xs whitespace-nowrap text-ink-3 sm:w-20">
        <RelativeTime at={batch.created_at} />
      </span>
    </ExpandableRow>
  );
}

function Progress({ batch: { state, counts, bad_lines } }: { batch: Batch }) {
  if (state === "failed")
    return (
      <span className="w-44 shrink-0 text-xs sm:max-lg:w-36 text-danger-text">
        {bad_lines === 1 ? "1 problem in the file" : `${number(bad_lines)} problems in the file`}
      </span>
    );
  const done = counts.completed + counts.failed;
  return (
    <span className="w-44 shrink-0 sm:max-lg:w-36">
      <span className="tnum flex justify-between text-xs text-ink-2">
        <span>
          {number(done)} of {number(counts.total)}
        </span>
        {counts.failed > 0 && <span className="text-danger-text">{number(counts.failed)} failed</span>}
      </span>
      <span aria-hidden className="mt-1 flex h-1 overflow-hidden rounded-full bg-fill-2">
        <span className="bg-accent" style={{ width: share(counts.completed, counts.total) }} />
        <span className="bg-danger" style={{ width: share(counts.failed, counts.total) }} />
      </span>
    </span>
  );
}

const share = (part: number, total: number) => (total > 0 ? `${(100 * part) / total}%` : "0%");

function Detail({ batch }: { batch: Batch }) {
  const may = useCan("infer");
  return (
    <div className="grid gap-3 border-t bg-fill/40 px-4 py-3.5 text-sm">
      <dl className="grid gap-x-6 gap-y-1.5 sm:grid-cols-[auto_1fr]">
        <Fact label="Batch">
          <code className="font-mono text-xs break-all">{batch.id}</code>{" "}
          <CopyButton text={batch.id} label="Copy the batch’s id" />
        </Fact>
        <Fact label="Endpoint">
          <code className="font-mono text-xs">{batch.endpoint}</code>
        </Fact>
        <Fact label="API key">{batch.key}</Fact>
        <Fact label={isOpen(batch) ? "Expires" : "Sent"}>
          {fullTime(isOpen(batch) ? batch.expires_at : batch.created_at)}
        </Fact>
      </dl>
      {batch.bad_lines > 0 && <LineErrors batch={batch.id} />}
      <div className="flex flex-wrap gap-2">
        {may && <Downloads batch={batch} />}
        {may && isOpen(batch) && batch.state !== "cancelling" && <Cancel batch={batch} />}
        {!may && <p className="text-xs text-ink-3">Developers of the tenant can download and cancel it.</p>}
      </div>
    </div>
  );
}

function Fact({ label, children }: { label: string; children: ReactNode }) {
  return (
    <>
      <dt className="text-ink-3">{label}</dt>
      <dd className="flex min-w-0 items-center gap-1">{children}</dd>
    </>
  );
}

function Downloads({ batch }: { batch: Batch }) {
  const files: [label: string, file: StoredFile | null][] = [
    ["Results", batch.output_file],
    ["Errors", batch.error_file],
    ["Requests", batch.input_file],
  ];
  return files.map(([label, file]) => file && <DownloadLink key={label} label={label} file={file} />);
}

function DownloadLink({ label, file }: { label: string; file: StoredFile }) {
  return (
    <Button asChild size="sm">
      <a href={contentPath(useTenant(), file.id)} download={file.name}>
        <Download /> {label} <span className="text-ink-3">{bytes(file.bytes)}</span>
      </a>
    </Button>
  );
}

function LineErrors({ batch }: { batch: string }) {
  const { data, error, refetch } = useQuery(batchErrorsQuery(useTenant(), batch));
  if (error) return <ErrorNotice error={error} onRetry={refetch} />;
  if (!data) return <SkeletonRows rows={1} />;
  return (
    <ol
      aria-label="Problems in the file"
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
      tabIndex={0}
      className="scroll-quiet grid max-h-56 gap-1.5 overflow-y-auto rounded-lg border bg-surface p-3 text-xs"
    >
      {data.map(({ line, message, param }) => (
        <li key={`${line}.${param}`} className="flex gap-3">
          <span className="tnum w-16 shrink-0 text-ink-3">{line ? `line ${number(line)}` : "file"}</span>
          <span className="min-w-0 break-words text-danger-text">{message}</span>
        </li>
      ))}
    </ol>
  );
}

function Cancel({ batch }: { batch: Batch }) {
  const [asking, setAsking] = useState(false);
  const { cancel } = useBatchActions(useTenant());
  const confirm = () =>
    cancel.mutate(batch.id, {
      onSuccess: () => {
        toast.good("The batch is being cancelled");
        setAsking(false);
      },
    });
  return (
    <>
      <Button size="sm" variant="danger" onClick={() => setAsking(true)}>
        Cancel batch
      </Button>
      <Confirm
        open={asking}
        onClose={() => setAsking(false)}
        title="Cancel this batch?"
        description="Requests that have run are billed and included in the results. The remaining requests do not run and are listed in the error file."
        action="Cancel batch"
        write={cancel}
        onConfirm={confirm}
      />
    </>
  );
}
