import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { OperatorHost, StagingRow, TenantDetail, TenantRow } from "@/api/types";
import { current as toasts } from "@/components/toast";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { refusal, server } from "../../../tests/server";

const row: TenantRow = {
  slug: "globex",
  name: "Globex",
  state: "active",
  weight: 1,
  created_at: "2026-05-04T10:00:00Z",
  suspended_at: null,
  suspended_for: "",
  deleted_at: null,
  members: 3,
  adapters: 2,
  keys: 4,
  usage: { days: 30, requests: 120, failed: 7, refused: 13, tokens: 4000 },
};
const detail: TenantDetail = {
  ...row,
  objectives: { first_token_ms: null, inter_token_ms: null, target: 0.99 },
  invitations: [],
  invitation_count: 0,
  versions: { ready: 2 },
};
const host: OperatorHost = {
  name: "gpu1", state: "online", service: "serving", quarantine: null, boot_id: "b1", model: "llama", device: "cuda", running: 2, waiting: 0, tokens_per_second: 12, experts: null,
  pool: { total: 100, free: 100, kv: 0, cached_prefix: 0, adapter: 0, reserved: 0, state: 0 }, page_bytes: 65536, last_seen: "2026-05-04T10:00:00Z", adapters: [], adapters_total: 9,
  base_digest: "sha256:aa", only_here: 5, joined: null, address: "gpu1:7000", zone: "eu-1a", adapter_readers: 2,
}; // prettier-ignore
const staging: StagingRow = {
  id: "p1", tenant: "globex", adapter: "support", version: 3, host: "gpu1", phase: "failed", waits_for: "retry", bytes_done: 0, bytes_total: 100, bytes_per_second: 0, remaining_s: null, attempts: 5, failures: 2,
  next_attempt_at: "2026-05-04T11:00:00Z", error: { code: "disk_full", message: "The disk of gpu1 is full.", fix: "Make room there." }, updated_at: "2026-05-04T10:00:00Z",
}; // prettier-ignore
const phases = { queued: 0, downloading: 0, verifying: 0, loading: 0, ready: 8, failed: 1 };

let requests: string[];
let sent: [string, unknown][];

const note = (answer: object, status = 200) =>
  async function resolve({ request }: { request: Request }) {
    const { pathname, search } = new URL(request.url);
    const text = await request.text();
    sent.push([`${request.method} ${pathname}${search}`, text ? JSON.parse(text) : null]);
    return HttpResponse.json(answer, { status });
  };

beforeEach(() => {
  requests = [];
  sent = [];
  const user = data.session.user && { ...data.session.user, is_operator: true };
  server.use(
    http.get("/api/session", () => HttpResponse.json({ ...data.session, user })),
    http.get("/api/operator/tenants", ({ request }) => {
      requests.push(new URL(request.url).search);
      return HttpResponse.json({ results: [row], total: 1000 });
    }),
    http.get("/api/operator/tenants/globex", () => HttpResponse.json(detail)),
    http.get("/api/operator/tenants/globex/limits", () => HttpResponse.json({ concurrency: 8 })),
    http.get("/api/operator/tenants/globex/members", () => HttpResponse.json({ results: [], total: 0 })),
    http.get("/api/operator/tenants/globex/adapters", () => HttpResponse.json({ results: [], total: 0 })),
    http.get("/api/operator/tenants/globex/statement", () =>
      HttpResponse.json({ total_micros: 0, currency: null, lines: [] }),
    ),
    http.get("/api/operator/hosts", () => HttpResponse.json([host])),
    http.get("/api/operator/join-tokens", () => HttpResponse.json([])),
    http.get("/api/operator/staging", () => HttpResponse.json({ results: [staging], total: 1, phases })),
  );
});

describe("tenants for operators", () => {
  it("asks the server for pages, and keeps what is looked for in the address", async () => {
    const { user, router } = openConsole("/t/acme/operator/tenants");
    expect(await screen.findByRole("link", { name: "Globex" })).toBeInTheDocument();
    expect(screen.getByText("1–50 of 1,000")).toBeInTheDocument();
    await user.click(screen.getByRole("button", { name: "Next" }));
    await waitFor(() => expect(requests.at(-1)).toContain("offset=50"));
    await user.type(screen.getByRole("searchbox"), "glo");
    await waitFor(() => expect(requests.at(-1)).toContain("search=glo"));
    expect(requests.at(-1)).toContain("offset=0");
    expect(router.state.location.search).toMatchObject({ q: "glo" });
  });

  it("creates one, and Escape does not lose the owner's link", async () => {
    server.use(
      http.post("/api/operator/tenants", note({ ...row, slug: "new", name: "New", link: "https://x/#secret" }, 201)),
    );
    const { user } = openConsole("/t/acme/operator/tenants");
    await user.click(await screen.findByTestId("create-tenant"));
    await user.type(await screen.findByTestId("tenant-name"), "New");
    await user.type(screen.getByTestId("tenant-slug"), "Not Good");
    await user.type(screen.getByTestId("tenant-owner"), "ada@new.example");
    await user.click(screen.getByTestId("tenant-create"));
    expect(await screen.findByText(/lower-case letters/)).toBeInTheDocument();
    await user.clear(screen.getByTestId("tenant-slug"));
    await user.type(screen.getByTestId("tenant-slug"), "new");
    await user.click(screen.getByTestId("tenant-create"));
    expect(await screen.findByTestId("tenant-link")).toHaveTextContent("https://x/#secret");
    await user.keyboard("{Escape}");
    expect(screen.getByTestId("tenant-link")).toBeInTheDocument();
    expect(sent).toEqual([["POST /api/operator/tenants", { name: "New", slug: "new", owner: "ada@new.example" }]]);
  });

  it("suspends with a reason, and says what follows", async () => {
    server.use(http.put("/api/operator/tenants/globex/suspension", note({ ...row, state: "suspended" })));
    const { user } = openConsole("/t/acme/operator/tenants/globex");
    await user.click(await screen.findByTestId("suspend"));
    const dialog = await screen.findByRole("alertdialog");
    expect(dialog).toHaveTextContent("its 4 API keys are refused with 403");
    expect(within(dialog).getByRole("button", { name: "Suspend" })).toBeDisabled();
    await user.type(screen.getByTestId("suspend-reason"), "Unpaid");
    await user.click(within(dialog).getByRole("button", { name: "Suspend" }));
    await waitFor(() => expect(sent).toEqual([["PUT /api/operator/tenants/globex/suspension", { reason: "Unpaid" }]]));
  });

  it("deletes only what was typed", async () => {
    server.use(http.delete("/api/operator/tenants/globex", note(row)));
    const { user } = openConsole("/t/acme/operator/tenants/globex");
    await user.click(await screen.findByTestId("delete-tenant"));
    const confirm = await screen.findByRole("button", { name: "Delete for good" });
    await user.type(screen.getByTestId("delete-confirm"), "globe");
    expect(confirm).toBeDisabled();
    await user.type(screen.getByTestId("delete-confirm"), "x");
    await user.click(confirm);
    await waitFor(() => expect(sent).toEqual([["DELETE /api/operator/tenants/globex?confirm=globex", null]]));
  });

  it("sets the weight, and says what the server refuses", async () => {
    server.use(
      http.put("/api/operator/tenants/globex/weight", () =>
        refusal(409, "tenant_deleted", "The tenant globex is deleted.", "Nothing."),
      ),
    );
    const { user } = openConsole("/t/acme/operator/tenants/globex");
    await user.click(await screen.findByRole("button", { name: "Change weight" }));
    await user.clear(await screen.findByTestId("weight"));
    await user.type(screen.getByTestId("weight"), "0");
    expect(screen.getByTestId("weight-save")).toBeDisabled();
    await user.clear(screen.getByTestId("weight"));
    await user.type(screen.getByTestId("weight"), "2.5");
    await user.click(screen.getByTestId("weight-save"));
    expect(await screen.findByText("The tenant globex is deleted.")).toBeInTheDocument();
  });
});

describe("hosts and staging for operators", () => {
  it("drains the last host only after saying what that means", async () => {
    const ofAnotherBase = { ...host, name: "gpu2", model: "mistral", base_digest: "sha256:other" };
    server.use(
      http.get("/api/operator/hosts", () => HttpResponse.json([host, ofAnotherBase])),
      http.put("/api/operator/hosts/gpu1/service", note({ service: "drained" })),
    );
    const { user } = openConsole("/t/acme/operator/hosts");
    const row = await screen.findByRole("listitem", { name: "Host gpu1" });
    expect(row).toHaveTextContent(
      "zone eu-1a, 2 running, 0 waiting, 9 adapters, 5 only here, gives adapters to 2 hosts",
    );
    expect(screen.getByRole("listitem", { name: "Host gpu2" })).toHaveTextContent("mistral");
    await user.click(within(row).getByRole("button", { name: "Drain" }));
    const dialog = await screen.findByRole("alertdialog");
    expect(dialog).toHaveTextContent("every new request for it will be refused with 503");
    await user.click(within(dialog).getByRole("button", { name: "Drain" }));
    await waitFor(() => expect(sent).toEqual([["PUT /api/operator/hosts/gpu1/service", { service: "drained" }]]));
  });

  it("restarts a host after saying what that means, follows it, and says when it is back", async () => {
    let restart: OperatorHost["restart"] = null;
    vi.useFakeTimers({ toFake: ["Date"] });
    server.use(
      http.get("/api/operator/hosts", () => HttpResponse.json([{ ...host, running: restart ? 1 : 2, restart }])),
      http.post("/api/operator/hosts/gpu1/restart", async (call) => {
        restart = { phase: "ending", asked_at: new Date().toISOString(), wait_s: 60 };
        return note({ wait_s: 60 }, 202)(call);
      }),
    );
    const { user } = openConsole("/t/acme/operator/hosts");
    await user.click(await screen.findByRole("button", { name: "Restart" }));
    const dialog = await screen.findByRole("alertdialog");
    expect(dialog).toHaveTextContent("every new request for it will be refused with 503 until it is back");
    await user.selectOptions(within(dialog).getByLabelText("Wait for requests there (2 now)"), "60");
    await user.click(within(dialog).getByRole("button", { name: "Restart" }));
    expect(await screen.findByText(/1 request still running, for 1 min 0 s at most/)).toBeInTheDocument();
    expect(sent).toEqual([["POST /api/operator/hosts/gpu1/restart", { wait_s: 60 }]]);
    restart = { ...restart!, phase: "starting" };
    expect(await screen.findByText(/the engine has exited; waiting for it to start/)).toBeInTheDocument();
    restart = null;
    await waitFor(() => expect(toasts().map(({ title }) => title)).toContain("gpu1 is back"));
  });

  it("lets a machine join, shows the command once, and withdraws what nobody used", async () => {
    const token = {
      id: "t1",
      host: "",
      state: "open",
      created_by: "ada@acme.example",
      created_at: "2026-05-04T10:00:00Z",
      expires_at: "2026-05-04T11:00:00Z",
      used_by: null,
    };
    server.use(
      http.get("/api/operator/join-tokens", () =>
        HttpResponse.json([token, { ...token, id: "t0", state: "used", used_by: "gpu0" }]),
      ),
      http.post(
        "/api/operator/join-tokens",
        note({ ...token, token: "lkj_secret", join_url: "https://lorikeet.example.org" }, 201),
      ),
      http.delete("/api/operator/join-tokens/t1", note({}, 200)),
    );
    const { user } = openConsole("/t/acme/operator/hosts");
    await user.click(await screen.findByRole("button", { name: "Add host" }));
    await user.selectOptions(await screen.findByLabelText("Valid for"), "900");
    await user.click(screen.getByRole("button", { name: "Create token" }));
    expect(await screen.findByTestId("join-command")).toHaveTextContent(
      /--join https:\/\/lorikeet.example.org --token lkj_secret$/,
    );
    await user.click(screen.getByRole("button", { name: "Done" }));
    const open = within(await screen.findByRole("list", { name: "Open join tokens" }));
    expect(open.getAllByRole("listitem")).toHaveLength(1);
    await user.click(open.getByRole("button", { name: "Revoke the token of ada@acme.example" }));
    await user.click(
      within(await screen.findByRole("alertdialog", { name: "Revoke this token?" })).getByRole("button", {
        name: "Revoke",
      }),
    );
    await waitFor(() =>
      expect(sent).toEqual([
        ["POST /api/operator/join-tokens", { host: "", expires_s: 900 }],
        ["DELETE /api/operator/join-tokens/t1", null],
      ]),
    );
  });

  it("revokes a host that joined, then forgets it", async () => {
    let joined = {
      at: "2026-05-04T10:00:00Z",
      certificate_expires_at: "2126-06-04T10:00:00Z" as string | null,
      revoked_at: null as string | null,
    };
    const quarantine = {
      code: "revoked" as const,
      message: "Its credential was revoked.",
      fix: "Make a join token for it.",
    };
    const gone: OperatorHost = { ...host, name: "gpu2" };
    const late: OperatorHost = { ...host, name: "gpu3", joined: { ...joined, certificate_expires_at: joined.at } };
    server.use(
      http.get("/api/operator/hosts", () =>
        HttpResponse.json([gone, late, { ...host, joined, quarantine: joined.revoked_at ? quarantine : null }]),
      ),
      http.delete("/api/operator/hosts/gpu1/credential", async (call) => {
        joined = { ...joined, certificate_expires_at: null, revoked_at: "2026-05-05T10:00:00Z" };
        return note({}, 200)(call);
      }),
      http.delete("/api/operator/hosts/gpu1", note({}, 200)),
    );
    const { user } = openConsole("/t/acme/operator/hosts");
    const shown = within(await screen.findByRole("listitem", { name: "Host gpu1" }));
    expect(
      within(screen.getByRole("listitem", { name: "Host gpu2" })).queryByRole("button", { name: "Revoke" }),
    ).toBeNull();
    expect(shown.getByText(/certificate until/)).toBeInTheDocument();
    expect(screen.getAllByText(/certificate expired/)).toHaveLength(1);
    await user.click(shown.getByRole("button", { name: "Revoke" }));
    await user.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "Revoke" }));
    await user.click(await shown.findByRole("button", { name: "Remove" }));
    expect(shown.getByText("Make a join token for it.")).toBeInTheDocument();
    expect(shown.queryByRole("button", { name: "Cordon" })).toBeNull();
    await user.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "Remove" }));
    await waitFor(() =>
      expect(sent.map(([call]) => call)).toEqual([
        "DELETE /api/operator/hosts/gpu1/credential",
        "DELETE /api/operator/hosts/gpu1",
      ]),
    );
  });

  it("tells how far apart tenants were served, beside the bound", async () => {
    const gap = { gap: 1200, bound: 10_000, share: 0.12, ahead: "acme", behind: "globex" };
    const points = [
      { at: "2026-05-04T10:00:00Z", widest: gap },
      { at: "2026-05-04T10:01:00Z", widest: null },
    ];
    server.use(
      http.get("/api/operator/fairness", () =>
        HttpResponse.json({
          since: "2026-05-04T10:00:00Z",
          until: "2026-05-04T10:02:00Z",
          step_s: 60,
          hosts: [{ name: "gpu1", now: null, points }],
        }),
      ),
    );
    openConsole("/t/acme/operator/hosts?tab=fairness");
    const part = await screen.findByLabelText("Service gap");
    expect(
      await within(part).findByText(
        /at most acme 1,200 priced tokens per weight ahead of globex, 12% of the bound 10K/,
      ),
    ).toBeInTheDocument();
    expect(part).toHaveTextContent("no two tenants are waiting");
    expect(await within(part).findByRole("slider", { name: /Largest gap/ })).toBeInTheDocument();
  });

  it("tells the rate and the remaining time of what is on its way", async () => {
    const moving: StagingRow = {
      ...staging,
      phase: "downloading",
      error: null,
      bytes_done: 25_000_000,
      bytes_total: 100_000_000,
      bytes_per_second: 5_000_000,
      remaining_s: 15,
    };
    server.use(http.get("/api/operator/staging", () => HttpResponse.json({ results: [moving], total: 1, phases })));
    openConsole("/t/acme/operator/hosts?tab=staging");
    expect(await screen.findByText(/25.0 MB of 100 MB \(25%\) at 5.00 MB\/s, 15 s left/)).toBeInTheDocument();
  });

  it("says why a staging failed, and tries it now", async () => {
    server.use(http.post("/api/operator/staging/p1/retry", note({}, 202)));
    const { user } = openConsole("/t/acme/operator/hosts?tab=staging");
    expect(await screen.findByText("The disk of gpu1 is full.")).toBeInTheDocument();
    expect(screen.getByText(/2 failures in a row/)).toBeInTheDocument();
    await user.click(screen.getByRole("button", { name: "Retry now: support@v3 on gpu1" }));
    await waitFor(() => expect(sent).toEqual([["POST /api/operator/staging/p1/retry", null]]));
  });
});

describe("a suspended tenant", () => {
  it("is told so on every page", async () => {
    const suspended = {
      ...data.session.tenants[0]!,
      suspended_at: "2026-05-04T10:00:00Z",
      suspended_for: "Unpaid since May",
    };
    server.use(http.get("/api/session", () => HttpResponse.json({ ...data.session, tenants: [suspended] })));
    openConsole("/t/acme/keys");
    expect(await screen.findByText("Acme is suspended: Unpaid since May")).toBeInTheDocument();
  });
});
