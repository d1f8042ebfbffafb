import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { BatchEndpoint } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { CodeBlock } from "@/components/code-block";
import { FormDialog } from "@/components/dialog";
import { Field, Input, Select } from "@/components/field";
import { KeySelect } from "@/features/keys/key-select";
import { keyOptionsQuery, RUNNABLE } from "@/features/keys/queries";
import { useTenant } from "@/features/session/queries";
import { useBatchActions } from "./queries";

const ENDPOINTS: [endpoint: BatchEndpoint, label: string][] = [
  ["/v1/chat/completions", "Chat completions"],
  ["/v1/completions", "Completions"],
  ["/v1/embeddings", "Embeddings"],
];
const EXAMPLE_BODIES: Record<BatchEndpoint, string> = {
  "/v1/chat/completions": `"messages": [{"role": "user", "content": "Hello"}]`,
  "/v1/completions": `"prompt": "Hello", "max_tokens": 64`,
  "/v1/embeddings": `"input": "Hello"`,
};
const example = (endpoint: BatchEndpoint) => `{"custom_id": "1", "method": "POST",
 "url": "${endpoint}",
 "body": {"model": "support",
  ${EXAMPLE_BODIES[endpoint]}}}`;

export function NewBatch({ onClose }: { onClose: () => void }) {
  const tenant = useTenant();
  const { create } = useBatchActions(tenant);
  const keys = useQuery(keyOptionsQuery(tenant, "", RUNNABLE));
  const [file, setFile] = useState<File>();
  const [endpoint, setEndpoint] = useState<BatchEndpoint>("/v1/chat/completions");
  const [chosen, setKey] = useState("");
  const key = chosen || keys.data?.options[0]?.value || "";
  const error = create.error ?? keys.error;
  return (
    <FormDialog
      onClose={onClose}
      title="New batch"
      description="Requests run within one day, after all other requests."
      write={{ error, isPending: create.isPending }}
      action="Start batch"
      disabled={!file || !key}
      testId="batch-submit"

      onSubmit={() => {
        if (file && key) create.mutate({ file, endpoint, key }, { onSuccess: onClose });
      }}
    >
      {keys.data?.total === 0 && (
        <p className="rounded-lg bg-amber-soft px-3.5 py-2.5 text-sm text-amber-text">
          A batch needs an active API key that may run inference, and there is none.{" "}
          <Link to="/t/$tenant/keys" params={{ tenant }} className="underline underline-offset-2">
            Create a key
          </Link>
        </p>
      )}
      <Field label="File" hint="JSON Lines with one request per line, each with its own custom_id.">
        <Input
          type="file"
          accept=".jsonl,.ndjson,.json,.txt"
          className="py-1.5"
          onChange={(event) => setFile(event.target.files?.[0])}
          data-testid="batch-file"
        />
      </Field>
      <CodeBlock code={example(endpoint)} label="A line (written here in several)" />
      <Field label="Endpoint" hint="Applies to every request in the file.">
        <Select
          value={endpoint}
          onChange={(event) => setEndpoint(event.target.value as BatchEndpoint)}
          options={ENDPOINTS}
        />
      </Field>
      <Field label="API key" hint="The requests count against this key’s limits; revoking it ends the batch.">
        <KeySelect value={key} disabled={!key} onChange={setKey} filter={RUNNABLE} testId="batch-key" />
      </Field>
    </FormDialog>
  );
}
