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

const client = createClient<paths>({
  baseUrl: globalThis.location.origin,
  // `fetch` is resolved on each call so that tests can replace it.
  fetch: (request) => globalThis.fetch(request),
});

client.use({
  onRequest({ request }) {
    if (!READ_ONLY.has(request.method)) request.headers.set("X-CSRFToken", csrfToken);
    return request;
  },
  onError: ({ error }) => (error instanceof DOMException && error.name === "AbortError" ? undefined : unreachable()),
});

type Method = "get" | "put" | "post" | "patch" | "delete";

/** A method and an address of the API, such as "GET /api/tenants/{tenant}/hosts". */
type Route = {
  [P in keyof paths]: { [M in Method]: undefined extends paths[P][M] ? never : `${Uppercase<M>} ${P}` }[Method];
}[keyof paths];

type Operation<R extends Route> = R extends `${infer M} ${infer P extends keyof paths}`
  ? paths[P][Lowercase<M> & keyof paths[P]]
  : never;

type Parameter<O, In extends string> = O extends { parameters: { [I in In]: infer T } } ? T : unknown;
type Query<O> = O extends { parameters: { query: infer T } }
  ? { query: T }
  : O extends { parameters: { query?: infer T } }
    ? { query?: T }
    : unknown;
type Content<T> = T extends { content: infer C } ? C[keyof C] : undefined;
type Body<O> = O extends { requestBody: infer T }
  ? { body: Content<T> }
  : O extends { requestBody?: infer T }
    ? { body?: Content<T> }
    : unknown;

/** The parameters of the address, `query` and `body` of a request. */
type Input<O> = Parameter<O, "path"> & Query<O> & Body<O>;
type Inputs<O> = Record<never, never> extends Input<O> ? [input?: Input<O>] : [input: Input<O>];
type Answer<O> = O extends { responses: infer R } ? Content<R[keyof R & (200 | 201 | 202 | 204)]> : never;

/** Sends a request, and returns its answer, or throws the error. A file makes the body a form. */
async function send(route: string, { query, body, ...path }: Record<string, object | undefined> = {}) {
  const [method, address] = route.split(" ") as [never, never];
  const isForm = Object.values(body ?? {}).some((value) => value instanceof Blob);
  const call = client.request as (method: string, address: string, init: object) => Promise<Sent>;
  const { data, error, response } = await call(method, address, {
    params: { path, query },
    body: isForm ? formOf(body as Record<string, string | Blob>) : body,
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
  ...input: Inputs<Operation<R>>
) => Promise<Answer<Operation<R>>>;

/** Returns one page of a list, and the number of its rows on all pages. */
export const requestPage = (async (route: string, input: Record<string, object>) => {
  const { data, response } = await send(route, input);
  const counted = response.headers.get("X-Total-Count");
  return { rows: data, total: counted === null ? (data as unknown[]).length : Number(counted) };
}) as <R extends Route>(
  route: R,
  ...input: Inputs<Operation<R>>
) => Promise<{ rows: Answer<Operation<R>>; total: number }>;
