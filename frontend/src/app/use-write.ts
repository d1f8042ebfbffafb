import { type QueryKey, useMutation, useQueryClient } from "@tanstack/react-query";

/**
 * A mutation after whose success all queries below `key`, and below each of `also`, are read again. With `secret`, its
 * answer does not stay in memory after its dialog is gone.
 */
export function useWrite<Body, Answer>(
  key: QueryKey,
  mutationFn: (body: Body) => Promise<Answer>,
  { secret = false, also = [] }: { secret?: boolean; also?: QueryKey[] } = {},
) {
  const client = useQueryClient();
  return useMutation({
    mutationFn,
    onSuccess: () => Promise.all([key, ...also].map((queryKey) => client.invalidateQueries({ queryKey }))),
    ...(secret ? { gcTime: 0 } : {}),
  });
}

/** A mutation whose answer replaces the data of the query `key`. */
export function useReplace<Body, Answer>(key: QueryKey, mutationFn: (body: Body) => Promise<Answer>) {
  const client = useQueryClient();
  return useMutation({ mutationFn, onSuccess: (answer: Answer) => client.setQueryData(key, answer) });
}
