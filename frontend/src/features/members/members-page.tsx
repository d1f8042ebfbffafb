import { useQuery } from "@tanstack/react-query";
import { Users } from "lucide-react";
import { asApiError } from "@/api/errors";
import type { Member } from "@/api/types";
import { Page } from "@/app/page";
import { Badge, type Tone } from "@/components/badge";
import { Card } from "@/components/card";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { Table, Td, Th, Tr } from "@/components/table";
import { Ago } from "@/components/time";
import { useSession, useTenant } from "@/features/session/queries";
import { membersQuery } from "./queries";

const ROLES: Record<string, { tone: Tone; can: string }> = {
  owner: { tone: "green", can: "Everything, including the tenant itself" },
  admin: { tone: "blue", can: "Members, keys and adapters" },
  developer: { tone: "neutral", can: "Keys, adapters and inference" },
  viewer: { tone: "neutral", can: "Reads everything, changes nothing" },
};

export function MembersPage() {
  const { data, error, refetch } = useQuery(membersQuery(useTenant()));
  return (
    <Page title="Members" note="People who can open this tenant, and what each may do.">
      {error && <ErrorNotice error={asApiError(error)} onRetry={() => void refetch()} />}
      {!error && <Card>{data ? <MemberTable members={data} /> : <SkeletonRows />}</Card>}
    </Page>
  );
}

function MemberTable({ members }: { members: Member[] }) {
  const { user } = useSession();
  if (members.length === 0) {
    return (
      <Empty icon={<Users />} title="No members">
        This tenant is reached by API key only.
      </Empty>
    );
  }
  return (
    <Table label="Members">
      <thead>
        <tr>
          <Th>Person</Th>
          <Th>Role</Th>
          <Th className="hidden md:table-cell">May do</Th>
          <Th className="hidden text-right sm:table-cell">Joined</Th>
        </tr>
      </thead>
      <tbody>
        {members.map((member) => (
          <Tr key={member.id}>
            <Td>
              <Person member={member} you={member.id === user?.id} />
            </Td>
            <Td>
              <Badge tone={ROLES[member.role]?.tone} className="capitalize">
                {member.role}
              </Badge>
            </Td>
            <Td className="hidden text-ink-3 md:table-cell">{ROLES[member.role]?.can}</Td>
            <Td className="hidden text-right text-ink-3 sm:table-cell">
              <Ago at={member.joined_at} />
            </Td>
          </Tr>
        ))}
      </tbody>
    </Table>
  );
}

function Person({ member, you }: { member: Member; you: boolean }) {
  const name = member.name || member.email;
  return (
    <span className="flex items-center gap-3 py-1.5">
      <span aria-hidden className="grid size-7 shrink-0 place-items-center rounded-full bg-blue-soft text-xs font-semibold text-blue-text uppercase">
        {name[0]}
      </span>
      <span className="min-w-0">
        <span className="block truncate font-medium">
          {name} {you && <span className="font-normal text-ink-3">(you)</span>}
        </span>
        {member.name && <span className="block truncate text-xs text-ink-3">{member.email}</span>}
      </span>
    </span>
  );
}
