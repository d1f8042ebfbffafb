import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { request } from "@/api/client";
import { sessionQuery } from "@/features/session/queries";
import { createPasskey } from "@/lib/passkeys";

export const secondFactorsQuery = queryOptions({
  queryKey: ["second-factors"],
  queryFn: () => request("GET /api/second-factors"),
});

/** A change of second factors. Afterwards they are read again, and so is the session, which says whether there is one. */
function useChange<Body, Answer>(mutationFn: (body: Body) => Promise<Answer>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn,
    // An answer may contain secrets, which are shown once.
    gcTime: 0,
    onSuccess: () =>
      Promise.all([
        client.invalidateQueries({ queryKey: secondFactorsQuery.queryKey }),
        client.invalidateQueries({ queryKey: sessionQuery.queryKey, refetchType: "all" }),
      ]),
  });
}

export const useSetUpApp = () => useMutation({ gcTime: 0, mutationFn: () => request("POST /api/second-factors/app") });

export const useConfirmApp = () =>
  useChange((code: string) => request("POST /api/second-factors/app/confirm", { body: { code } }));

export const useRemoveApp = () => useChange(() => request("DELETE /api/second-factors/app"));

/** Adds a passkey. The answer is null if the person cancelled in the browser. */
export const useAddPasskey = () =>
  useChange(async (name: string) => {
    const options = await request("POST /api/second-factors/passkeys/options");
    const credential = await createPasskey(options);
    return credential && request("POST /api/second-factors/passkeys", { body: { name, credential } });
  });

export const useRemovePasskey = () =>
  useChange((id: string) => request("DELETE /api/second-factors/passkeys/{passkey_id}", { passkey_id: id }));

export const useReplaceCodes = () => useChange(() => request("POST /api/second-factors/recovery-codes"));
