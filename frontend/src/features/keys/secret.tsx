import type { CreatedApiKey } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Snippets } from "@/components/snippets";
import { Secret } from "@/components/secret";
import { modelsQuery } from "@/features/adapters/queries";
import { useTenant } from "@/features/session/queries";

/** The secret of a new key, with code that uses it. */
export function KeySecret({ created }: { created: CreatedApiKey }) {
  const { data: models } = useQuery(modelsQuery(useTenant()));
  const model = models?.find(({ kind }) => kind === "adapter") ?? models?.[0];
  return (
    <>
      <Secret value={created.secret} label="Copy secret" testId="key-secret">
        Copy the secret now and store it safely. It is not shown again.
      </Secret>
      <div className="min-w-0">
        <h3 className="mb-2 text-sm font-semibold">Use it</h3>
        {model && <Snippets model={model.id} origin={location.origin} secret={created.secret} />}
      </div>
    </>
  );
}
