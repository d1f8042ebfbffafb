import { queryOptions, useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { api, setCsrfToken, unwrap } from "@/api/client";
import type { Capability, Session } from "@/api/types";
import { getPasskey } from "@/lib/passkeys";
import { forgetEverywhere } from "@/lib/tab-storage";

function remember(session: Session): Session {
  setCsrfToken(session.csrf_token);
  return session;
}

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: async () => remember(await unwrap(api.GET("/api/session"))),
  staleTime: Infinity,
});

export const useSession = () => useSuspenseQuery(sessionQuery).data;

export const versionQuery = queryOptions({
  queryKey: ["version"],
  queryFn: () => unwrap(api.GET("/version")),
  staleTime: Infinity,
});

export interface Credentials {
  email: string;
  password: string;
}

export function useLogin() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async (body: Credentials) => remember(await unwrap(api.POST("/api/session", { body }))),
    onSuccess: (session) => client.setQueryData(sessionQuery.queryKey, session),
  });
}

/** The methods that complete the sign-in of this browser, or confirm that it is still the same person. */
export const methodsQuery = (address: "/api/session/second-factor" | "/api/session/confirmation") =>
  queryOptions({
    queryKey: ["session-methods", address],
    queryFn: () => unwrap(address === "/api/session/second-factor" ? api.GET(address) : api.GET(address)),
    gcTime: 0,
    staleTime: 0,
  });

type Proof = { code: string } | { credential: Record<string, unknown> } | { password: string };

/** Asks the browser for a passkey of the person. Returns null if they cancelled. */
async function passkeyProof() {
  const options = await unwrap(api.POST("/api/session/passkey"));
  const credential = await getPasskey(options);
  return credential && { credential };
}

function useProof(send: (proof: Proof) => Promise<Session>) {
  const client = useQueryClient();
  const onSuccess = (session: Session | null) => {
    if (session) client.setQueryData(sessionQuery.queryKey, remember(session));
  };
  return {
    code: useMutation({ mutationFn: (code: string) => send({ code }), onSuccess }),
    password: useMutation({ mutationFn: (password: string) => send({ password }), onSuccess }),
    passkey: useMutation({
      mutationFn: async () => {
        const proof = await passkeyProof();
        return proof && send(proof);
      },
      onSuccess,
    }),
  };
}

export const useSecondStep = () => useProof((body) => unwrap(api.POST("/api/session/second-factor", { body: body })));

export const useConfirmIdentity = () =>
  useProof((body) => unwrap(api.POST("/api/session/confirmation", { body: body })));

export function useSetName() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async (body: { name: string }) => remember(await unwrap(api.PUT("/api/profile", { body }))),
    onSuccess: (session) => client.setQueryData(sessionQuery.queryKey, session),
  });
}

/** Gives up a sign-in that waits for its second factor. Nobody is signed in, so no data of theirs is cached. */
export function useStartOver() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async () => remember(await unwrap(api.DELETE("/api/session"))),
    onSuccess: (session) => client.setQueryData(sessionQuery.queryKey, session),
  });
}

export function useLogout() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async () => remember(await unwrap(api.DELETE("/api/session"))),
    onSuccess: (session) => {
      // The next person must not see cached data.
      client.clear();
      forgetEverywhere();
      client.setQueryData(sessionQuery.queryKey, session);
    },
  });
}

/** The invitation behind a link. The token is sent in the body, because addresses are logged. */
export const invitationQuery = (token: string) =>
  queryOptions({
    queryKey: ["invitation", token],
    queryFn: () => unwrap(api.POST("/api/invitations/read", { body: { token } })),
    retry: false,
    staleTime: Infinity,
    gcTime: 0,
  });

export function useAcceptInvitation() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async (body: { token: string; name: string; password?: string }) =>
      remember(await unwrap(api.POST("/api/invitations/accept", { body }))),
    onSuccess: (session) => client.setQueryData(sessionQuery.queryKey, session),
  });
}

export const useForgotPassword = () =>
  useMutation({ mutationFn: (email: string) => unwrap(api.POST("/api/password/forgot", { body: { email } })) });

export const useResetPassword = () =>
  useMutation({
    mutationFn: (body: { token: string; password: string }) => unwrap(api.POST("/api/password/reset", { body })),
  });

export function useChangePassword() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async (body: { current_password: string; password: string }) =>
      remember(await unwrap(api.POST("/api/password", { body }))),
    onSuccess: (session) => client.setQueryData(sessionQuery.queryKey, session),
  });
}

/** Returns the tenant of the page: every page below /t/$tenant has one. */
export function useTenant(): string {
  return useParams({ strict: false, select: (params) => params.tenant ?? "" });
}

/** Returns whether the person has a capability here. It only hides buttons; the server decides. */
export function useCan(capability: Capability): boolean {
  const tenant = useTenant();
  return useSession().tenants.some(({ slug, capabilities }) => slug === tenant && capabilities.includes(capability));
}
