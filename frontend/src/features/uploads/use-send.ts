import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { asApiError, type ApiError } from "@/api/errors";
import { type Progress, sendUpload, type UploadInput } from "@/api/send-upload";
import type { Upload } from "@/api/types";
import { rereadSession } from "@/app/query-client";

interface Sending {
  progress: Progress | null;
  error: ApiError | null;
  send: (input: UploadInput, onDone: (upload: Upload) => void) => void;
  cancel: () => void;
}

/** One upload on its way. Leaving the page stops it: half an adapter is of no use. */
export function useSend(): Sending {
  const client = useQueryClient();
  const [progress, setProgress] = useState<Progress | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);

  const send: Sending["send"] = (input, onDone) => {
    abort.current = new AbortController();
    setError(null);
    setProgress({ sent: 0, total: input.files.reduce((sum, file) => sum + file.size, 0), rate: 0 });
    sendUpload(input, setProgress, abort.current.signal)
      .then((upload) => {
        client.setQueryData(["t", input.tenant, "uploads", upload.id], upload);
        onDone(upload);
      })
      .catch((cause: unknown) => {
        rereadSession(client, cause);
        setError(asApiError(cause));
      })
      .finally(() => setProgress(null));
  };
  return { progress, error, send, cancel: () => abort.current?.abort() };
}
