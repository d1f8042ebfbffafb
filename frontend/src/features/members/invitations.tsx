import type { Invitation, Role } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Badge, Status } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { Pager } from "@/components/pager";
import { SearchInput } from "@/components/search-input";
import { HiddenTh, Table, Td, Tr } from "@/components/table";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { useTenant } from "@/features/session/queries";
import { day } from "@/lib/format";
import { useNow } from "@/lib/use-now";
import { INVITATIONS_PAGE, invitationsQuery, useMemberActions } from "./queries";
import { roleInfo } from "./roles";
import type { MembersSearch } from "./search";

interface InvitationsProps {
  roles: Role[];
  search: MembersSearch;
  show: (change: MembersSearch) => void;
}

/** The invitations that were not accepted yet. */
export function Invitations({ roles, search, show }: InvitationsProps) {
  const { data, error, refetch } = useQuery(invitationsQuery(useTenant(), search));
  return (
    <Card title="Invitations" note="Not accepted yet">
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!data && !error && <SkeletonRows rows={2} />}
      {data && (data.total > INVITATIONS_PAGE || search.invited) && (
        <SearchInput
          landmark="Invitations"
          className="border-b px-4 py-3"
          label="E-mail address"
          value={search.invited}
          onChange={(invited) => show({ invited, invitations: undefined })}
        />
      )}
      {data?.total === 0 && (
        <p className="px-4 py-5 text-center text-sm text-ink-3">
          {search.invited ? "No invitation matches this address." : "No open invitations."}
        </p>
      )}
      {data && data.total > 0 && (
        <Table
          label="Invitations"
          columns={[
            "Person",
            ["Role", "hidden sm:table-cell"],
            ["State", "hidden sm:table-cell"],
            ["Invited by", "hidden md:table-cell"],
            ["Created", "hidden text-right sm:table-cell"],
            <HiddenTh label="Actions" className="sticky right-0" />,
          ]}
        >
          {data.rows.map((invitation) => (
            <Row key={invitation.id} invitation={invitation} may={roles.includes(invitation.role)} />
          ))}
        </Table>
      )}
      {data && (
        <Pager
          label="Pages of invitations"
          page={search.invitations}
          size={INVITATIONS_PAGE}
          total={data.total}
          onPage={(invitations) => show({ invitations })}
        />
      )}
    </Card>
  );
}

function Row({ invitation, may }: { invitation: Invitation; may: boolean }) {
  const { revoke } = useMemberActions(useTenant());
  const now = useNow(60_000);
  const late = Date.parse(invitation.expires_at) < now;
  const end = () =>
    revoke.mutate(invitation.id, {
      onSuccess: () => toast.good(`Revoked the invitation of ${invitation.email}`),
      onError: toast.bad,
    });
  const role = (
    <Badge tone={roleInfo(invitation.role).tone} className="capitalize">
      {invitation.role}
    </Badge>
  );
  const state = late ? (
    <Status tone="amber" label="Expired" />
  ) : (
    <Status tone="blue" label={`Open until ${day(invitation.expires_at)}`} />
  );
  return (
    <Tr>
      <Td className="max-w-56 font-medium sm:max-w-80">
        <span className="block truncate" title={invitation.email}>
          {invitation.email}
        </span>
        <span className="flex gap-1.5 font-normal sm:hidden">
          {role} {state}
        </span>
      </Td>
      <Td className="hidden sm:table-cell">{role}</Td>
      <Td className="hidden sm:table-cell">{state}</Td>
      <Td className="hidden text-ink-3 md:table-cell">{invitation.invited_by ?? "–"}</Td>
      <Td className="hidden text-right text-ink-3 sm:table-cell">
        <RelativeTime at={invitation.created_at} />
      </Td>
      {/* It stays in view while the rest scrolls beneath it on a phone. */}
      <Td className="sticky right-0 bg-surface px-2 text-right">
        {may && (
          <Button
            size="sm"
            variant="ghost"
            aria-label={`Revoke the invitation of ${invitation.email}`}
            busy={revoke.isPending}
            onClick={end}
          >
            Revoke
          </Button>
        )}
      </Td>
    </Tr>
  );
}
