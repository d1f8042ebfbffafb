import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { adapterFiles } from "../../tests/adapter-files";
import { refusal, server } from "../../tests/server";
import { SLOWNESS } from "../../tests/slowness";
import { serveTus } from "../../tests/tus-server";
import { setCsrfToken } from "./client";
import type { ApiError } from "./errors";
import { rateMeter, sendUpload, type UploadInput } from "./send-upload";

const RESUMABLE = "/api/tenants/acme/uploads/resumable";
const files = adapterFiles();
const input = (changes: Partial<UploadInput> = {}): UploadInput => ({
  tenant: "acme",
  name: "fresh",
  description: "für Ada",
  base: "",
  files,
  ...changes,
});

/** Send to the end, or to the error. */
function sent(request = input()) {
  const watch = { onProgress: vi.fn(), onRetry: vi.fn() };
  const ended = new Promise<string>((onDone, onError: (error: ApiError) => void) => {
    void sendUpload(request, { ...watch, onDone, onError });
  });
  return { ...watch, ended };
}

describe("sendUpload", () => {
  beforeEach(() => localStorage.clear());

  it("sends two files as one archive, with the CSRF token, and reports progress", async () => {
    setCsrfToken("csrf-9");
    const { seen, length } = serveTus();
    const { ended, onProgress } = sent();
    await expect(ended).resolves.toBe("up-1");
    expect(seen.created[0]).toMatchObject({ adapter: "fresh", filename: "fresh.tar" });
    expect(seen.tokens).toEqual(["csrf-9"]);
    expect(seen.offset).toBe(length());
    expect(onProgress).toHaveBeenLastCalledWith(expect.objectContaining({ sent: length(), total: length() }));
    expect(localStorage.length).toBe(0);
  });

  it("sends an archive as it is", async () => {
    const { seen, length } = serveTus();
    await sent(input({ files: [new File(["zip"], "mine.zip")] })).ended;
    expect(seen.created[0]?.filename).toBe("mine.zip");
    expect(length()).toBe(3);
  });

  it("goes on where an earlier attempt at the same files stopped", async () => {
    const { seen } = serveTus();
    server.use(http.patch(`${RESUMABLE}/up-1`, () => refusal(403, "forbidden", "Not now.", "Ask."), { once: true }));
    await expect(sent().ended).rejects.toMatchObject({ code: "forbidden" });
    seen.offset = 700;
    await expect(sent().ended).resolves.toBe("up-1");
    expect(seen.created).toHaveLength(1);
    expect(seen.offset).toBeGreaterThan(700);
    await sent(input({ name: "other" })).ended;
    expect(seen.created).toHaveLength(2);
  });

  it("tries again when the connection breaks", async () => {
    serveTus();
    server.use(http.patch(`${RESUMABLE}/up-1`, () => HttpResponse.error(), { once: true }));
    const { ended, onRetry } = sent();
    await expect(ended).resolves.toBe("up-1");
    expect(onRetry).toHaveBeenCalledTimes(1);
  });

  it("passes a refusal on in the server's words", async () => {
    server.use(http.post(RESUMABLE, () => refusal(413, "body_too_large", "The upload is 3 GB.", "Send at most 2 GB.")));
    await expect(sent().ended).rejects.toMatchObject({
      code: "body_too_large",
      fix: "Send at most 2 GB.",
      requestId: "req_7",
      status: 413,
    });
  });

  it("explains an answer that is no JSON", async () => {
    server.use(http.post(RESUMABLE, () => new HttpResponse("<html>Gone</html>", { status: 404 })));
    await expect(sent().ended).rejects.toMatchObject({ code: "unexpected_answer" });
  });

  it("is given up on the server too", async () => {
    const { seen } = serveTus();
    server.use(http.patch(`${RESUMABLE}/up-1`, () => new Promise<never>(() => {})));
    const created = vi.fn();
    const transfer = await sendUpload(input(), {
      onProgress: created,
      onRetry: vi.fn(),
      onDone: vi.fn(),
      onError: vi.fn(),
    });
    await vi.waitFor(() => expect(seen.created).toHaveLength(1), 30_000 * SLOWNESS);
    await vi.waitFor(() => expect(localStorage.length).toBe(1), 30_000 * SLOWNESS);
    await transfer.cancel();
    expect(seen.deleted).toBe(true);
    expect(localStorage.length).toBe(0);
  });
});

describe("rateMeter", () => {
  it("forgets what is older than its window", () => {
    let now = 0;
    const meter = rateMeter(() => now);
    meter(0);
    now = 1000;
    expect(meter(500)).toBe(500);
    now = 10_000;
    meter(500);
    now = 11_000;
    expect(meter(500)).toBe(0);
  });
});
