import { useNavigate, useSearch } from "@tanstack/react-router";
import { ZoomOut } from "lucide-react";
import { between, type Range, type RangeQuery, rangeQuery, RANGES, readRangeSearch } from "@/lib/time-range";
import { Button } from "./button";
import { SegmentedControl } from "./segmented-control";

const OPTIONS = RANGES.map((value) => ({ value, label: value }));

interface TimeRange {
  query: RangeQuery;
  zoom: (since: number, until: number) => void;
  choose: (range: Range) => void;
  zoomOut: () => void;
  zoomed: boolean;
  chosen: Range;
}

/** The page's time range, kept in its address. Going back undoes a zoom. */
export function useTimeRange(otherwise: Range): TimeRange {
  const search = readRangeSearch(useSearch({ strict: false }));
  const navigate = useNavigate();
  const go = (range: { range?: Range; since?: string; until?: string }, replace = false) =>
    // `search` belongs to the current page; only its time range changes.
    void navigate({
      to: ".",
      search: ((all: Record<string, unknown>) => ({
        ...all,
        range: undefined,
        since: undefined,
        until: undefined,
        ...range,
      })) as never,
      replace,
      resetScroll: false,
    });
  return {
    query: rangeQuery(search, otherwise),
    zoom: (since, until) =>
      go({ range: search.range, since: new Date(since).toISOString(), until: new Date(until).toISOString() }),
    choose: (range) => go({ range }),
    zoomOut: () => go({ range: search.range }),
    zoomed: search.since !== undefined,
    chosen: search.range ?? otherwise,
  };
}

/** A control for the time range of all charts on the page. */
export function TimeRangeControl({ range }: { range: TimeRange }) {
  const { query: shown } = range;
  return (
    <div className="flex flex-wrap items-center gap-2">
      {"since" in shown && (
        <Button size="sm" onClick={range.zoomOut} data-testid="zoom-out">
          <ZoomOut /> {between(shown.since, shown.until)}
        </Button>
      )}
      {/* While zoomed no button is pressed, so that each of them can be. */}
      <SegmentedControl
        label="Time range"
        value={range.zoomed ? ("" as Range) : range.chosen}
        options={OPTIONS}
        onChange={range.choose}
      />
    </div>
  );
}
