import { hashKey, QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, RouterProvider } from "@tanstack/react-router";
import { render } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { vi } from "vitest";
import { makeQueryClient } from "@/app/query-client";
import { makeRouter } from "@/app/router";
import { sessionQuery } from "@/features/session/queries";
import { FakeSocket } from "./fake-socket";

/** The whole console at an address, with sockets that a test drives. */
export function openConsole(path: string) {
  FakeSocket.opened = [];
  vi.stubGlobal("WebSocket", FakeSocket);
  const client = makeQueryClient();
  const { queries, mutations } = client.getDefaultOptions();
  client.setDefaultOptions({ queries: { ...queries, retry: false }, mutations });
  const router = makeRouter(client, createMemoryHistory({ initialEntries: [path] }));
  client.getQueryCache().subscribe(({ type, query }) => {
    if (type === "updated" && query.queryHash === hashKey(sessionQuery.queryKey) && query.state.status === "success")
      void router.invalidate();
  });
  render(
    <QueryClientProvider client={client}>
      <RouterProvider router={router} />
    </QueryClientProvider>,
  );
  return { client, router, user: userEvent.setup() };
}
