import { http, HttpResponse } from "msw";
import { server } from "./server";

/** Answers resumable uploads as the control plane does, and keeps what it was told. */
export function serveTus(tenant = "acme", id = "up-1") {
  const path = `/api/tenants/${tenant}/uploads/resumable`;
  const seen = {
    created: [] as Record<string, string>[],
    tokens: [] as (string | null)[],
    offset: 0,
    deleted: false,
    patches: 0,
  };
  const headers = () => ({ "Tus-Resumable": "1.0.0", "Upload-Offset": String(seen.offset) });
  let length = 0;
  server.use(
    http.post(path, ({ request }) => {
      seen.offset = 0;
      length = Number(request.headers.get("Upload-Length"));
      seen.created.push(metadata(request.headers.get("Upload-Metadata") ?? ""));
      seen.tokens.push(request.headers.get("X-CSRFToken"));
      return new HttpResponse(null, { status: 201, headers: { ...headers(), Location: `${path}/${id}` } });
    }),
    http.head(
      `${path}/${id}`,
      () => new HttpResponse(null, { headers: { ...headers(), "Upload-Length": String(length) } }),
    ),
    http.patch(`${path}/${id}`, async ({ request }) => {
      seen.patches += 1;
      seen.offset += (await request.arrayBuffer()).byteLength;
      return new HttpResponse(null, { status: 204, headers: headers() });
    }),
    http.delete(`${path}/${id}`, () => {
      seen.deleted = true;
      return new HttpResponse(null, { status: 204, headers: { "Tus-Resumable": "1.0.0" } });
    }),
    http.delete(`/api/tenants/${tenant}/uploads/${id}`, () => {
      seen.deleted = true;
      return HttpResponse.json({});
    }),
  );
  return { seen, path, length: () => length };
}

const metadata = (header: string) =>
  Object.fromEntries(
    header
      .split(",")
      .map((pair) => pair.split(" "))
      .map(([key = "", value = ""]) => [key, atob(value)]),
  ) as Record<string, string>;
