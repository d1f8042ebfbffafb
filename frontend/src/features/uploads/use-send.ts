import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { asApiError, type ApiError } from "@/api/errors";
import { type Progress, sendUpload, type Transfer, type UploadInput } from "@/api/send-upload";
import { rereadSession } from "@/app/query-client";

export interface Sent {
  phase: "sending" | "retrying" | "paused";
  progress: Progress;
}

interface Sending {
  /** Null before and after. */
  sent: Sent | null;
  error: ApiError | null;
  send: (input: UploadInput, onDone: (id: string) => void) => void;
  pause: () => void;
  resume: () => void;
  cancel: () => void;
}

/** Something that may pass: the upload waits where it is. Any other refusal is an answer, and the form comes back. */
const mayPass = ({ status }: ApiError) => status === 0 || status === 409 || status === 423 || status >= 500;

/** One upload on its way. Leaving the page pauses it; choosing the same files again goes on with it. */
export function useSend(): Sending {
  const client = useQueryClient();
  const [sent, setSent] = useState<Sent | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const transfer = useRef<Transfer | null>(null);
  const here = useRef(true);
  useEffect(() => {
    here.current = true;
    return () => {
      here.current = false;
      transfer.current?.pause();
    };
  }, []);

  const move = (change: Partial<Sent>) => setSent((now) => now && { ...now, ...change });
  const failed = (cause: unknown) => {
    const refusal = asApiError(cause);
    rereadSession(client, refusal);
    setError(refusal);
    if (mayPass(refusal)) move({ phase: "paused" });
    else setSent(null);
  };
  const send: Sending["send"] = (input, onDone) => {
    setError(null);
    setSent({ phase: "sending", progress: { sent: 0, total: input.files.reduce((sum, file) => sum + file.size, 0), rate: 0 } });
    sendUpload(input, {
      onProgress: (progress) => move({ phase: "sending", progress }),
      onRetry: () => move({ phase: "retrying" }),
      onError: failed,
      onDone: (id) => {
        setSent(null);
        onDone(id);
      },
    }).then((begun) => {
      transfer.current = begun;
      if (!here.current) begun.pause();
    }, failed);
  };
  const pause = () => {
    transfer.current?.pause();
    move({ phase: "paused" });
  };
  const resume = () => {
    setError(null);
    move({ phase: "sending" });
    transfer.current?.resume();
  };
  const cancel = () => {
    setSent(null);
    setError(null);
    transfer.current?.cancel().catch(failed);
  };
  return { sent, error, send, pause, resume, cancel };
}
