import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { asApiError, type ApiError } from "@/api/errors";
import { isRetryable, type Progress, sendUpload, type UploadHandle, type UploadInput } from "@/api/send-upload";
import { refetchSession } from "@/app/query-client";

export interface UploadStatus {
  phase: "sending" | "retrying" | "paused";
  progress: Progress;
}

interface UploadControl {
  /** The running upload; null before and after. */
  sent: UploadStatus | null;
  error: ApiError | null;
  send: (input: UploadInput, onDone: (id: string) => void) => void;
  pause: () => void;
  resume: () => void;
  cancel: () => void;
}

/** Manages one upload. Leaving the page pauses it; selecting the same files again resumes it. */
export function useUpload(): UploadControl {
  const client = useQueryClient();
  const [sent, setSent] = useState<UploadStatus | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const handle = useRef<UploadHandle | null>(null);
  const here = useRef(true);
  useEffect(() => {
    here.current = true;
    return () => {
      here.current = false;
      handle.current?.pause();
    };
  }, []);

  const move = (change: Partial<UploadStatus>) => setSent((now) => now && { ...now, ...change });
  const failed = (cause: unknown) => {
    const refusal = asApiError(cause);
    refetchSession(client, refusal);
    setError(refusal);
    if (isRetryable(refusal.status)) move({ phase: "paused" });
    else setSent(null);
  };
  const send: UploadControl["send"] = (input, onDone) => {
    setError(null);
    setSent({
      phase: "sending",
      progress: { sent: 0, total: input.files.reduce((sum, file) => sum + file.size, 0), rate: 0 },
    });
    sendUpload(input, {
      onProgress: (progress) => move({ phase: "sending", progress }),
      onRetry: () => move({ phase: "retrying" }),
      onError: failed,
      onDone: (id) => {
        setSent(null);
        onDone(id);
      },
    }).then((begun) => {
      handle.current = begun;
      if (!here.current) begun.pause();
    }, failed);
  };
  const pause = () => {
    handle.current?.pause();
    move({ phase: "paused" });
  };
  const resume = () => {
    setError(null);
    move({ phase: "sending" });
    handle.current?.resume();
  };
  const cancel = () => {
    setSent(null);
    setError(null);
    handle.current?.cancel().catch(failed);
  };
  return { sent, error, send, pause, resume, cancel };
}
