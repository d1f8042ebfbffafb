import type { Upload } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Progress } from "@/components/bars";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { ErrorNotice } from "@/components/notices";
import { RelativeTime } from "@/components/relative-time";
import { useTenant } from "@/features/session/queries";
import { bytes } from "@/lib/format";
import { receivedBytesQuery, uploadsQuery, useCancelUpload } from "./queries";

/** The uploads that were interrupted. It is hidden if there are none. */
export function UnfinishedUploads() {
  const { data, error, refetch } = useQuery(uploadsQuery(useTenant()));
  const arriving = data?.filter(({ state }) => state === "arriving") ?? [];
  if (error) return <ErrorNotice error={error} onRetry={refetch} />;
  if (arriving.length === 0) return null;
  return (
    <Card
      title="Unfinished uploads"
      note="To resume an upload, choose the same files again with the same name in the same browser."
    >
      <ul className="divide-y">
        {arriving.map((upload) => (
          <UnfinishedUpload key={upload.id} upload={upload} />
        ))}
      </ul>
    </Card>
  );
}

function UnfinishedUpload({ upload }: { upload: Upload }) {
  const tenant = useTenant();
  const { data: received } = useQuery(receivedBytesQuery(tenant, upload.id));
  const cancel = useCancelUpload(tenant);
  return (
    <li className="grid gap-2 px-4 py-3">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1 text-sm">
        <span className="min-w-0 truncate font-medium">{upload.adapter}</span>
        <span className="tnum text-xs text-ink-3">
          {received === undefined ? bytes(upload.bytes) : `${bytes(received)} of ${bytes(upload.bytes)}`} · started{" "}
          <RelativeTime at={upload.created_at} /> by {upload.created_by ?? "an API key"}
        </span>
        <Button
          size="sm"
          className="ml-auto"
          busy={cancel.isPending}
          aria-label={`Cancel the upload of ${upload.adapter}`}
          onClick={() => cancel.mutate(upload.id)}
        >
          Cancel
        </Button>
      </div>
      {received !== undefined && (
        <Progress label={`Received of ${upload.adapter}`} value={received} max={upload.bytes} />
      )}
      <ErrorNotice error={cancel.error} />
    </li>
  );
}
