import type { DetailedError, HttpRequest, Upload as Tus } from "tus-js-client";
import { isArchive } from "@/lib/archive";
import { tarOf } from "@/lib/tar";
import { csrfHeader } from "./client";
import { type ApiError, errorFrom, unreachable } from "./errors";

export interface Progress {
  sent: number;
  total: number;
  /** Bytes per second over the last few seconds; 0 until it is known. */
  rate: number;
}

export interface UploadInput {
  tenant: string;
  name: string;
  description: string;
  /** Name of the base model that the adapter is for; empty means the one that its configuration names. */
  base: string;
  files: File[];
}

interface UploadCallbacks {
  onProgress: (progress: Progress) => void;
  /** The connection was lost; the upload is retried automatically. */
  onRetry: () => void;
  /** All retries failed. `resume` continues where the upload stopped, if the server still has it. */
  onError: (error: ApiError) => void;
  onDone: (id: string) => void;
}

/** A running upload. The server keeps the bytes that it acknowledged for a day, even if the page is closed. */
export interface UploadHandle {
  pause: () => void;
  resume: () => void;
  /** Cancels the upload, also on the server. */
  cancel: () => Promise<void>;
}

/** Maximum bytes of one request: some proxies refuse longer bodies. */
const CHUNK_BYTES = 64 * 1024 * 1024;
const RETRY_MS = [0, 1000, 2000, 4000, 8000, 15_000];

/** Uploads an adapter, resuming an earlier upload of the same files. */
export async function sendUpload(input: UploadInput, callbacks: UploadCallbacks): Promise<UploadHandle> {
  // The tus client is loaded on demand, so that no page waits for it.
  const { Upload } = await import("tus-js-client");
  const file = asOneFile(input);
  const meter = rateMeter();
  const upload = new Upload(file, {
    endpoint: `/api/tenants/${encodeURIComponent(input.tenant)}/uploads/resumable`,
    metadata: {
      adapter: input.name,
      filename: file.name,
      description: input.description,
      ...(input.base && { base_model: input.base }),
    },
    chunkSize: CHUNK_BYTES,
    retryDelays: RETRY_MS,
    removeFingerprintOnSuccess: true,
    fingerprint: () => Promise.resolve(fingerprint(input)),
    onBeforeRequest: (request: HttpRequest) =>
      Object.entries(csrfHeader()).forEach(([name, value]) => request.setHeader(name, value)),
    onProgress: (sent, total) => callbacks.onProgress({ sent, total, rate: meter(sent) }),
    onShouldRetry: (error) => {
      const again = isRetryable(error.originalResponse?.getStatus() ?? 0);
      if (again) callbacks.onRetry();
      return again;
    },
    onError: (error) => callbacks.onError(toApiError(error as DetailedError)),
    onSuccess: () => callbacks.onDone(idOf(upload)),
  });
  const [earlier] = await upload.findPreviousUploads();
  if (earlier) upload.resumeFromPreviousUpload(earlier);
  upload.start();
  return { pause: () => void upload.abort(), resume: () => upload.start(), cancel: () => upload.abort(true) };
}

const idOf = ({ url }: Tus) => url?.split("/").at(-1) ?? "";

/** HTTP statuses of a server that restarts, or whose other process still holds the upload's lock. */
export const isRetryable = (status: number) => status === 0 || status === 409 || status === 423 || status >= 500;

function asOneFile({ files, name }: UploadInput): File {
  const [first] = files;
  return first && files.length === 1 && isArchive(first.name) ? first : tarOf(files, `${name}.tar`);
}

/** Returns the key of an upload in this browser: the same files for the same adapter have the same key. */
function fingerprint({ tenant, name, base, files }: UploadInput): string {
  return [
    "lorikeet-upload",
    tenant,
    name,
    ...(base ? [base] : []),
    ...files.map((file) => `${file.name}:${file.size}:${file.lastModified}`),
  ].join("|");
}

function toApiError({ originalResponse }: DetailedError): ApiError {
  if (!originalResponse) return unreachable();
  return errorFrom(parsed(originalResponse.getBody()), originalResponse.getStatus());
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
}

const WINDOW_MS = 3000;

/** The transfer rate over a sliding window, so that a stalled connection shows within seconds. */
export function rateMeter(now: () => number = () => performance.now()): (total: number) => number {
  let samples: { at: number; total: number }[] = [];
  return (total) => {
    const at = now();
    samples = [...samples.filter((sample) => at - sample.at <= WINDOW_MS), { at, total }];
    const first = samples[0];
    return first && at > first.at ? ((total - first.total) / (at - first.at)) * 1000 : 0;
  };
}
