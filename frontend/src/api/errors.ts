/** The server's error envelope: what happened, what to do, and the ID to quote. */
interface ErrorDetail {
  code: string;
  message: string;
  fix: string;
  param?: string | null;
  request_id?: string | null;
}

/** Advice for programs, such as "GET keys lists them.", which the page itself shows. */
const FOR_PROGRAMS = /(?:^|\s+)GET \S+ (?:lists|shows) [^.]*\./g;

/** A failed call. The console shows `message`, and `fix` without advice for programs. */
export class ApiError extends Error {
  readonly code: string;
  readonly fix: string;
  readonly param: string | null;
  readonly requestId: string | null;

  constructor(
    detail: ErrorDetail,
    readonly status: number,
  ) {
    super(detail.message);
    this.code = detail.code;
    this.fix = detail.fix.replace(FOR_PROGRAMS, "").trim();
    this.param = detail.param ?? null;
    this.requestId = detail.request_id ?? null;
  }
}

/**
 * Returns the error of a refused call. An answer without an envelope, such as a proxy's HTML page, gets a general
 * message.
 */
export function errorFrom(body: unknown, status: number): ApiError {
  const detail = (body as { error?: Partial<ErrorDetail> } | null)?.error;
  if (typeof detail?.message === "string") {
    return new ApiError(
      { ...detail, code: detail.code ?? "error", message: detail.message, fix: detail.fix ?? "" },
      status,
    );
  }
  return new ApiError(
    {
      code: "unexpected_answer",
      message: `The server answered with status ${status} and no explanation.`,
      fix: "Try again. If the error persists, check the server log for this time.",
    },
    status,
  );
}

/** The error of an answer that is no JSON, or only a part of it. */
export const unreadable = () =>
  new ApiError(
    {
      code: "unreadable_answer",
      message: "The answer of the server cannot be read.",
      fix: "Check that no proxy and no sign-in page of your network answers in its place, then try again.",
    },
    0,
  );

export const unreachable = () =>
  new ApiError(
    {
      code: "unreachable",
      message: "The console cannot reach the server.",
      fix: "Check your connection and that Lorikeet is running (make run), then try again.",
    },
    0,
  );

export function asApiError(cause: unknown): ApiError {
  if (cause instanceof ApiError) return cause;
  return new ApiError(
    {
      code: "console_error",
      message: cause instanceof Error ? cause.message : "The console failed unexpectedly.",
      fix: "Reload the page. If the error persists, report it and describe your last action.",
    },
    0,
  );
}
