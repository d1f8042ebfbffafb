import { createMemoryHistory, RouterContextProvider } from "@tanstack/react-router";
import { render, screen } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { PartNotLoadedError } from "@/lib/lazy-part";
import { makeQueryClient } from "./query-client";
import { RouteError } from "./route-fallbacks";
import { makeRouter } from "./router";

const router = makeRouter(makeQueryClient(), createMemoryHistory());
const shown = (error: Error) =>
  render(
    <RouterContextProvider router={router}>
      <RouteError error={error} reset={vi.fn()} />
    </RouterContextProvider>,
  );

describe("a page that could not be shown", () => {
  it.each([
    new PartNotLoadedError("x"),
    new TypeError("Failed to fetch dynamically imported module: http://127.0.0.1/assets/a.js"),
    new TypeError("error loading dynamically imported module"),
    new Error("Importing a module script failed."),
    new Error("Unable to preload CSS for /assets/a.css"),
  ])("asks for a reload after %s", (error) => {
    shown(error);
    expect(screen.getByRole("alert")).toHaveTextContent("This part of the console could not be loaded");
    expect(screen.getByRole("button", { name: "Reload" })).toBeVisible();
  });

  it("shows other errors as they are", () => {
    shown(new Error("boom"));
    expect(screen.queryByRole("button", { name: "Reload" })).toBeNull();
  });
});
