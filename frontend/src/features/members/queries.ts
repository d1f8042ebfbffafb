import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { request, requestPage } from "@/api/client";
import type { Role } from "@/api/types";
import { useWrite } from "@/app/use-write";
import type { MembersSearch } from "./search";

export const MEMBERS_PAGE = 50;

/** A page of the members, searched and sorted by the server, and the number of matching members. */
export const membersQuery = (tenant: string, { q = "", sort = "email", page = 0 }: MembersSearch) =>
  queryOptions({
    queryKey: ["t", tenant, "members", q, sort, page],
    queryFn: () =>
      requestPage("GET /api/tenants/{tenant}/members", {
        tenant,
        query: { search: q, sort, offset: page * MEMBERS_PAGE, limit: MEMBERS_PAGE },
      }),
    placeholderData: keepPreviousData,
  });

export const INVITATIONS_PAGE = 20;

export const invitationsQuery = (tenant: string, { invited: search = "", invitations: page = 0 }: MembersSearch) =>
  queryOptions({
    queryKey: ["t", tenant, "invitations", search, page],
    queryFn: () =>
      requestPage("GET /api/tenants/{tenant}/invitations", {
        tenant,
        query: { search, offset: page * INVITATIONS_PAGE, limit: INVITATIONS_PAGE },
      }),
    placeholderData: keepPreviousData,
  });

interface NewInvitation {
  email: string;
  role: Role;
}

/** Mutations of members and invitations, after which the lists are read again. */
export function useMemberActions(tenant: string) {
  const client = useQueryClient();
  const members = ["t", tenant, "members"];
  const invitations = ["t", tenant, "invitations"];
  return {
    changeRole: useWrite(members, ({ id, role }: { id: string; role: Role }) =>
      request("PATCH /api/tenants/{tenant}/members/{user_id}", { tenant, user_id: id, body: { role } }),
    ),
    remove: useWrite(members, (id: string) =>
      request("DELETE /api/tenants/{tenant}/members/{user_id}", { tenant, user_id: id }),
    ),
    leave: useMutation({
      mutationFn: () => request("DELETE /api/tenants/{tenant}/membership", { tenant }),
      onSuccess: () => client.invalidateQueries({ queryKey: ["session"], refetchType: "all" }),
    }),
    // The answer contains the link.
    invite: useWrite(
      invitations,
      (body: NewInvitation) => request("POST /api/tenants/{tenant}/invitations", { tenant, body }),
      { secret: true },
    ),
    revoke: useWrite(invitations, (invitation_id: string) =>
      request("DELETE /api/tenants/{tenant}/invitations/{invitation_id}", { tenant, invitation_id }),
    ),
  };
}
