import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { describe, expect, it } from "vitest";
import { Confirm, Dialog } from "./dialog";

function Page({ kind, goes = false }: { kind: "dialog" | "confirm"; goes?: boolean }) {
  const [open, setOpen] = useState(false);
  const [gone, setGone] = useState(false);
  const close = () => {
    setGone(goes);
    setOpen(false);
  };
  return (
    <main id="main" tabIndex={-1}>
      {!gone && <button onClick={() => setOpen(true)}>Open it</button>}
      {open && kind === "dialog" && (
        <Dialog onClose={close} title="A dialog">
          <input aria-label="Within" />
        </Dialog>
      )}
      {open && kind === "confirm" && (
        <Confirm onClose={close} title="Sure?" description="It goes." action="Delete" onConfirm={close} />
      )}
    </main>
  );
}

describe.each(["dialog", "confirm"] as const)("after a %s", (kind) => {
  it("the keyboard goes on where it was", async () => {
    render(<Page kind={kind} />);
    const user = userEvent.setup();
    await user.click(screen.getByRole("button", { name: "Open it" }));
    expect(
      screen.getByRole(kind === "dialog" ? "textbox" : "button", { name: kind === "dialog" ? "Within" : "Cancel" }),
    ).toHaveFocus();
    await user.keyboard("{Escape}");
    await waitFor(() => expect(screen.getByRole("button", { name: "Open it" })).toHaveFocus());
  });

  it("that took away what opened it, the keyboard is in the page", async () => {
    render(<Page kind={kind} goes />);
    const user = userEvent.setup();
    await user.click(screen.getByRole("button", { name: "Open it" }));
    await user.keyboard("{Escape}");
    await waitFor(() => expect(screen.getByRole("main")).toHaveFocus());
  });
});

it("goes back to where a chain of dialogs was opened", async () => {
  function Chain() {
    const [step, setStep] = useState(0);
    const close = () => setStep(0);
    return (
      <>
        <button onClick={() => setStep(1)}>Begin</button>
        {step === 1 && (
          <Dialog key={1} onClose={close} title="First">
            <button onClick={() => setStep(2)}>Next</button>
          </Dialog>
        )}
        {step === 2 && <Confirm key={2} onClose={close} title="Second" description="" action="Do" onConfirm={close} />}
      </>
    );
  }
  render(<Chain />);
  const user = userEvent.setup();
  await user.click(screen.getByRole("button", { name: "Begin" }));
  await user.click(screen.getByRole("button", { name: "Next" }));
  await user.keyboard("{Escape}");
  await waitFor(() => expect(screen.getByRole("button", { name: "Begin" })).toHaveFocus());
});
