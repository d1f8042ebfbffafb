import { http, HttpResponse } from "msw";
import { describe, expect, it, vi } from "vitest";
import { adapterFiles } from "../../tests/adapter-files";
import * as data from "../../tests/data";
import { refusal, server } from "../../tests/server";
import { setCsrfToken } from "./client";
import { rateMeter, sendUpload, type UploadInput } from "./send-upload";

const URL_ = "/api/tenants/acme/uploads";
const input = (): UploadInput => ({ tenant: "acme", name: "fresh", description: "", files: adapterFiles() });
const never = new AbortController().signal;

describe("sendUpload", () => {
  it("sends name, files and the CSRF token, and reports progress", async () => {
    setCsrfToken("csrf-9");
    const seen = vi.fn();
    server.use(
      http.post(URL_, async ({ request }) => {
        const form = await request.formData();
        seen(request.headers.get("x-csrftoken"), form.get("name"), form.getAll("files").length);
        return HttpResponse.json(data.upload, { status: 202 });
      }),
    );
    const progress = vi.fn();
    await expect(sendUpload(input(), progress, never)).resolves.toMatchObject({ id: "up-1" });
    expect(seen).toHaveBeenCalledWith("csrf-9", "fresh", 2);
    expect(progress).toHaveBeenCalled();
  });

  it("passes a refusal on in the server's words", async () => {
    server.use(http.post(URL_, () => refusal(413, "upload_too_large", "The upload is 3 GB.", "Send at most 2 GB.")));
    await expect(sendUpload(input(), () => {}, never)).rejects.toMatchObject({
      code: "upload_too_large",
      message: "The upload is 3 GB.",
      fix: "Send at most 2 GB.",
      requestId: "req_7",
      status: 413,
    });
  });

  it("explains an answer that is no JSON", async () => {
    server.use(http.post(URL_, () => new HttpResponse("<html>Bad gateway</html>", { status: 502 })));
    await expect(sendUpload(input(), () => {}, never)).rejects.toMatchObject({ code: "unexpected_answer" });
  });

  it("explains a server that is away", async () => {
    server.use(http.post(URL_, () => HttpResponse.error()));
    await expect(sendUpload(input(), () => {}, never)).rejects.toMatchObject({ code: "unreachable" });
  });

  it("can be cancelled", async () => {
    server.use(http.post(URL_, () => new Promise<never>(() => {})));
    const abort = new AbortController();
    const sending = sendUpload(input(), () => {}, abort.signal);
    abort.abort();
    await expect(sending).rejects.toMatchObject({ code: "cancelled" });
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
