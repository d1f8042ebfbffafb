import { act, screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it } from "vitest";
import { adapterFiles } from "../../../tests/adapter-files";
import * as data from "../../../tests/data";
import { FakeSocket } from "../../../tests/fake-socket";
import { openConsole } from "../../../tests/render";
import { refusal, server } from "../../../tests/server";
import { serveTus } from "../../../tests/tus-server";

const T = "/api/tenants/acme";

async function choose(files: File[], name = "fresh") {
  const { client, user } = openConsole("/t/acme/upload");
  const zone = await screen.findByTestId("upload-dropzone");
  // What is chosen is compared with the base model, once that is known.
  await waitFor(() => expect(client.isFetching()).toBe(0));
  await user.upload(zone.querySelector("input")!, files);
  await user.clear(screen.getByTestId("upload-name"));
  if (name) await user.type(screen.getByTestId("upload-name"), name);
  return user;
}

const accept = (changes: object) => {
  serveTus();
  server.use(http.get(`${T}/uploads/up-1`, () => HttpResponse.json({ ...data.upload, ...changes })));
};

describe("upload page", () => {
  beforeEach(() => localStorage.clear());

  it("shows what the browser read before anything is sent", async () => {
    await choose(adapterFiles({ base_model_name_or_path: "meta-llama/Llama-3.2-1B" }));
    expect(await screen.findByText("meta-llama/Llama-3.2-1B")).toBeVisible();
    expect(screen.getByText(/this installation serves lorikeet-demo/)).toBeVisible();
    expect(screen.getByTestId("upload-submit")).toBeEnabled();
  });

  it("has nothing to send for a whole model", async () => {
    await choose([new File(["x"], "pytorch_model.bin")]);
    expect(await screen.findByText(/is a whole model/)).toBeVisible();
    expect(screen.getByTestId("upload-submit")).toBeDisabled();
  });

  it("checks the name before it sends", async () => {
    const user = await choose(adapterFiles(), "Not A Name");
    await screen.findByText(/The browser found no problems/);
    await user.click(screen.getByTestId("upload-submit"));
    expect(await screen.findByText(/lower-case letters/)).toBeVisible();
  });

  it("shows a refusal of the form with its fix", async () => {
    server.use(
      http.post(`${T}/uploads/resumable`, () =>
        refusal(413, "upload_too_large", "The upload is too large.", "Send at most 2 GB."),
      ),
    );
    const user = await choose(adapterFiles());
    await screen.findByText(/The browser found no problems/);
    await user.click(screen.getByTestId("upload-submit"));
    expect(await screen.findByText("Send at most 2 GB.")).toBeVisible();
    expect(screen.getByTestId("upload-dropzone")).toBeVisible();
  });

  it("pauses and goes on", async () => {
    const { seen } = serveTus();
    server.use(http.get(`${T}/uploads/up-1`, () => HttpResponse.json(data.upload)));
    server.use(http.patch(`${T}/uploads/resumable/up-1`, () => new Promise<never>(() => {}), { once: true }));
    const user = await choose(adapterFiles());
    await screen.findByText(/The browser found no problems/);
    await user.click(screen.getByTestId("upload-submit"));
    await waitFor(() => expect(seen.created).toHaveLength(1));
    await user.click(screen.getByRole("button", { name: "Pause" }));
    expect(screen.getByText(/kept on the server for one day/)).toBeVisible();
    await user.click(screen.getByRole("button", { name: "Resume" }));
    expect(await screen.findByText(/Validating names, shapes/)).toBeVisible();
    expect(seen.created).toHaveLength(1);
  });

  it("shows what did not finish, and gives it up", async () => {
    const { seen } = serveTus();
    seen.offset = 250;
    server.use(
      http.get(`${T}/uploads`, () =>
        HttpResponse.json(seen.deleted ? [] : [{ ...data.upload, state: "arriving" }, data.upload]),
      ),
    );
    const { user } = openConsole("/t/acme/upload");
    expect(await screen.findByText(/250 B of/)).toBeVisible();
    await user.click(screen.getByRole("button", { name: "Cancel the upload of fresh" }));
    await waitFor(() => expect(screen.queryByText("Unfinished uploads")).not.toBeInTheDocument());
  });

  it("imports from the Hub, and keeps a token", async () => {
    let requests: unknown;
    let kept: unknown;
    server.use(
      http.get(`${T}/hub-token`, () => HttpResponse.json({ set: kept !== undefined })),
      http.put(`${T}/hub-token`, async ({ request }) => {
        kept = await request.json();
        return HttpResponse.json({ set: true });
      }),
      http.delete(`${T}/hub-token`, () => {
        kept = undefined;
        return new HttpResponse(null, { status: 204 });
      }),
      http.post(`${T}/imports`, async ({ request }) => {
        requests = await request.json();
        return HttpResponse.json(data.upload, { status: 202 });
      }),
      http.get(`${T}/uploads/up-1`, () =>
        HttpResponse.json({ ...data.upload, imported_from: { name: "hub:org/name", revision: "v2", commit: null } }),
      ),
    );
    const { user } = openConsole("/t/acme/upload");
    await user.type(await screen.findByLabelText("Token for private repositories"), "hf_x");
    await user.click(screen.getByRole("button", { name: "Save token" }));
    expect(await screen.findByRole("button", { name: "Remove token" })).toBeVisible();
    expect(kept).toEqual({ token: "hf_x" });
    await user.click(screen.getByRole("button", { name: "Remove token" }));
    await user.click(
      within(await screen.findByRole("alertdialog", { name: "Remove the Hub token?" })).getByRole("button", {
        name: "Remove",
      }),
    );
    expect(await screen.findByLabelText("Token for private repositories")).toBeVisible();
    expect(kept).toBeUndefined();
    await user.type(screen.getByLabelText("Source"), "hub:org/name@v2");
    await user.type(screen.getByLabelText("Adapter name"), "fresh");
    await user.click(screen.getByRole("button", { name: "Import" }));
    expect(await screen.findByText(/fresh · hub:org\/name/)).toBeVisible();
    expect(requests).toEqual({ source: "hub:org/name@v2", name: "fresh" });
  });

  it("shows how much of an import has come, here and among others, and gives it up", async () => {
    let fetched: object = { imported_from: { name: "hub:org/name", revision: "v2", commit: null }, fetched_bytes: 430 };
    const now = () => ({ ...data.upload, ...fetched });
    const waiting = {
      ...data.upload,
      id: "up-2",
      state: "received",
      fetched_bytes: 10,
      imported_from: { name: "s3://bucket/a", revision: null, commit: null },
      reason: { code: "x", message: "The source answers 503.", fix: "" },
    };
    const refused = [0, 0, 1, 2, 3, 4, 5].map((number, index) => ({
      ...data.upload,
      id: `r-${index}`,
      state: "refused",
      imported_from: { name: `hub:org/r${number}`, revision: "main", commit: null },
      updated_at: new Date().toISOString(),
    }));
    server.use(
      http.get(`${T}/uploads`, () => HttpResponse.json([now(), waiting, { ...data.upload, id: "up-3" }, ...refused])),
      http.get(`${T}/uploads/up-1`, () => HttpResponse.json(now())),
      http.delete(`${T}/uploads/up-1`, () => {
        fetched = {
          ...fetched,
          fetched_bytes: null,
          state: "cancelled",
          reason: { code: "upload_cancelled", message: "The upload was cancelled by its sender.", fix: "" },
        };
        return HttpResponse.json(now());
      }),
    );
    const { user } = openConsole("/t/acme/upload");
    const list = await screen.findByRole("list", { name: "Imports" });
    expect(list).toHaveTextContent("430 B of 1.00 kB");
    expect(list).toHaveTextContent("The source answers 503.");
    expect(list).toHaveTextContent("hub:org/r0");
    expect(list).not.toHaveTextContent("hub:org/r5");
    expect(list.children).toHaveLength(2 + 5);
    await user.click(screen.getByRole("link", { name: "hub:org/name@v2" }));
    expect(await screen.findByText("Fetching, 43% of 1.00 kB…")).toBeVisible();
    await user.click(screen.getByRole("button", { name: "Cancel" }));
    expect(await screen.findByText("The upload was cancelled by its sender.")).toBeVisible();
    expect(screen.getByRole("button", { name: "Choose another source" })).toBeVisible();
  });

  it("shows many imports a few at a time, those in hand first", async () => {
    const many = Array.from({ length: 50 }, (_, index) => ({
      ...data.upload,
      id: `m-${index}`,
      state: index === 49 ? "validating" : "received",
      bytes: 1000,
      fetched_bytes: index === 49 ? 370 : 0,
      imported_from: { name: `hub:org/m${index}`, revision: null, commit: null },
    }));
    server.use(http.get(`${T}/uploads`, () => HttpResponse.json(many)));
    const { user } = openConsole("/t/acme/upload");
    const list = await screen.findByRole("list", { name: "Imports" });
    expect(list.children).toHaveLength(8);
    expect(list.firstElementChild).toHaveTextContent("hub:org/m49370 B of 1.00 kB");
    const pages = within(screen.getByRole("navigation", { name: "Pages of imports" }));
    expect(pages.getByText("1–8 of 50")).toBeVisible();
    await user.click(pages.getByRole("button", { name: "Next" }));
    expect(list).toHaveTextContent("hub:org/m7");
    expect(screen.getByText(/newest 50 uploads/)).toBeVisible();
  });

  it("follows a branch, and ends it", async () => {
    let followed: { name: string; source: string } | undefined;
    server.use(
      http.get(`${T}/follows`, () =>
        HttpResponse.json(
          followed
            ? [
                {
                  ...followed,
                  id: "f-1",
                  commit: "a".repeat(40),
                  checked_at: null,
                  problem: { message: "The Hub is away." },
                  created_at: "2026-05-04T10:00:00Z",
                },
              ]
            : [],
        ),
      ),
      http.post(`${T}/follows`, async ({ request }) => {
        followed = (await request.json()) as typeof followed;
        return HttpResponse.json({}, { status: 201 });
      }),
      http.delete(`${T}/follows/f-1`, () => {
        followed = undefined;
        return new HttpResponse(null, { status: 204 });
      }),
    );
    const { user } = openConsole("/t/acme/upload");
    await user.type(await screen.findByLabelText("Source"), "hub:org/name@main");
    await user.type(screen.getByLabelText("Adapter name"), "fresh");
    await user.click(screen.getByRole("button", { name: "Follow branch" }));
    expect(await screen.findByText("The Hub is away.")).toBeVisible();
    expect(followed).toEqual({ source: "hub:org/name@main", name: "fresh" });
    await user.click(screen.getByRole("button", { name: "Stop following for fresh" }));
    await waitFor(() => expect(screen.queryByLabelText("Followed branches")).not.toBeInTheDocument());
  });

  it("keeps keys of a bucket, and forgets them", async () => {
    let kept: unknown;
    server.use(
      http.get(`${T}/bucket-credentials`, () =>
        HttpResponse.json(
          kept ? [{ bucket: "trainings", endpoint: "", region: "us-east-1", created_at: "2026-05-04T10:00:00Z" }] : [],
        ),
      ),
      http.post(`${T}/bucket-credentials`, async ({ request }) => {
        kept = await request.json();
        return HttpResponse.json({});
      }),
      http.delete(`${T}/bucket-credentials/trainings`, () => {
        kept = undefined;
        return new HttpResponse(null, { status: 204 });
      }),
    );
    const { user } = openConsole("/t/acme/upload");
    await user.click(await screen.findByRole("button", { name: "Add bucket keys" }));
    await user.type(screen.getByLabelText("Bucket"), "trainings");
    await user.type(screen.getByLabelText("Access key id"), "AKIA");
    await user.type(screen.getByLabelText("Secret access key"), "hidden");
    await user.type(screen.getByLabelText("Session token"), "of-an-hour");
    await user.click(screen.getByRole("button", { name: "Save keys" }));
    const remove = await screen.findByRole("button", { name: "Remove keys of trainings" });
    expect(kept).toEqual({
      bucket: "trainings",
      region: "us-east-1",
      endpoint: "",
      access_key_id: "AKIA",
      secret_access_key: "hidden",
      session_token: "of-an-hour",
    });
    await user.click(remove);
    await user.click(
      within(await screen.findByRole("alertdialog", { name: "Remove keys of trainings?" })).getByRole("button", {
        name: "Remove",
      }),
    );
    await waitFor(() => expect(screen.queryByText("s3://trainings")).not.toBeInTheDocument());
  });

  it("shows every problem of the report with its fix", async () => {
    accept({ state: "refused", report: data.refusedReport });
    const user = await choose(adapterFiles());
    await screen.findByText(/The browser found no problems/);
    await user.click(screen.getByTestId("upload-submit"));
    const report = await screen.findByTestId("validation-report");
    expect(report).toHaveTextContent("q_proj expects 2048 inputs, the base has 256.");
    expect(report).toHaveTextContent("Train on lorikeet-demo.");
    expect(report).toHaveAttribute("data-ok", "false");
  });

  it("follows an accepted upload live until it is ready", async () => {
    accept({ state: "accepted", version: 1, report: data.validReport });
    server.use(http.get(`${T}/adapters/fresh/versions/1`, () => HttpResponse.json(data.version)));
    const user = await choose(adapterFiles());
    await screen.findByText(/The browser found no problems/);
    await user.click(screen.getByTestId("upload-submit"));
    const status = await screen.findByTestId("staging-status");
    expect(status).toHaveAttribute("data-state", "staging");

    const receive = (seq: number, changes: object, state = "staging") =>
      act(() =>
        FakeSocket.last.receive({
          type: "event",
          seq,
          event: "adapter.staging",
          data: {
            adapter: "fresh",
            version: 1,
            state,
            bytes_per_second: 50,
            placement: { ...data.placement, ...changes },
          },
        }),
      );
    act(() => FakeSocket.last.accept());
    act(() => FakeSocket.last.receive({ type: "hello", seq: 5 }));
    receive(6, { bytes_done: 50 });
    await waitFor(() => expect(status).toHaveTextContent("50 B of 100 B · 50 B/s · 1 s left"));

    server.use(
      http.get(`${T}/adapters/fresh/versions/1`, () =>
        HttpResponse.json({ ...data.version, state: "ready", placements: [{ ...data.placement, phase: "ready" }] }),
      ),
    );
    receive(7, { phase: "ready" }, "ready");
    expect(await screen.findByTestId("try-in-playground")).toHaveAttribute("href", "/t/acme/playground?model=fresh");
  });

  it("offers to stage again what failed", async () => {
    accept({ state: "accepted", version: 1, report: data.validReport });
    const error = { code: "disk_full", message: "The host's disk is full.", fix: "Free some space." };
    const failed = { ...data.version, state: "failed", placements: [{ ...data.placement, phase: "failed", error }] };
    let restaged = false;
    server.use(
      http.get(`${T}/adapters/fresh/versions/1`, () => HttpResponse.json(failed)),
      http.post(`${T}/adapters/fresh/versions/1/restage`, () => {
        restaged = true;
        return HttpResponse.json(data.version, { status: 202 });
      }),
    );
    const user = await choose(adapterFiles());
    await screen.findByText(/The browser found no problems/);
    await user.click(screen.getByTestId("upload-submit"));
    expect(await screen.findByText("Free some space.")).toBeVisible();
    await user.click(screen.getByRole("button", { name: "Retry staging" }));
    await waitFor(() => expect(restaged).toBe(true));
  });
});
