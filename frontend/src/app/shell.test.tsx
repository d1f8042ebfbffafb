import { screen } from "@testing-library/react";
import { http } from "msw";
import { expect, test } from "vitest";
import { openConsole } from "../../tests/render";
import { refusal, server } from "../../tests/server";

test("below the navigation stands the version of the server", async () => {
  openConsole("/t/acme");
  expect(await screen.findByText("Lorikeet 0.1.0+gf66acf9d")).toBeInTheDocument();
});

test("a page is shown without the version if the server does not say it", async () => {
  server.use(http.get("/version", () => refusal(503, "busy", "The server is busy.", "Try again.")));
  openConsole("/t/acme");
  expect(await screen.findByRole("heading", { level: 1 })).toBeInTheDocument();
  expect(screen.queryByText(/^Lorikeet /)).not.toBeInTheDocument();
});
