import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { type PointerEvent, useEffect, useId, useRef, useState } from "react";
import { api, unwrap } from "@/api/client";
import { asApiError } from "@/api/errors";
import type { HostPages, PageOwner } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { Table, Td, Th, Tr } from "@/components/table";
import { useTenant } from "@/features/session/queries";
import { bytes, milliseconds, number, percent } from "@/lib/format";

const pagesQuery = (tenant: string | null, host: string, agoS: number) =>
  queryOptions({
    queryKey: [...(tenant === null ? ["operator"] : ["t", tenant]), "host-pages", host, agoS],
    queryFn: () =>
      tenant === null
        ? unwrap(
            api.GET("/api/operator/hosts/{host_name}/pages", {
              params: { path: { host_name: host }, query: { ago_s: agoS } },
            }),
          )
        : unwrap(
            api.GET("/api/tenants/{tenant}/hosts/{host_name}/pages", {
              params: { path: { tenant, host_name: host }, query: { ago_s: agoS } },
            }),
          ),
    placeholderData: keepPreviousData,
    refetchInterval: agoS === 0 ? 5000 : false,
  });

/** Shown when asked for: an engine takes some milliseconds to draw up its map. */
export function PageMapSection({
  host,
  everybody,
  open,
  onOpen,
}: {
  host: string;
  everybody?: boolean;
  open: boolean;
  onOpen: (open: boolean) => void;
}) {
  return (
    <section aria-label={`Pages of ${host}`} className="border-t px-4 py-3">
      <div className="flex items-center justify-between gap-3">
        <h3 className="text-xs font-medium text-ink-3">{everybody ? host : "Page by page"}</h3>
        <Button size="sm" aria-expanded={open} onClick={() => onOpen(!open)}>
          {open ? "Hide the map" : "Show the map"}
        </Button>
      </div>
      {open && <PageMap host={host} everybody={everybody} />}
    </section>
  );
}

function PageMap({ host, everybody }: { host: string; everybody?: boolean }) {
  const tenant = useTenant();
  const [agoS, setAgoS] = useState(0);
  const { data, error, refetch } = useQuery(pagesQuery(everybody ? null : tenant, host, agoS));
  return (
    <div className="mt-3 grid gap-3">
      {error && <ErrorNotice error={asApiError(error)} onRetry={() => void refetch()} />}
      {!error && !data && <Skeleton className="h-48 w-full" />}
      {data && <Scrub map={data} agoS={agoS} onChange={setAgoS} />}
      {data && <Cells map={data} />}
      {data && <Owners map={data} />}
    </div>
  );
}

/** Back through what was kept: maps are kept for ten minutes, from when somebody looks. */
function Scrub({ map, agoS, onChange }: { map: HostPages; agoS: number; onChange: (agoS: number) => void }) {
  const id = useId();
  const newest = map.kept.at(-1) ?? 0;
  const oldest = Math.min(600, newest - (map.kept[0] ?? newest));
  return (
    <div className="flex flex-wrap items-center gap-3 text-xs text-ink-3">
      <label htmlFor={id}>{agoS === 0 ? "Now" : `${milliseconds(agoS * 1000)} ago`}</label>
      <input
        id={id}
        type="range"
        min={-Math.max(oldest, agoS, 5)}
        max={0}
        step={5}
        value={-agoS}
        disabled={oldest === 0 && agoS === 0}
        onChange={(event) => onChange(-Number(event.target.value))}
        className="min-w-40 flex-1 accent-accent"
      />
      <span className="tnum">{new Date(map.at * 1000).toLocaleTimeString("en-GB")}</span>
    </div>
  );
}

interface Run {
  start: number;
  length: number;
  owner: PageOwner;
}

/** Each run with its first page. */
export function runsOf(map: HostPages): Run[] {
  const runs: Run[] = [];
  let start = 0;
  for (let at = 0; at < map.runs.length; at += 2) {
    const [owner, length] = [map.owners[map.runs[at]!], map.runs[at + 1]!];
    if (owner) runs.push({ start, length, owner });
    start += length;
  }
  return runs;
}

const COLORS: Record<PageOwner["kind"], string> = {
  free: "--fill-2",
  kv: "--series-1",
  cached_prefix: "--series-2",
  adapter: "--series-3",
  reserved: "--ink-3",
  others: "--series-4",
};
const KINDS: Record<PageOwner["kind"], string> = {
  free: "Free",
  kv: "KV",
  cached_prefix: "Cached prefix",
  adapter: "Adapter",
  reserved: "Reserved",
  others: "Other tenants",
};

const TALLEST = 320;
/** The largest squares with which all pages fit below `TALLEST`. */
export function layout(pages: number, width: number): { cell: number; columns: number; rows: number } {
  for (const cell of [12, 10, 8, 6, 5, 4, 3]) {
    const columns = Math.max(1, Math.floor(width / cell));
    const rows = Math.ceil(pages / columns);
    if (rows * cell <= TALLEST) return { cell, columns, rows };
  }
  const columns = Math.max(1, Math.floor(width / 2));
  return { cell: 2, columns, rows: Math.ceil(pages / columns) };
}

/** A dot in the middle: it stays. */
function mark(context: CanvasRenderingContext2D, x: number, y: number, size: number, color: string): void {
  const dot = Math.max(1, Math.floor(size / 3));
  const inset = (size - dot) / 2;
  context.fillStyle = color;
  context.fillRect(x + inset, y + inset, dot, dot);
}

function Cells({ map }: { map: HostPages }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [hovered, setHovered] = useState<number | null>(null);
  const runs = runsOf(map);
  const { cell, columns, rows } = layout(map.total, width);

  useEffect(() => {
    const box = canvas.current?.parentElement;
    if (!box || typeof ResizeObserver === "undefined") return;
    const observer = new ResizeObserver(() => setWidth(box.clientWidth));
    observer.observe(box);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const context = width > 0 ? canvas.current?.getContext("2d") : null;
    if (!context) return;
    const scale = window.devicePixelRatio || 1;
    context.canvas.width = columns * cell * scale;
    context.canvas.height = rows * cell * scale;
    context.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const gap = cell > 3 ? 1 : 0;
    for (const { start, length, owner } of runsOf(map)) {
      for (let page = start; page < start + length; page += 1) {
        context.fillStyle = style.getPropertyValue(COLORS[owner.kind]);
        const [x, y] = [(page % columns) * cell, Math.floor(page / columns) * cell];
        context.fillRect(x, y, cell - gap, cell - gap);
        if (owner.pinned) mark(context, x, y, cell - gap, style.getPropertyValue("--surface"));
      }
    }
  }, [map, width, cell, columns, rows]);

  const pinned = runs.some(({ owner }) => owner.pinned);
  const pageAt = (event: PointerEvent<HTMLCanvasElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const page = Math.floor((event.clientY - box.top) / cell) * columns + Math.floor((event.clientX - box.left) / cell);
    return page >= 0 && page < map.total ? page : null;
  };
  const run =
    hovered === null ? undefined : runs.find(({ start, length }) => hovered >= start && hovered < start + length);
  return (
    <figure className="min-w-0">
      <div className="w-full overflow-hidden">
        <canvas
          ref={canvas}
          aria-hidden // the table below has the same
          style={{ width: columns * cell, height: rows * cell }}
          onPointerMove={(event) => setHovered(pageAt(event))}
          onPointerLeave={() => setHovered(null)}
        />
      </div>
      <figcaption className="mt-2 flex min-h-5 flex-wrap gap-x-4 gap-y-1 text-xs text-ink-3">
        {run && hovered !== null ? (
          <span className="text-ink">
            Page {number(hovered)}: {holds(run.owner)}
            {said(run.owner)}, {number(run.length)} in a row
          </span>
        ) : (
          <>
            {(Object.keys(KINDS) as PageOwner["kind"][])
              .filter((kind) => runs.some(({ owner }) => owner.kind === kind))
              .map((kind) => (
                <span key={kind} className="flex items-center gap-1.5">
                  <span className="size-2 rounded-[3px]" style={{ background: `var(${COLORS[kind]})` }} /> {KINDS[kind]}
                </span>
              ))}
            {pinned && <span>Pages with a dot are pinned</span>}
          </>
        )}
      </figcaption>
    </figure>
  );
}

const holds = (owner: PageOwner) => `${KINDS[owner.kind]}${owner.pinned ? ", pinned" : ""}`;

const age = (owner: PageOwner) =>
  owner.age_s === null
    ? ""
    : owner.kind === "adapter"
      ? `idle for ${milliseconds(owner.age_s * 1000)}`
      : `for ${milliseconds(owner.age_s * 1000)}`;

const said = (owner: PageOwner) =>
  [owner.tenant, owner.adapters.join(", "), age(owner)]
    .filter(Boolean)
    .map((text) => `, ${text}`)
    .join("");

const MOST_ROWS = 100;

/** The same as a table, most pages first. */
function Owners({ map }: { map: HostPages }) {
  const pages = new Map<PageOwner, number>();
  for (const { owner, length } of runsOf(map)) pages.set(owner, (pages.get(owner) ?? 0) + length);
  const rows = [...pages].toSorted((a, b) => b[1] - a[1]);
  return (
    <div className="max-h-80 overflow-y-auto">
      <Table label="Pages by owner">
        <thead>
          <tr>
            <Th>Holds</Th>
            <Th>For</Th>
            <Th className="text-right">Pages</Th>
            <Th className="text-right">Size</Th>
            <Th className="text-right">Share</Th>
            <Th>Age</Th>
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MOST_ROWS).map(([owner, count], index) => (
            <Tr key={index}>
              <Td className="font-medium">{holds(owner)}</Td>
              <Td className="max-w-64 truncate text-ink-2">
                {[owner.tenant, owner.adapters.join(", ")].filter(Boolean).join(" · ") || "–"}
              </Td>
              <Td className="tnum text-right">{number(count)}</Td>
              <Td className="tnum text-right">{bytes(count * map.page_bytes)}</Td>
              <Td className="tnum text-right">{percent(count, map.total)}</Td>
              <Td className="tnum text-ink-3">{age(owner) || "–"}</Td>
            </Tr>
          ))}
        </tbody>
      </Table>
      {rows.length > MOST_ROWS && (
        <p className="px-4 py-2 text-xs text-ink-3">
          The {MOST_ROWS} with most pages of {number(rows.length)}.
        </p>
      )}
    </div>
  );
}
