import { queryOptions, useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { request, setCsrfToken } from "@/api/client";
import type { Capability, Session } from "@/api/types";
import { useReplace } from "@/app/use-write";
import { getPasskey } from "@/lib/passkeys";
import { forgetEverywhere } from "@/lib/tab-storage";

function remember(session: Session): Session {
  setCsrfToken(session.csrf_token);
  return session;
}

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: async () => remember(await request("GET /api/session")),
  staleTime: Infinity,
});

export const useSession = () => useSuspenseQuery(sessionQuery).data;

export const versionQuery = queryOptions({
  queryKey: ["version"],
  queryFn: () => request("GET /version"),
  staleTime: Infinity,
});

export interface Credentials {
  email: string;
  password: string;
}

export const useLogin = () =>
  useReplace(sessionQuery.queryKey, async (body: Credentials) =>
    remember(await request("POST /api/session", { body })),
  );

/** The methods that complete the sign-in of this browser, or confirm that it is still the same person. */
export const methodsQuery = (address: "/api/session/second-factor" | "/api/session/confirmation") =>
  queryOptions({
    queryKey: ["session-methods", address],
    queryFn: () => request(`GET ${address}`),
    gcTime: 0,
    staleTime: 0,
  });

interface Proof {
  code?: string;
  credential?: Record<string, unknown>;
  password?: string;
}

/** Asks the browser for a passkey of the person. Returns null if they cancelled. */
async function passkeyProof() {
  const options = await request("POST /api/session/passkey");
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

export const useSecondStep = () => useProof((body) => request("POST /api/session/second-factor", { body }));

export const useConfirmIdentity = () => useProof((body) => request("POST /api/session/confirmation", { body }));

export const useSetName = () =>
  useReplace(sessionQuery.queryKey, async (body: { name: string }) =>
    remember(await request("PUT /api/profile", { body })),
  );

/** Gives up a sign-in that waits for its second factor. Nobody is signed in, so no data of theirs is cached. */
export const useStartOver = () =>
  useReplace(sessionQuery.queryKey, async () => remember(await request("DELETE /api/session")));

export function useLogout() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async () => remember(await request("DELETE /api/session")),
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
    queryFn: () => request("POST /api/invitations/read", { body: { token } }),
    retry: false,
    staleTime: Infinity,
    gcTime: 0,
  });

export const useAcceptInvitation = () =>
  useReplace(sessionQuery.queryKey, async (body: { token: string; name: string; password?: string }) =>
    remember(await request("POST /api/invitations/accept", { body })),
  );

export const useForgotPassword = () =>
  useMutation({ mutationFn: (email: string) => request("POST /api/password/forgot", { body: { email } }) });

export const useResetPassword = () =>
  useMutation({
    mutationFn: (body: { token: string; password: string }) => request("POST /api/password/reset", { body }),
  });

export const useChangePassword = () =>
  useReplace(sessionQuery.queryKey, async (body: { current_password: string; password: string }) =>
    remember(await request("POST /api/password", { body })),
  );

/** Returns the tenant of the page: every page below /t/$tenant has one. */
export function useTenant(): string {
  return useParams({ strict: false, select: (params) => params.tenant ?? "" });
}

/** Returns whether the person has a capability here. It only hides buttons; the server decides. */
export function useCan(capability: Capability): boolean {
  const tenant = useTenant();
  return useSession().tenants.some(({ slug, capabilities }) => slug === tenant && capabilities.includes(capability));
}
