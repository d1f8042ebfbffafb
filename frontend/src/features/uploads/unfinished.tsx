import { useQuery } from "@tanstack/react-query";
import { asApiError } from "@/api/errors";
import type { Upload } from "@/api/types";
import { Progress } from "@/components/bars";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ErrorNotice } from "@/components/notices";
import { Ago } from "@/components/time";
import { useTenant } from "@/features/session/queries";
import { bytes } from "@/lib/format";
import { arrivedQuery, uploadsQuery, useGiveUp } from "./queries";

/** Uploads that began and did not end. Nothing is shown when there are none. */
export function Unfinished() {
  const { data } = useQuery(uploadsQuery(useTenant()));
  const arriving = data?.filter(({ state }) => state === "arriving") ?? [];
  if (arriving.length === 0) return null;
  return (
    <Card>
      <CardHeader title="Not finished" note="Choose the same files again, under the same name and in the same browser, and they go on where they stopped." />
      <ul className="divide-y">
        {arriving.map((upload) => (
          <Arriving key={upload.id} upload={upload} />
        ))}
      </ul>
    </Card>
  );
}

function Arriving({ upload }: { upload: Upload }) {
  const tenant = useTenant();
  const { data: arrived } = useQuery(arrivedQuery(tenant, upload.id));
  const giveUp = useGiveUp(tenant);
  return (
    <li className="grid gap-2 px-4 py-3">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1 text-sm">
        <span className="min-w-0 truncate font-medium">{upload.adapter}</span>
        <span className="tnum text-xs text-ink-3">
          {arrived === undefined ? bytes(upload.bytes) : `${bytes(arrived)} of ${bytes(upload.bytes)}`} · begun <Ago at={upload.created_at} /> by{" "}
          {upload.created_by ?? "an API key"}
        </span>
        <Button size="sm" className="ml-auto" busy={giveUp.isPending} aria-label={`Give up the upload of ${upload.adapter}`} onClick={() => giveUp.mutate(upload.id)}>
          Give up
        </Button>
      </div>
      {arrived !== undefined && <Progress label={`Arrived of ${upload.adapter}`} value={arrived} max={upload.bytes} />}
      {giveUp.error && <ErrorNotice error={asApiError(giveUp.error)} />}
    </li>
  );
}
