/**
 * Returns `path` if it is a path of this console: the address in ?next= may come from elsewhere and must not be
 * followed.
 */
export function safePath(next: string | undefined): string {
  return next && /^\/(?![/\\])/.test(next) ? next : "/";
}
