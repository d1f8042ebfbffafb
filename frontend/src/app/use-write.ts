import { type QueryKey, useMutation, useQueryClient } from "@tanstack/react-query";

/**
 * A mutation after whose success all queries below `key` are read again. With `secret`, its answer does not stay in
 * memory after its dialog is gone.
 */
export function useWrite<Body, Answer>(
  key: QueryKey,
  mutationFn: (body: Body) => Promise<Answer>,
  { secret = false } = {},
) {
  const client = useQueryClient();
  return useMutation({
    mutationFn,
    onSuccess: () => client.invalidateQueries({ queryKey: key }),
    ...(secret ? { gcTime: 0 } : {}),
  });
}
