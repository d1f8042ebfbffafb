import { TriangleAlert } from "lucide-react";
import type { Version } from "@/api/types";
import { Button } from "@/components/button";
import { ErrorNotice } from "@/components/notices";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { useVersionAction } from "./queries";

/** Asks an admin to confirm the base model of a version whose configuration names another one. */
export function BaseConfirmation({ version, className }: { version: Version; className?: string }) {
  const confirm = useVersionAction(useTenant(), version.adapter, "confirm-base");
  const may = useCan("adapters.write");
  if (!version.asks_for_base) return null;
  const model = `${version.adapter}@v${version.number}`;
  return (
    <div
      role="status"
      data-testid="base-confirmation"
      className={cn("grid gap-3 rounded-lg bg-amber-soft px-3.5 py-3 text-sm", className)}
    >
      <p className="flex gap-2.5">
        <TriangleAlert className="mt-0.5 size-4 shrink-0 text-amber-text" aria-hidden />
        <span className="min-w-0 break-words">
          <span className="block font-medium">
            The configuration names {version.named_base} as its base model, but {version.base_model} is served.
          </span>
          The shapes match, but that does not prove that the base is the same. Test it as {model}; it can be made live
          after you confirm that both are the same model.
        </span>
      </p>
      <ErrorNotice error={confirm.error} />
      {may && (
        <Button
          size="sm"
          className="justify-self-start"
          busy={confirm.isPending}
          onClick={() => confirm.mutate(version.number, { onSuccess: () => toast.good(`${model}: base confirmed`) })}
        >
          Confirm base model
        </Button>
      )}
    </div>
  );
}
