import { fireEvent, render, screen } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { type ChartSeries, linePath, niceCeiling, pointPath, stacked, TimeChart } from "./time-chart";

const at = Array.from({ length: 10 }, (_, index) => index * 60_000);
const series: ChartSeries[] = [
  { key: "a", label: "a", color: 1, values: at.map((_, index) => index) },
  { key: "b", label: "b", color: 2, values: at.map(() => 1) },
];

describe("a chart over time", () => {
  it("zooms to what is dragged over, and ignores a click", () => {
    const zoomed = vi.fn();
    render(<TimeChart title="T" at={at} stepS={60} series={series} kind="bars" format={String} onZoom={zoomed} />);
    const plot = screen.getByRole("slider");
    vi.spyOn(plot, "getBoundingClientRect").mockReturnValue({ left: 0, width: 100 } as DOMRect);
    const drag = (from: number, to: number) => {
      // jsdom's pointer events have no place.
      for (const [type, clientX] of [
        ["pointerdown", from],
        ["pointermove", to],
        ["pointerup", to],
      ] as const)
        fireEvent(plot, new MouseEvent(type, { clientX, bubbles: true }));
    };
    drag(55, 55);
    drag(0, 99);
    expect(zoomed).not.toHaveBeenCalled();
    drag(65, 25);
    expect(zoomed).toHaveBeenCalledExactlyOnceWith(2 * 60_000, 7 * 60_000);
  });

  it("breaks lines where nothing was measured", () => {
    expect(linePath([1, null, 2, 2], 2)).toBe("M125.0 50.00M625.0 0.00L875.0 0.00");
  });

  it("draws a point of its own where no neighbour was measured", () => {
    expect(pointPath([1, null, 2, 2, null, 0], 2)).toBe("M83.3 50.00h0M916.7 100.00h0");
    expect(pointPath([null, null], 2)).toBe("");
  });

  it("stacks", () =>
    expect(stacked(series, 3)).toEqual([
      [0, 0, 0],
      [0, 1, 2],
    ]));

  it.each([
    [0, 1],
    [3, 5],
    [99, 100],
    [0.03, 0.05],
  ])("%f fits below %f", (value, top) => expect(niceCeiling(value)).toBeCloseTo(top));
});
