import createClient from "openapi-fetch";
import { errorFrom, unreachable } from "./errors";
import type { paths } from "./schema";

let csrfToken = "";

/** Sets the CSRF token of later calls. Django rotates it at login, and every session answer carries the current one. */
export function setCsrfToken(token: string): void {
  csrfToken = token;
}

export const csrfHeader = (): Record<string, string> => ({ "X-CSRFToken": csrfToken });

const READ_ONLY = new Set(["GET", "HEAD", "OPTIONS"]);

export const api = createClient<paths>({
  baseUrl: globalThis.location.origin,
  // `fetch` is resolved on each call so that tests can replace it.
  fetch: (request) => globalThis.fetch(request),
});

api.use({
  onRequest({ request }) {
    if (!READ_ONLY.has(request.method)) request.headers.set("X-CSRFToken", csrfToken);
    return request;
  },
  onError: ({ error }) => (error instanceof DOMException && error.name === "AbortError" ? undefined : unreachable()),
});

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Returns the data of a successful answer, or throws its error. */
export async function unwrap<T>(call: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await call;
  if (!response.ok) throw errorFrom(error, response.status);
  return data as T;
}
