import { TriangleAlert } from "lucide-react";
import { Button } from "@/components/button";
import { CodeBlock, CopyButton } from "@/components/code-block";
import { Dialog } from "@/components/dialog";

const CHECK = `from standardwebhooks.webhooks import Webhook  # standardwebhooks.com has more languages

message = Webhook(secret).verify(body, headers)  # raises if it is not ours`;

/** Shown once, and not fetched when it is needed: a part that does not arrive would lose it. */
export function NewSecret({ secret, note, onClose }: { secret: string; note: string; onClose: () => void }) {
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      keepOpen
      title="The webhook's secret"
      className="max-w-2xl!"
    >
      <div className="grid gap-4">
        <div className="flex gap-2.5 rounded-lg bg-amber-soft px-3.5 py-2.5 text-sm text-amber-text">
          <TriangleAlert className="mt-0.5 size-4 shrink-0" aria-hidden />
          Copy the secret now. It is not shown again. {note}
        </div>
        <div className="flex items-center gap-2 rounded-lg border border-line-2 bg-fill py-1.5 pr-1.5 pl-3.5">
          <code data-testid="webhook-secret" className="min-w-0 flex-1 font-mono text-sm break-all">
            {secret}
          </code>
          <CopyButton text={secret} label="Copy secret" />
        </div>
        <div className="min-w-0">
          <h3 className="mb-2 text-sm font-semibold">Check a message (Standard Webhooks)</h3>
          <CodeBlock code={CHECK} label="Python snippet" />
        </div>
        <div className="flex justify-end">
          <Button variant="primary" onClick={onClose}>
            Done
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
