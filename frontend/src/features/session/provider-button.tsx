import { LogIn } from "lucide-react";
import { Button } from "@/components/button";
import { useSession } from "./queries";

/** A link to the organisation's identity provider, which returns to `next`; nothing if there is none. */
export function ProviderButton({ next }: { next: string }) {
  const { provider } = useSession();
  if (!provider) return null;
  return (
    <Button asChild className="h-auto! min-h-9.5 min-w-0 py-2 whitespace-normal!" data-testid="login-provider">
      <a href={`/api/oidc/start?next=${encodeURIComponent(next)}`}>
        <LogIn /> Continue with {provider}
      </a>
    </Button>
  );
}
