import type { DetailedError, HttpRequest, Upload as Tus } from "tus-js-client";
import { isArchive } from "@/lib/archive";
import { tarOf } from "@/lib/tar";
import { csrfHeader } from "./client";
import { type ApiError, errorFrom, unreachable } from "./errors";

export interface Progress {
  sent: number;
  total: number;
  /** Bytes per second over the last few seconds; 0 until known. */
  rate: number;
}

export interface UploadInput {
  tenant: string;
  name: string;
  description: string;
  files: File[];
}

export interface Watch {
  onProgress: (progress: Progress) => void;
  /** The line broke; it is tried again by itself. */
  onRetry: () => void;
  /** Given up for now. `resume` goes on where it stopped, if the server still knows the upload. */
  onError: (error: ApiError) => void;
  onDone: (id: string) => void;
}

/** An upload on its way. What the server has acknowledged stays there, for a day, also when the page is closed. */
export interface Transfer {
  pause: () => void;
  resume: () => void;
  /** Give it up, also on the server. */
  cancel: () => Promise<void>;
}

/** Each request is that long at most: some proxies take no longer bodies, and nothing is sent twice if one breaks. */
const CHUNK_BYTES = 64 * 1024 * 1024;
const RETRY_MS = [0, 1000, 2000, 4000, 8000, 15_000];

/** Send an adapter, going on with an earlier attempt at the same files. */
export async function sendUpload(input: UploadInput, watch: Watch): Promise<Transfer> {
  // Fetched when it is needed: no page waits for it.
  const { Upload } = await import("tus-js-client");
  const file = asOneFile(input);
  const meter = rateMeter();
  const upload = new Upload(file, {
    endpoint: `/api/tenants/${encodeURIComponent(input.tenant)}/uploads/resumable`,
    metadata: { adapter: input.name, filename: file.name, description: input.description },
    chunkSize: CHUNK_BYTES,
    retryDelays: RETRY_MS,
    removeFingerprintOnSuccess: true,
    fingerprint: () => Promise.resolve(fingerprint(input)),
    onBeforeRequest: (request: HttpRequest) => Object.entries(csrfHeader()).forEach(([name, value]) => request.setHeader(name, value)),
    onProgress: (sent, total) => watch.onProgress({ sent, total, rate: meter(sent) }),
    onShouldRetry: (error) => {
      const again = passes(error.originalResponse?.getStatus() ?? 0);
      if (again) watch.onRetry();
      return again;
    },
    onError: (error) => watch.onError(explained(error as DetailedError)),
    onSuccess: () => watch.onDone(idOf(upload)),
  });
  const [earlier] = await upload.findPreviousUploads();
  if (earlier) upload.resumeFromPreviousUpload(earlier);
  upload.start();
  return { pause: () => void upload.abort(), resume: () => upload.start(), cancel: () => upload.abort(true) };
}

const idOf = ({ url }: Tus) => url?.split("/").at(-1) ?? "";

/** What a server that starts again, or another process that has not let go yet, answers for a moment. */
const passes = (status: number) => status === 0 || status === 409 || status === 423 || status >= 500;

function asOneFile({ files, name }: UploadInput): File {
  const [first] = files;
  return first && files.length === 1 && isArchive(first.name) ? first : tarOf(files, `${name}.tar`);
}

/** Under which an attempt is remembered in this browser: the same files for the same adapter. */
function fingerprint({ tenant, name, files }: UploadInput): string {
  return ["lorikeet-upload", tenant, name, ...files.map((file) => `${file.name}:${file.size}:${file.lastModified}`)].join("|");
}

function explained({ originalResponse }: DetailedError): ApiError {
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

/** Rate over a sliding window: a stalled line shows as such within seconds. */
export function rateMeter(now: () => number = () => performance.now()): (total: number) => number {
  let samples: { at: number; total: number }[] = [];
  return (total) => {
    const at = now();
    samples = [...samples.filter((sample) => at - sample.at <= WINDOW_MS), { at, total }];
    const first = samples[0];
    return first && at > first.at ? ((total - first.total) / (at - first.at)) * 1000 : 0;
  };
}
