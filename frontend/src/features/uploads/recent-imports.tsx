import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { Upload } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Progress } from "@/components/bars";
import { useTenant } from "@/features/session/queries";
import { bytes } from "@/lib/format";
import { isUndecided, uploadsQuery } from "./queries";

const DAY_MS = 86_400_000;
const MOST_REFUSED = 5;

/** Imports that run or wait, and those that were refused within a day: requests and followed branches begin some, too. */
export function RecentImports() {
  const tenant = useTenant();
  const { data } = useQuery(uploadsQuery(tenant));
  const [since] = useState(() => Date.now() - DAY_MS);
  const shown = worthShowing(data ?? [], since);
  if (shown.length === 0) return null;
  return (
    <ul aria-label="Imports" className="grid gap-3 border-t px-4 py-3 text-sm">
      {shown.map((upload) => (
        <li key={upload.id} className="grid gap-1.5">
          <div className="flex flex-wrap items-baseline justify-between gap-x-3">
            <Link to="/t/$tenant/upload" params={{ tenant }} search={{ id: upload.id }} className="min-w-0 font-mono text-xs break-all underline">
              {upload.imported_from?.name}
              {upload.imported_from?.revision && `@${upload.imported_from.revision}`}
            </Link>
            <span className="tnum text-xs text-ink-3">{stateOf(upload)}</span>
          </div>
          {upload.reason && <p className={upload.state === "refused" ? "text-danger-text" : "text-ink-2"}>{upload.reason.message}</p>}
          {upload.fetched_bytes != null && upload.bytes > 0 && <Progress label={`Fetched of ${upload.adapter}`} value={upload.fetched_bytes} max={upload.bytes} />}
        </li>
      ))}
    </ul>
  );
}

function stateOf({ state, fetched_bytes: fetched, bytes: total }: Upload): string {
  if (state === "refused") return "refused";
  if (fetched == null) return "being checked";
  if (state === "received") return "waiting";
  return total > 0 ? `${bytes(fetched)} of ${bytes(total)}` : bytes(fetched);
}

/** All that are not decided, and the newest refusals: one of each source, unless it has been imported since. */
function worthShowing(uploads: Upload[], since: number): Upload[] {
  const known = new Set<string>();
  const newest = uploads.filter(({ imported_from: from }) => {
    if (!from) return false;
    const source = `${from.name}@${from.revision ?? ""}`;
    return !known.has(source) && known.add(source);
  });
  const refused = newest.filter(({ state, updated_at }) => state === "refused" && Date.parse(updated_at) > since).slice(0, MOST_REFUSED);
  return [...uploads.filter((upload) => upload.imported_from && isUndecided(upload)), ...refused];
}
