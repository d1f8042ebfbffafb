import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { Role } from "@/api/types";
import type { MembersSearch } from "./search";

export const MEMBERS_PAGE = 50;

/** A page of the members, searched and sorted by the server, and the number of matching members. */
export const membersQuery = (tenant: string, { q = "", sort = "email", page = 0 }: MembersSearch) =>
  queryOptions({
    queryKey: ["t", tenant, "members", q, sort, page],
    queryFn: async () => {
      const query = { search: q, sort, offset: page * MEMBERS_PAGE, limit: MEMBERS_PAGE };
      const answer = await api.GET("/api/tenants/{tenant}/members", { params: { path: { tenant }, query } });
      const members = await unwrap(Promise.resolve(answer));
      return { members, total: Number(answer.response.headers.get("X-Total-Count") ?? members.length) };
    },
    placeholderData: keepPreviousData,
  });

export const INVITATIONS_PAGE = 20;

export const invitationsQuery = (tenant: string, { invited: search = "", invitations: page = 0 }: MembersSearch) =>
  queryOptions({
    queryKey: ["t", tenant, "invitations", search, page],
    queryFn: async () => {
      const query = { search, offset: page * INVITATIONS_PAGE, limit: INVITATIONS_PAGE };
      const answer = await api.GET("/api/tenants/{tenant}/invitations", { params: { path: { tenant }, query } });
      const invitations = await unwrap(Promise.resolve(answer));
      return { invitations, total: Number(answer.response.headers.get("X-Total-Count") ?? invitations.length) };
    },
    placeholderData: keepPreviousData,
  });

interface NewInvitation {
  email: string;
  role: Role;
}

/** Mutations of members and invitations, after which the lists are read again. */
export function useMemberActions(tenant: string) {
  const client = useQueryClient();
  const read = (name: string) => () => client.invalidateQueries({ queryKey: ["t", tenant, name] });
  const member = (user_id: string) => ({ params: { path: { tenant, user_id } } });
  return {
    changeRole: useMutation({
      mutationFn: ({ id, role }: { id: string; role: Role }) =>
        unwrap(api.PATCH("/api/tenants/{tenant}/members/{user_id}", { ...member(id), body: { role } })),
      onSuccess: read("members"),
    }),
    remove: useMutation({
      mutationFn: (id: string) => unwrap(api.DELETE("/api/tenants/{tenant}/members/{user_id}", member(id))),
      onSuccess: read("members"),
    }),
    leave: useMutation({
      mutationFn: () => unwrap(api.DELETE("/api/tenants/{tenant}/membership", { params: { path: { tenant } } })),
      onSuccess: () => client.invalidateQueries({ queryKey: ["session"], refetchType: "all" }),
    }),
    // The answer contains the link. It must not stay in memory after the dialog is closed.
    invite: useMutation({
      mutationFn: (body: NewInvitation) =>
        unwrap(api.POST("/api/tenants/{tenant}/invitations", { params: { path: { tenant } }, body })),
      onSuccess: read("invitations"),
      gcTime: 0,
    }),
    revoke: useMutation({
      mutationFn: (invitation_id: string) =>
        unwrap(
          api.DELETE("/api/tenants/{tenant}/invitations/{invitation_id}", {
            params: { path: { tenant, invitation_id } },
          }),
        ),
      onSuccess: read("invitations"),
    }),
  };
}
