import { getRouteApi } from "@tanstack/react-router";
import { UserPlus, Users } from "lucide-react";
import { Suspense, useState } from "react";
import type { Member, Role } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { Select } from "@/components/field";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { Pager } from "@/components/pager";
import { SearchInput } from "@/components/search-input";
import { SortTh } from "@/components/sort-th";
import { HiddenTh, Table, Td, Tr } from "@/components/table";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { useCan, useSession, useTenant } from "@/features/session/queries";
import { initial } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";
import { Invitations } from "./invitations";
import { MEMBERS_PAGE, membersQuery, useMemberActions } from "./queries";
import { roleInfo, rolesWithin } from "./roles";
import type { MembersSearch } from "./search";

const Invite = lazyPart(() => import("./invite"), "Invite");

const route = getRouteApi("/t/$tenant/members");

export function MembersPage() {
  const search = route.useSearch();
  const { data, error, refetch } = useQuery(membersQuery(useTenant(), search));
  const navigate = route.useNavigate();
  const show = (change: MembersSearch) =>
    void navigate({ search: (now) => ({ ...now, ...change }), replace: true, resetScroll: false });
  const inviting = search.invite ?? false;
  const setInviting = (open: boolean) => show({ invite: open || undefined });
  const may = useCan("members.write");
  const roles = useAssignableRoles();
  const invite = may && (
    <Button variant="primary" onClick={() => setInviting(true)} data-testid="invite">
      <UserPlus /> Invite
    </Button>
  );
  return (
    <Page title="Members" note="People with access to this tenant and their roles." actions={invite}>
      <ErrorNotice error={error} onRetry={refetch} />
      <div className="grid gap-4">
        {data && (data.total > MEMBERS_PAGE || search.q) && (
          <SearchInput
            landmark="Members"
            className="sm:w-80"
            label="Search by name or e-mail"
            value={search.q}
            onChange={(q) => show({ q, page: undefined })}
          />
        )}
        {!error && (
          <Card>
            {!data && <SkeletonRows />}
            {data?.total === 0 && <Nobody searched={Boolean(search.q)} />}
            {data && data.total > 0 && (
              <MemberTable
                members={data.rows}
                sort={search.sort ?? "email"}
                onSort={(sort) => show({ sort: sort === "email" ? undefined : sort, page: undefined })}
              />
            )}
            {data && (
              <Pager page={search.page} size={MEMBERS_PAGE} total={data.total} onPage={(page) => show({ page })} />
            )}
          </Card>
        )}
        {may && <Invitations roles={roles} search={search} show={show} />}
      </div>
      <Suspense>{inviting && may && <InviteMember roles={roles} onClose={() => setInviting(false)} />}</Suspense>
    </Page>
  );
}

function InviteMember({ roles, onClose }: { roles: Role[]; onClose: () => void }) {
  const { invite } = useMemberActions(useTenant());
  return <Invite title="Invite a person" invite={invite} roles={roles} defaultRole="developer" onClose={onClose} />;
}

/** Returns the roles that the person may assign and revoke here. */
function useAssignableRoles(): Role[] {
  const tenant = useTenant();
  return rolesWithin(useSession().tenants.find(({ slug }) => slug === tenant)?.role);
}

function Nobody({ searched }: { searched: boolean }) {
  return searched ? (
    <Empty icon={<Users />} title="No matches">
      No member matches this search.
    </Empty>
  ) : (
    <Empty icon={<Users />} title="No members">
      This tenant is used by API keys only.
    </Empty>
  );
}

type Sort = NonNullable<MembersSearch["sort"]>;

function MemberTable({ members, ...header }: { members: Member[]; sort: Sort; onSort: (sort: Sort) => void }) {
  const { user } = useSession();
  const [leaving, setLeaving] = useState<Member | null>(null);
  return (
    <>
      <Table
        label="Members"
        columns={[
          <SortTh label="Person" column="email" {...header} />,
          <SortTh label="Role" column="role" {...header} />,
          ["Permissions", "hidden xl:table-cell"],
          <SortTh label="Joined" column="joined_at" align="right" className="hidden lg:table-cell" {...header} />,
          <HiddenTh label="Actions" />,
        ]}
      >
        {members.map((member) => (
          <MemberRow key={member.id} member={member} you={member.id === user?.id} onRemove={() => setLeaving(member)} />
        ))}
      </Table>
      {leaving && <Remove member={leaving} you={leaving.id === user?.id} onClose={() => setLeaving(null)} />}
    </>
  );
}

function MemberRow({ member, you, onRemove }: { member: Member; you: boolean; onRemove: () => void }) {
  const { tone, can } = roleInfo(member.role);
  const mayAll = useCan("members.write");
  const roles = useAssignableRoles();
  const may = mayAll && roles.includes(member.role);
  return (
    <Tr>
      <Td className="max-w-36 pr-1 sm:max-w-56 sm:pr-4 lg:max-w-80">
        <Person member={member} you={you} />
      </Td>
      <Td className="max-sm:pr-1">
        {may ? (
          <RoleSelect member={member} roles={roles} />
        ) : (
          <Badge tone={tone} className="capitalize">
            {member.role}
          </Badge>
        )}
      </Td>
      <Td className="hidden text-ink-3 xl:table-cell">{can}</Td>
      <Td className="hidden text-right text-ink-3 lg:table-cell">
        <RelativeTime at={member.joined_at} />
      </Td>
      <Td className="pl-0 text-right sm:pl-4">
        {(you || may) && (
          <Button
            size="sm"
            variant="ghost"
            aria-label={you ? "Leave this tenant" : `Remove ${member.email}`}
            onClick={onRemove}
          >
            {you ? "Leave" : "Remove"}
          </Button>
        )}
      </Td>
    </Tr>
  );
}

function RoleSelect({ member, roles }: { member: Member; roles: Role[] }) {
  const { changeRole } = useMemberActions(useTenant());
  const change = (role: Role) =>
    changeRole.mutate(
      { id: member.id, role },
      { onSuccess: () => toast.good(`${member.email} is now ${role}`), onError: toast.bad },
    );
  return (
    <Select
      aria-label={`Role of ${member.email}`}
      value={changeRole.isPending ? changeRole.variables.role : member.role}
      onChange={(event) => !changeRole.isPending && change(event.target.value as Role)}
      className="h-8! w-28! px-2! capitalize sm:w-32!"
      options={roles}
    />
  );
}

function Remove({ member, you, onClose }: { member: Member; you: boolean; onClose: () => void }) {
  const { remove, leave } = useMemberActions(useTenant());
  const error = remove.error ?? leave.error;
  const done = () => {
    toast.good(you ? "You left the tenant" : `Removed ${member.email}`);
    onClose();
  };
  return (
    <Confirm
      onClose={onClose}
      title={you ? "Leave this tenant?" : `Remove ${member.name || member.email}?`}
      description={
        you
          ? "You lose access immediately. To return, you need a new invitation."
          : "Their sessions in this tenant end immediately, and their open invitations are revoked. API keys that they created belong to the tenant and keep working; revoke them if necessary."
      }
      action={you ? "Leave" : "Remove"}
      write={{ error, isPending: remove.isPending || leave.isPending }}
      onConfirm={() =>
        you ? leave.mutate(undefined, { onSuccess: done }) : remove.mutate(member.id, { onSuccess: done })
      }
    />
  );
}

function Person({ member, you }: { member: Member; you: boolean }) {
  const name = member.name || member.email;
  return (
    <span className="flex items-center gap-3 py-1.5">
      <span
        aria-hidden
        className="grid size-7 shrink-0 place-items-center rounded-full bg-blue-soft text-xs font-semibold text-blue-text uppercase max-sm:hidden"
      >
        {initial(name)}
      </span>
      <span className="min-w-0">
        <span className="block truncate font-medium" title={name}>
          {name} {you && <span className="font-normal text-ink-3">(you)</span>}
        </span>
        {member.name && (
          <span className="block truncate text-xs text-ink-3" title={member.email}>
            {member.email}
          </span>
        )}
        {!member.address_proven && <Badge tone="amber">address not verified</Badge>}{" "}
        {member.second_factor && <Badge tone="green">2FA</Badge>}
      </span>
    </span>
  );
}
