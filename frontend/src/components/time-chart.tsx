import { type KeyboardEvent, type PointerEvent, useId, useState } from "react";
import { cn } from "@/lib/cn";
import { plural } from "@/lib/format";
import { stepLabel } from "@/lib/time-range";

export interface ChartSeries {
  key: string;
  label: string;
  /** Colour of the series, one of the theme's. */
  color: 1 | 2 | 3 | 4 | "danger";
  /** A value per step; null means that nothing was measured. */
  values: (number | null)[];
}

interface TimeChartProps {
  title: string;
  /** Start of each step in milliseconds. */
  at: number[];
  stepS: number;
  series: ChartSeries[];
  kind: "bars" | "lines";
  format: (value: number) => string;
  /** A horizontal line, such as an objective. */
  line?: { value: number; label: string };
  onZoom: (since: number, until: number) => void;
  onZoomOut?: () => void;
}

const FILL = { 1: "fill-series-1", 2: "fill-series-2", 3: "fill-series-3", 4: "fill-series-4", danger: "fill-danger" };
const STROKE = {
  1: "stroke-series-1",
  2: "stroke-series-2",
  3: "stroke-series-3",
  4: "stroke-series-4",
  danger: "stroke-danger",
};
const DOT = { 1: "bg-series-1", 2: "bg-series-2", 3: "bg-series-3", 4: "bg-series-4", danger: "bg-danger" };
const WIDTH = 1000;
const HEIGHT = 100;

/** Returns the next round number at or above `value`: 1, 2 or 5 times a power of ten. */
export function niceCeiling(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((step) => step * power >= value) ?? 10) * power;
}

/** Returns the SVG path of a line. It is interrupted where nothing was measured. */
export function linePath(values: (number | null)[], top: number): string {
  const width = WIDTH / values.length;
  const y = (value: number) => (HEIGHT - (Math.min(value, top) / top) * HEIGHT).toFixed(2);
  return values
    .map((value, index) => {
      if (value === null) return "";
      const x = (index + 0.5) * width;
      return `${(values[index - 1] ?? null) === null ? "M" : "L"}${x.toFixed(1)} ${y(value)}`;
    })
    .join("");
}

/** Returns the SVG path of the points without a neighbour, of which no line can be drawn: a round cap shows each. */
export function pointPath(values: (number | null)[], top: number): string {
  const alone = (index: number) => (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null;
  return linePath(
    values.map((value, index) => (alone(index) ? value : null)),
    top,
  ).replaceAll(/M[^M]+/g, "$&h0");
}

/** A chart of values over time. Dragging or + zooms; the arrow keys read out single steps. */
export function TimeChart({ title, at, stepS, series, kind, format, line, onZoom, onZoomOut }: TimeChartProps) {
  const [cursor, setCursor] = useState<number | null>(null);
  const [from, setFrom] = useState<number | null>(null);
  const caption = useId();
  const count = at.length;
  const sums = at.map((_, index) => series.reduce((sum, { values }) => sum + (values[index] ?? 0), 0));
  const highest = kind === "bars" ? sums : series.flatMap(({ values }) => values.map((value) => value ?? 0));
  const top = niceCeiling(Math.max(0, ...highest, line?.value ?? 0));
  const spanS = count * stepS;
  const name = (index: number) => stepLabel(at[index]!, stepS, spanS);
  // The first, some between and the last step have a label.
  const labelled = [...new Set([0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * (count - 1))))].filter(
    (index) => index >= 0 && index < count,
  );
  const valueText = (index: number) =>
    `${name(index)}: ${series.map(({ label, values }) => `${label} ${shown(values[index])}`).join(", ")}`;
  const shown = (value: number | null | undefined) => (value == null ? "–" : format(value));

  const indexAt = (event: PointerEvent<HTMLElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    return Math.max(0, Math.min(count - 1, Math.floor(((event.clientX - box.left) / Math.max(1, box.width)) * count)));
  };
  const zoomTo = (a: number, b: number) => {
    const [first, last] = a < b ? [a, b] : [b, a];
    // Zooming to one step or to the whole range would show nothing new.
    if (last > first && last - first < count - 1) onZoom(at[first]!, at[last]! + stepS * 1000);
  };
  const move = (by: number) =>
    setCursor((now) => Math.max(0, Math.min(count - 1, (now ?? (by > 0 ? -1 : count)) + by)));
  const onKeyDown = (event: KeyboardEvent) => {
    const around = Math.max(1, Math.floor(count / 4));
    const actions: Record<string, () => void> = {
      ArrowLeft: () => move(-1),
      ArrowRight: () => move(1),
      Home: () => setCursor(0),
      End: () => setCursor(count - 1),
      "+": () =>
        zoomTo(Math.max(0, (cursor ?? count - 1) - around), Math.min(count - 1, (cursor ?? count - 1) + around)),
      "-": () => onZoomOut?.(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  };

  return (
    <figure className="@container min-w-0">
      <figcaption id={caption} className="mb-3 flex min-h-5 flex-wrap items-center gap-x-4 gap-y-1 text-xs text-ink-3">
        <span className="font-medium text-ink-2">{title}</span>
        {series.map(({ key, label, color, values }) => (
          <span key={key} className="flex items-center gap-1.5">
            <span className={cn("size-2 rounded-[3px]", DOT[color])} />
            {label} {cursor !== null && <span className="tnum font-medium text-ink">{shown(values[cursor])}</span>}
          </span>
        ))}
        {line && (
          <span className="flex items-center gap-1.5">
            <span className="w-3 border-t-2 border-dashed border-ink-3" /> {line.label}
          </span>
        )}
        <span className="tnum ml-auto">{cursor !== null && count > 0 ? name(cursor) : ""}</span>
      </figcaption>
      <div className="grid grid-cols-[minmax(3.25rem,auto)_minmax(0,1fr)] gap-x-2">
        <div
          aria-hidden
          className="tnum -my-2 flex h-40 flex-col justify-between text-right text-2xs whitespace-nowrap text-ink-3"
        >
          <span>{format(top)}</span>
          <span>{format(top / 2)}</span>
          <span>0</span>
        </div>
        <div
          role="slider"
          tabIndex={0}
          aria-label={`${title}: arrow keys read the steps, + zooms in, - out`}
          aria-valuemin={0}
          aria-valuemax={Math.max(0, count - 1)}
          aria-valuenow={cursor ?? Math.max(0, count - 1)}
          aria-valuetext={cursor === null ? plural(count, "step") : valueText(cursor)}
          className="relative h-36 cursor-crosshair touch-pan-y border-b border-line-2 select-none"
          onKeyDown={onKeyDown}
          onBlur={() => setCursor(null)}
          onPointerDown={(event) => {
            if (event.button !== 0) return;
            event.currentTarget.setPointerCapture?.(event.pointerId);
            setFrom(indexAt(event));
          }}
          onPointerMove={(event) => setCursor(indexAt(event))}
          onPointerLeave={() => setCursor(null)}
          onPointerCancel={() => setFrom(null)}
          onPointerUp={(event) => {
            if (from !== null) zoomTo(from, indexAt(event));
            setFrom(null);
          }}
        >
          <svg
            aria-hidden
            viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
            preserveAspectRatio="none"
            className="absolute inset-0 size-full overflow-visible"
          >
            {[0, HEIGHT / 2].map((y) => (
              <line
                key={y}
                x1={0}
                x2={WIDTH}
                y1={y}
                y2={y}
                strokeDasharray="3 4"
                vectorEffect="non-scaling-stroke"
                className="stroke-line"
              />
            ))}
            {kind === "bars" ? (
              <Bars series={series} count={count} top={top} />
            ) : (
              series.map(({ key, color, values }) => (
                <g key={key} fill="none" strokeLinejoin="round" strokeLinecap="round" className={STROKE[color]}>
                  <path d={linePath(values, top)} strokeWidth={1.75} vectorEffect="non-scaling-stroke" />
                  <path d={pointPath(values, top)} strokeWidth={6} vectorEffect="non-scaling-stroke" />
                </g>
              ))
            )}
            {line && (
              <line
                x1={0}
                x2={WIDTH}
                y1={HEIGHT - (line.value / top) * HEIGHT}
                y2={HEIGHT - (line.value / top) * HEIGHT}
                strokeWidth={1.5}
                strokeDasharray="6 4"
                vectorEffect="non-scaling-stroke"
                className="stroke-ink-3"
              />
            )}
          </svg>
          {from !== null && cursor !== null && (
            <Marked from={Math.min(from, cursor)} to={Math.max(from, cursor)} count={count} className="bg-blue/15" />
          )}
          {from === null && cursor !== null && <Marked from={cursor} to={cursor} count={count} className="bg-ink/8" />}
        </div>
        <span />
        <div className="mt-1.5 flex justify-between text-2xs whitespace-nowrap text-ink-3">
          {labelled.map((index, place) => (
            <span key={index} className={cn(labelled.length === 5 && place % 2 === 1 && "@max-md:hidden")}>
              {name(index)}
            </span>
          ))}
        </div>
      </div>
    </figure>
  );
}

/** Returns for each series of a stack the sum of the series below it, by step. */
export const stacked = (series: ChartSeries[], count: number): number[][] =>
  series.map((_, above) =>
    Array.from({ length: count }, (_none, index) =>
      series.slice(0, above).reduce((sum, { values }) => sum + (values[index] ?? 0), 0),
    ),
  );

function Bars({ series, count, top }: { series: ChartSeries[]; count: number; top: number }) {
  const width = WIDTH / Math.max(1, count);
  const below = stacked(series, count);
  const scale = HEIGHT / top;
  return series.map(({ key, color, values }, number) => (
    <g key={key} className={FILL[color]}>
      {values.map((value, index) =>
        value ? (
          <rect
            key={index}
            x={index * width + width * 0.1}
            width={width * 0.8}
            y={HEIGHT - ((below[number]?.[index] ?? 0) + value) * scale}
            height={value * scale}
          />
        ) : null,
      )}
    </g>
  ));
}

function Marked({ from, to, count, className }: { from: number; to: number; count: number; className: string }) {
  return (
    <span
      aria-hidden
      className={cn("pointer-events-none absolute inset-y-0", className)}
      style={{ left: `${(from / count) * 100}%`, width: `${((to - from + 1) / count) * 100}%` }}
    />
  );
}
