import { onlineManager } from "@tanstack/react-query";
import { screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { afterEach, expect, it } from "vitest";
import * as data from "../../tests/data";
import { openConsole } from "../../tests/render";
import { refusal, server } from "../../tests/server";

const KEYS = "/api/tenants/acme/keys";
const down = () => refusal(503, "database_unavailable", "The database cannot be reached.", "Try again in a moment.");
const gone = () => refusal(404, "not_found", "This tenant is not there any more.", "Go to another one.");

afterEach(() => onlineManager.setOnline(true));

it("keeps what is shown, and what is typed, when it cannot be read again", async () => {
  const { client, user } = openConsole("/t/acme/keys");
  await user.click(await screen.findByRole("button", { name: `Edit ${data.key.name}` }));
  const name = await screen.findByRole("textbox", { name: "Name" });
  await user.clear(name);
  await user.type(name, "half a na");
  server.use(http.get(KEYS, down));
  await client.invalidateQueries();
  expect(await screen.findByText(/Data may be out of date: The database cannot be reached/)).toBeInTheDocument();
  expect(name).toHaveValue("half a na");
  await user.keyboard("{Escape}");
  expect(screen.getByRole("button", { name: `Edit ${data.key.name}` })).toBeVisible();
  expect(screen.queryByRole("alert")).toBeNull();

  server.use(http.get(KEYS, () => HttpResponse.json([data.key])));
  await user.click(screen.getByRole("button", { name: "Refresh" }));
  await waitFor(() => expect(screen.queryByText(/Data may be out of date/)).toBeNull());
});

it("does not go on showing what the server no longer has", async () => {
  const { client } = openConsole("/t/acme/keys");
  await screen.findByText(data.key.name);
  server.use(http.get(KEYS, gone));
  await client.invalidateQueries();
  expect(await screen.findByRole("alert")).toHaveTextContent("This tenant is not there any more.");
  expect(screen.queryByText(data.key.name)).toBeNull();
  expect(screen.queryByText(/Data may be out of date/)).toBeNull();
});

it("asks for the session again when its first answer was an error", async () => {
  server.use(http.get("/api/session", down));
  const { user } = openConsole("/t/acme/keys");
  const retry = await screen.findByRole("button", { name: "Retry" });
  server.use(http.get("/api/session", () => HttpResponse.json(data.session)));
  await user.click(retry);
  expect(await screen.findByText(data.key.name)).toBeVisible();
});

it("says without a network that an action failed, and keeps what was typed", async () => {
  server.use(http.patch(`${KEYS}/:id`, () => HttpResponse.error()));
  const { user } = openConsole("/t/acme/keys");
  await user.click(await screen.findByRole("button", { name: `Edit ${data.key.name}` }));
  const name = await screen.findByRole("textbox", { name: "Name" });
  await user.type(name, " two");
  onlineManager.setOnline(false);
  await user.click(screen.getByRole("button", { name: /^Save/ }));
  expect(await screen.findByText("The console cannot reach the server.")).toBeVisible();
  expect(name).toHaveValue(`${data.key.name} two`);
});
