import { render, screen } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { Pager } from "./pager";

it("goes back to the last page that has rows", () => {
  const onPage = vi.fn();
  const { rerender } = render(<Pager page={3} size={50} total={141} onPage={onPage} />);
  expect(onPage).toHaveBeenCalledExactlyOnceWith(2);
  rerender(<Pager page={2} size={50} total={141} onPage={onPage} />);
  expect(screen.getByText("101–141 of 141")).toBeInTheDocument();
  rerender(<Pager page={2} size={50} total={0} onPage={onPage} />);
  expect(onPage).toHaveBeenLastCalledWith(undefined);
});
