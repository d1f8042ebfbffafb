import { CodeBlock } from "@/components/code-block";
import { Dialog, DoneButton } from "@/components/dialog";
import { Secret } from "@/components/secret";

const CHECK = `from standardwebhooks.webhooks import Webhook  # standardwebhooks.com has more languages

message = Webhook(secret).verify(body, headers)  # raises if it is not ours`;

/** A dialog that shows a secret once. It is not loaded on demand, because a failed load would lose the secret. */
export function NewSecret({ secret, note, onClose }: { secret: string; note: string; onClose: () => void }) {
  return (
    <Dialog onClose={onClose} keepOpen title="The webhook's secret" className="max-w-2xl!">
      <div className="grid gap-4">
        <Secret value={secret} label="Copy secret" testId="webhook-secret">
          Copy the secret now. It is not shown again. {note}
        </Secret>
        <div className="min-w-0">
          <h3 className="mb-2 text-sm font-semibold">Check a message (Standard Webhooks)</h3>
          <CodeBlock code={CHECK} label="Python snippet" />
        </div>
        <DoneButton onClose={onClose} />
      </div>
    </Dialog>
  );
}
