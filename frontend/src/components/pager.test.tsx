import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
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

it("keeps the focus on the button that led to the last page", async () => {
  const onPage = vi.fn();
  render(<Pager page={1} size={50} total={100} onPage={onPage} />);
  const next = screen.getByRole("button", { name: "Next" });
  next.focus();
  expect(next).toHaveFocus();
  await userEvent.click(next, { pointerEventsCheck: 0 });
  expect(onPage).not.toHaveBeenCalled();
});
