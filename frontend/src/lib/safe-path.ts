/** Only paths of this console: an address from elsewhere in ?next= must not be followed. */
export function safePath(next: string | undefined): string {
  return next && /^\/(?![/\\])/.test(next) ? next : "/";
}
