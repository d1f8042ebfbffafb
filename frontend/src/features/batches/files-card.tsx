import { Download, Trash2 } from "lucide-react";
import { useState } from "react";
import type { StoredFile } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { Pager } from "@/components/pager";
import { HiddenTh, Table, Td, Tr } from "@/components/table";
import { useCan, useTenant } from "@/features/session/queries";
import { bytes, fullTime } from "@/lib/format";
import { contentPath, filesQuery, ROWS, useBatchActions } from "./queries";

const PURPOSES: Record<StoredFile["purpose"], string> = { batch: "Requests", batch_output: "Results" };

export function FilesCard({ page, onPage }: { page?: number; onPage: (page?: number) => void }) {
  const { data, error, refetch } = useQuery(filesQuery(useTenant(), page ?? 0));
  return (
    <Card title="Files" note="Files contain prompts and answers, and are deleted when they expire">
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={2} />}
      {data?.total === 0 && <p className="px-4 py-6 text-center text-sm text-ink-3">No files.</p>}
      {data && data.total > 0 && (
        <>
          <Files files={data.rows} />
          <Pager label="Pages of files" page={page} size={ROWS} total={data.total} onPage={onPage} />
        </>
      )}
    </Card>
  );
}

function Files({ files }: { files: StoredFile[] }) {
  const may = useCan("infer");
  return (
    <Table
      label="Files"
      columns={[
        "Name",
        ["Contents", "max-sm:hidden"],
        ["Size", "text-right"],
        ["Expires", "max-md:hidden"],
        <HiddenTh label="Actions" />,
      ]}
    >
      {files.map((file) => (
        <Tr key={file.id}>
          <Td className="max-w-72 truncate font-medium max-sm:max-w-36" title={file.name}>
            {file.name}
          </Td>
          <Td className="max-sm:hidden">{PURPOSES[file.purpose]}</Td>
          <Td className="tnum text-right">{bytes(file.bytes)}</Td>
          <Td className="max-md:hidden">{fullTime(file.expires_at)}</Td>
          <Td className="text-right">{may && <Actions file={file} />}</Td>
        </Tr>
      ))}
    </Table>
  );
}

function Actions({ file }: { file: StoredFile }) {
  const tenant = useTenant();
  const [asking, setAsking] = useState(false);
  const { removeFile } = useBatchActions(tenant);
  return (
    <span className="flex justify-end gap-1">
      <Button asChild size="icon" variant="ghost">
        <a href={contentPath(tenant, file.id)} download={file.name} aria-label={`Download ${file.name}`}>
          <Download />
        </a>
      </Button>
      <Button size="icon" variant="ghost" aria-label={`Delete ${file.name}`} onClick={() => setAsking(true)}>
        <Trash2 />
      </Button>
      <Confirm
        open={asking}
        onClose={() => setAsking(false)}
        title={`Delete ${file.name}?`}
        description="This cannot be undone. A file used by a running batch is kept until the batch ends."
        action="Delete file"
        write={removeFile}
        onConfirm={() => removeFile.mutate(file.id, { onSuccess: () => setAsking(false) })}
      />
    </span>
  );
}
