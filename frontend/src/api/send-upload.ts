import { csrfHeader } from "./client";
import { ApiError, errorFrom, unreachable } from "./errors";
import type { Upload } from "./types";

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

/** Send an adapter. XMLHttpRequest, because fetch cannot tell how much of a body has left. */
export function sendUpload(input: UploadInput, onProgress: (progress: Progress) => void, signal: AbortSignal): Promise<Upload> {
  const { promise, resolve, reject } = deferred<Upload>();
  const request = new XMLHttpRequest();
  const meter = rateMeter();
  request.open("POST", `/api/tenants/${encodeURIComponent(input.tenant)}/uploads`);
  request.responseType = "json";
  Object.entries(csrfHeader()).forEach(([name, value]) => request.setRequestHeader(name, value));
  request.upload.onprogress = ({ loaded, total }) => onProgress({ sent: loaded, total, rate: meter(loaded) });
  request.onload = () => (request.status < 300 ? resolve(request.response as Upload) : reject(errorFrom(request.response, request.status)));
  request.onerror = () => reject(unreachable());
  const cancel = () => {
    request.abort();
    reject(cancelled());
  };
  signal.addEventListener("abort", cancel, { once: true });
  request.send(form(input));
  return promise;
}

function deferred<T>() {
  let resolve!: (value: T) => void;
  let reject!: (reason: Error) => void;
  const promise = new Promise<T>((yes, no) => ([resolve, reject] = [yes, no]));
  return { promise, resolve, reject };
}

function form({ name, description, files }: UploadInput): FormData {
  const data = new FormData();
  data.append("name", name);
  if (description) data.append("description", description);
  files.forEach((file) => data.append("files", file, file.name));
  return data;
}

const cancelled = () =>
  new ApiError({ code: "cancelled", message: "The upload was cancelled.", fix: "Nothing was kept; send it again whenever you like." }, 0);

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
