import { CornerDownRight } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/button";
import { Field, Textarea } from "@/components/field";
import type { ToolCall, ToolResult } from "./conversation";

interface FormProps {
  calls: ToolCall[];
  /** Sends the results; null while nothing can be sent. */
  onSend: ((results: ToolResult[]) => void) | null;
}

/** Inputs for the results of tool calls, because the page runs no tools. */
export function ToolResultsForm({ calls, onSend }: FormProps) {
  const [written, setWritten] = useState<Record<string, string>>({});
  const results = calls.map(({ id, name }) => ({ id, name, content: (written[id] ?? "").trim() }));
  const complete = results.every(({ content }) => content);
  return (
    <form
      className="grid gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        if (complete) onSend?.(results);
      }}
    >
      {calls.map(({ id, name }, index) => (
        <Field key={id} label={`Result of ${name}${calls.length > 1 ? `, call ${index + 1}` : ""}`}>
          <Textarea
            rows={2}
            spellCheck={false}
            className="font-mono text-xs"
            placeholder='{"sky": "sunny", "degrees": 21}'
            value={written[id] ?? ""}
            onChange={(event) => setWritten({ ...written, [id]: event.target.value })}
            data-testid="playground-result"
          />
        </Field>
      ))}
      <Button
        type="submit"
        size="sm"
        className="justify-self-start"
        disabled={!onSend || !complete}
        data-testid="playground-results-send"
      >
        <CornerDownRight /> {calls.length > 1 ? "Send results" : "Send result"}
      </Button>
    </form>
  );
}

export function ToolResultView({ result }: { result: ToolResult }) {
  return (
    <figure className="max-w-[90%] min-w-0 justify-self-end rounded-lg border" data-testid="tool-result">
      <figcaption className="px-3 py-1.5 text-xs text-ink-2">
        <code className="font-mono break-all text-ink">{result.name}</code> returned
      </figcaption>
      <pre className="border-t bg-fill px-3 py-2 font-mono text-xs break-words whitespace-pre-wrap">
        {result.content}
      </pre>
    </figure>
  );
}
