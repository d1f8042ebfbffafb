import createClient from "openapi-fetch";
import { errorFrom, unreachable, unreadable } from "./errors";
import type { Operations } from "./schema";

let csrfToken = "";

/** Sets the CSRF token of later calls. Django rotates it at login, and every session answer carries the current one. */
export function setCsrfToken(token: string): void {
  csrfToken = token;
}

export const csrfHeader = (): Record<string, string> => ({ "X-CSRFToken": csrfToken });

const READ_ONLY = new Set(["GET", "HEAD", "OPTIONS"]);
// Milliseconds after which a read without an answer has failed. A connection that is lost without notice would keep a
// page from reading again for many minutes. The result of a write is unknown then, so that it waits.
const READ_TIMEOUT_MS = 60_000;

const client = createClient({
  baseUrl: globalThis.location.origin,
  // `fetch` is resolved on each call so that tests can replace it.
  fetch: (request) =>
    READ_ONLY.has(request.method)
      ? globalThis.fetch(request, { signal: AbortSignal.timeout(READ_TIMEOUT_MS) })
      : globalThis.fetch(request),
});

client.use({
  onRequest({ request }) {
    if (!READ_ONLY.has(request.method)) request.headers.set("X-CSRFToken", csrfToken);
    return request;
  },
});

/** A method and an address of the API, such as "GET /api/tenants/{tenant}/hosts". */
type Route = keyof Operations;

/** The parameters of the address, `query` and `body` of a request. */
type Input<R extends Route> = Operations[R]["input"];
type Inputs<R extends Route> = Record<never, never> extends Input<R> ? [input?: Input<R>] : [input: Input<R>];
type Answer<R extends Route> = Operations[R] extends { answer: infer T } ? T : undefined;

/** Sends a request, and returns its answer, or throws the error. A file makes the body a form. */
async function send(route: string, { query, body, ...path }: Record<string, object | undefined> = {}) {
  const [method, address] = route.split(" ") as [never, never];
  const isForm = Object.values(body ?? {}).some((value) => value instanceof Blob);
  const call = client.request as (method: string, address: string, init: object) => Promise<Sent>;
  const { data, error, response } = await call(method, address, {
    params: { path, query },
    body: isForm ? formOf(body as Record<string, string | Blob>) : body,
  }).catch((cause: unknown) => {
    throw cause instanceof SyntaxError ? unreadable() : unreachable();
  });
  if (!response.ok) throw errorFrom(error, response.status);
  return { data, response };
}

interface Sent {
  data?: unknown;
  error?: unknown;
  response: Response;
}

function formOf(fields: Record<string, string | Blob>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  return form;
}

/** Returns the data of a successful answer, or throws its error. */
export const request = (async (route: string, input?: Record<string, object>) => (await send(route, input)).data) as <
  R extends Route,
>(
  route: R,
  ...input: Inputs<R>
) => Promise<Answer<R>>;

/** Returns one page of a list, and the number of its rows on all pages. */
export const requestPage = (async (route: string, input: Record<string, object>) => {
  const { data, response } = await send(route, input);
  const counted = response.headers.get("X-Total-Count");
  return { rows: data, total: counted === null ? (data as unknown[]).length : Number(counted) };
}) as <R extends Route>(route: R, ...input: Inputs<R>) => Promise<{ rows: Answer<R>; total: number }>;
