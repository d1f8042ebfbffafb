import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import { Button } from "./button";

it("does once what a double click asks for, but turns as many pages as there are clicks", async () => {
  const user = userEvent.setup();
  const made = vi.fn((event: { preventDefault: () => void }) => event.preventDefault());
  const turned = vi.fn();
  render(
    <form onSubmit={made}>
      <Button type="submit" busy={false}>
        Make
      </Button>
      <Button onClick={turned}>Next</Button>
    </form>,
  );
  await user.dblClick(screen.getByRole("button", { name: "Make" }));
  expect(made).toHaveBeenCalledTimes(1);
  await user.dblClick(screen.getByRole("button", { name: "Next" }));
  expect(turned).toHaveBeenCalledTimes(2);
});

it("keeps the focus and ignores clicks and Enter while it is busy", async () => {
  const user = userEvent.setup();
  const made = vi.fn();
  const form = (busy: boolean) => (
    <form onSubmit={made}>
      <input aria-label="Name" />
      <Button type="submit" busy={busy}>
        Make
      </Button>
    </form>
  );
  const { rerender } = render(form(false));
  const button = screen.getByRole("button", { name: "Make" });
  button.focus();
  rerender(form(true));
  expect(button).toHaveFocus();
  expect(button).toHaveAttribute("aria-disabled", "true");
  await user.keyboard("{Enter}");
  await user.type(screen.getByLabelText("Name"), "A{Enter}");
  expect(made).not.toHaveBeenCalled();
});
