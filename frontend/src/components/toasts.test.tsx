import { act, fireEvent, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Dialog } from "./dialog";
import { current, dismiss, toast } from "./toast";
import Toasts from "./toasts";

function Page() {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button onClick={() => setOpen(true)}>Open</button>
      <Dialog open={open} onClose={() => setOpen(false)} title="A question">
        <input aria-label="Answer" />
      </Dialog>
      <div aria-live="polite">
        <Toasts />
      </div>
    </>
  );
}

// Other tests leave notes, too.
beforeEach(() => current().forEach(({ id }) => dismiss(id)));
afterEach(() => void vi.useRealTimers());

describe("notes", () => {
  it("leave the first Escape, and clicks beside it, to a dialog", async () => {
    const user = userEvent.setup({ pointerEventsCheck: 0 });
    render(<Page />);
    await user.click(screen.getByRole("button", { name: "Open" }));
    await screen.findByRole("dialog");
    act(() => void toast.good("Changed one"));
    act(() => void toast.good("Changed two"));
    const [dismissal] = await screen.findAllByRole("button", { name: "Dismiss", hidden: true });
    if (dismissal) await user.click(dismissal);
    expect(screen.queryByText("Changed one")).toBeNull();
    expect(screen.getByRole("dialog")).toBeVisible();
    await user.keyboard("{Escape}");
    expect(screen.queryByRole("dialog")).toBeNull();
    expect(screen.getByText("Changed two")).toBeVisible();
  });

  it("go by themselves, but not under the pointer", () => {
    vi.useFakeTimers();
    render(<Page />);
    act(() => void toast.good("Changed"));
    const note = screen.getByRole("listitem");
    fireEvent.pointerEnter(note);
    act(() => void vi.advanceTimersByTime(20_000));
    expect(screen.getByText("Changed")).toBeVisible();
    fireEvent.pointerLeave(note);
    act(() => void vi.advanceTimersByTime(6_000));
    expect(screen.queryByText("Changed")).toBeNull();
  });
});
