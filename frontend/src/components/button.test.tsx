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
