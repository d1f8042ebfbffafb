import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { Upload } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Progress } from "@/components/bars";
import { Pager } from "@/components/pager";
import { useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { bytes } from "@/lib/format";
import { isUndecided, uploadsQuery } from "./queries";

const DAY_MS = 86_400_000;
const MAX_REFUSED = 5;
/** Number of imports per page. */
const PAGE = 8;
/** Number of uploads that the server lists, the newest. */
const LISTED = 50;

/**
 * The running and waiting imports, and those refused within a day. Requests and followed branches also start imports.
 */
export function RecentImports() {
  const { data } = useQuery(uploadsQuery(useTenant()));
  const [since] = useState(() => Date.now() - DAY_MS);
  const [chosen, choose] = useState(0);
  const imports = worthShowing(data ?? [], since);
  if (imports.length === 0) return null;
  const page = Math.min(chosen, Math.ceil(imports.length / PAGE) - 1); // imports may have ended since the page was selected
  return (
    <div className="border-t">
      <ul aria-label="Imports" className="grid gap-3 px-4 py-3 text-sm">
        {imports.slice(page * PAGE, (page + 1) * PAGE).map((upload) => (
          <Import key={upload.id} upload={upload} />
        ))}
      </ul>
      {data && data.length >= LISTED && (
        <p className="px-4 pb-3 text-xs text-ink-3">
          Of the newest {LISTED} uploads. Older imports continue but are not listed.
        </p>
      )}
      <Pager
        label="Pages of imports"
        page={page}
        size={PAGE}
        total={imports.length}
        onPage={(next = 0) => choose(next)}
      />
    </div>
  );
}

function Import({ upload }: { upload: Upload }) {
  const tenant = useTenant();
  return (
    <li className="grid gap-1.5">
      <div className="flex flex-wrap items-baseline justify-between gap-x-3">
        <Link
          to="/t/$tenant/upload"
          params={{ tenant }}
          search={{ id: upload.id }}
          className="min-w-0 font-mono text-xs break-all underline"
        >
          {upload.imported_from?.name}
          {upload.imported_from?.revision && `@${upload.imported_from.revision}`}
        </Link>
        <span className="tnum text-xs text-ink-3">{stateOf(upload)}</span>
      </div>
      {upload.reason && (
        <p
          title={upload.reason.message}
          className={cn("line-clamp-3 break-words", upload.state === "refused" ? "text-danger-text" : "text-ink-2")}
        >
          {upload.reason.message}
        </p>
      )}
      {upload.fetched_bytes != null && upload.bytes > 0 && (
        <Progress label={`Fetched of ${upload.adapter}`} value={upload.fetched_bytes} max={upload.bytes} />
      )}
    </li>
  );
}

function stateOf({ state, fetched_bytes: fetched, bytes: total }: Upload): string {
  if (state === "refused") return "refused";
  if (fetched == null) return "being checked";
  if (state === "received") return "waiting";
  return total > 0 ? `${bytes(fetched)} of ${bytes(total)}` : bytes(fetched);
}

/**
 * Returns the undecided imports, running ones first, and the newest refusal of each source that was not imported since.
 */
function worthShowing(uploads: Upload[], since: number): Upload[] {
  const known = new Set<string>();
  const newest = uploads.filter(({ imported_from: from }) => {
    if (!from) return false;
    const source = `${from.name}@${from.revision ?? ""}`;
    return !known.has(source) && known.add(source);
  });
  const refused = newest
    .filter(({ state, updated_at }) => state === "refused" && Date.parse(updated_at) > since)
    .slice(0, MAX_REFUSED);
  const undecided = uploads.filter((upload) => upload.imported_from && isUndecided(upload));
  return [
    ...undecided.filter(({ state }) => state !== "received"),
    ...undecided.filter(({ state }) => state === "received"),
    ...refused,
  ];
}
