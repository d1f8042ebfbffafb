import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { request } from "@/api/client";
import { useQuery } from "@/app/use-query";
import { Status } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { toast } from "@/components/toast";
import { useConfirmed } from "@/features/account/confirm-identity";
import { sessionQuery, useCan, useSession, useTenant } from "@/features/session/queries";
import { plural } from "@/lib/format";

const securityQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "security"],
    queryFn: () => request("GET /api/tenants/{tenant}/security", { tenant }),
  });

function useSetSecurity(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (required: boolean) =>
      request("PUT /api/tenants/{tenant}/security", { tenant, body: { second_factor_required: required } }),
    onSuccess: (data) => {
      client.setQueryData(securityQuery(tenant).queryKey, data);
      return client.invalidateQueries({ queryKey: sessionQuery.queryKey, refetchType: "all" });
    },
  });
}

/** The setting whether members need a second factor. */
export function SecurityCard() {
  const tenant = useTenant();
  const { data, error, refetch } = useQuery(securityQuery(tenant));
  const may = useCan("tenant.write");
  const required = data?.second_factor_required;
  return (
    <Card
      title="Two-factor authentication"
      note="For members of this tenant"
      actions={data && <Status tone={required ? "green" : "neutral"} label={required ? "Required" : "Optional"} />}
    >
      <div className="grid gap-4 p-4 text-sm">
        <p className="max-w-prose text-ink-2">
          While it is required, members without a second factor can only set one up. API keys are not affected.
        </p>
        <ErrorNotice error={error} onRetry={refetch} />
        {!error && !data && <Skeleton className="h-9 w-64" />}
        {data && <Without count={data.members_without} />}
        {data && may && <Choose required={data.second_factor_required} without={data.members_without} />}
        {data && !may && <p className="text-ink-3">Owners of the tenant can change this.</p>}
      </div>
    </Card>
  );
}

function Without({ count }: { count: number }) {
  return (
    <p className="text-ink-3">
      {count === 0 ? "All members have a second factor." : `${plural(count, "member")} without a second factor.`}
    </p>
  );
}

function Choose({ required, without }: { required: boolean; without: number }) {
  const tenant = useTenant();
  const set = useSetSecurity(tenant);
  const { user } = useSession();
  const [asking, setAsking] = useState(false);
  const { run, dialog } = useConfirmed();
  if (!required && !user?.second_factor)
    return (
      <p className="text-ink-2">
        To require it, first{" "}
        <Link
          to="/t/$tenant/account"
          params={{ tenant }}
          search={{ tab: "security" }}
          className="text-blue-text underline underline-offset-2"
        >
          set up your own second factor
        </Link>
        .
      </p>
    );
  return (
    <div>
      <Button
        variant={required ? "secondary" : "primary"}
        onClick={() => run(() => setAsking(true))}
        data-testid="require-second-factor"
      >
        {required ? "Make it optional" : "Require it"}
      </Button>
      {dialog}
      <Confirm
        open={asking}
        onClose={() => setAsking(false)}
        title={required ? "Make two-factor authentication optional?" : "Require two-factor authentication?"}
        description={
          required
            ? "Members may then remove their second factors."
            : without === 0
              ? "New members will have to set up a second factor before they can do anything else."
              : `${plural(without, "member")} without a second factor can do nothing else until they set one up. What they are doing now is interrupted.`
        }
        action={required ? "Make optional" : "Require"}
        write={set}
        onConfirm={() =>
          set.mutate(!required, {
            onSuccess: () => {
              setAsking(false);
              toast.good(required ? "Two-factor authentication is optional" : "Two-factor authentication is required");
            },
          })
        }
      />
    </div>
  );
}
