import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it } from "vitest";
import type { BudgetReport } from "@/api/types";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const tenant = "/api/tenants/acme";
const key = { id: "7d3c9a52-6f38-4c1e-9d43-0a1f6b1f7c11", name: "ci", prefix: "abcdefgh" };
const none = {
  requests_per_minute: null,
  tokens_per_minute: null,
  tokens_per_day: null,
  tokens_per_month: null,
  concurrency: null,
};
const month = {
  amount_micros: 10_000_000,
  at_limit: "refuse" as const,
  alerts: [50, 80, 100],
  spent_micros: 8_200_000,
  reached: 80,
};

function serve(report: BudgetReport) {
  const limits = { ...none, max_output_tokens: null };
  const membership = data.session.tenants[0];
  server.use(
    http.get("/api/session", () =>
      HttpResponse.json({
        ...data.session,
        tenants: [membership && { ...membership, capabilities: [...membership.capabilities, "budgets.write"] }],
      }),
    ),
    http.get(`${tenant}/budgets`, () => HttpResponse.json(report)),
    http.get(`${tenant}/limits`, () =>
      HttpResponse.json({
        counters_reachable: true,
        tenant: {
          limits: { ...limits, adapters: null, storage_bytes: null, max_rank: null },
          used: { ...none, tokens_per_day: 0, tokens_per_month: 0, adapters: 1, storage_bytes: 0 },
        },
        keys: [{ ...key, limits, used: { ...none, tokens_per_day: 0, tokens_per_month: 0 } }],
      }),
    ),
  );
}

describe("budgets", () => {
  let sent: unknown;
  beforeEach(() => {
    sent = undefined;
  });

  it("shows what is spent of each and what follows", async () => {
    serve({
      ...data.noBudgets,
      granted: { day: null, month },
      keys: [{ ...key, day: { ...month, spent_micros: 10_000_000, reached: 100, at_limit: "warn" }, month: null }],
    });
    openConsole("/t/acme/limits");
    const list = await screen.findByTestId("budgets");
    expect(
      within(list).getByRole("progressbar", { name: /granted by the operator, this month: 82% spent/ }),
    ).toBeVisible();
    expect(list).toHaveTextContent("€8.20 of €10.00");
    expect(list).toHaveTextContent("Key ciused up: notifies only");
  });

  it("sets a key's, in money as people write it", async () => {
    serve(data.noBudgets);
    server.use(
      http.put(`${tenant}/keys/${key.id}/budgets`, async ({ request }) => {
        sent = await request.json();
        return HttpResponse.json({ ...data.noBudgets, keys: [{ ...key, day: null, month }] });
      }),
    );
    server.use(http.get(`${tenant}/keys/${key.id}/budgets`, () => HttpResponse.json({ day: null, month: null })));
    openConsole("/t/acme/limits");
    await userEvent.click(await screen.findByRole("button", { name: "Budget of ci" }));
    await screen.findByTestId("budget-month");
    await userEvent.type(screen.getByTestId("budget-month"), "lots");
    // Zero would be taken for no budget.
    await userEvent.type(screen.getByTestId("budget-day"), "0,00");
    await userEvent.click(screen.getByTestId("budgets-save"));
    expect(await screen.findAllByText(/Enter an amount above zero/)).toHaveLength(2);
    await userEvent.clear(screen.getByTestId("budget-day"));
    await userEvent.clear(screen.getByTestId("budget-month"));
    await userEvent.type(screen.getByTestId("budget-month"), "12,50");
    await userEvent.selectOptions(screen.getByLabelText("When used up, per month"), "warn");
    await userEvent.clear(screen.getByLabelText("Notify at, per month"));
    await userEvent.type(screen.getByLabelText("Notify at, per month"), "75 %, 100");
    await userEvent.click(screen.getByTestId("budgets-save"));
    await waitFor(() =>
      expect(sent).toEqual({ day: null, month: { amount_micros: 12_500_000, at_limit: "warn", alerts: [75, 100] } }),
    );
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    expect(await screen.findByTestId("budgets")).toHaveTextContent("Key ci");
  });

  it("needs prices", async () => {
    serve({ ...data.noBudgets, currency: null });
    openConsole("/t/acme/limits");
    expect(await screen.findByText(/has not published prices/)).toBeVisible();
    expect(screen.queryByTestId("budgets-edit")).toBeNull();
  });

  it("tells on the first page that one is nearly spent", async () => {
    serve({ ...data.noBudgets, own: { day: null, month } });
    openConsole("/t/acme");
    expect(await screen.findByTestId("budget-notice")).toHaveTextContent(
      "This month 82% of a budget is spent: €8.20 of €10.00",
    );
  });
});
