"""Second factors of people: codes of an authenticator app, passkeys, recovery codes; and tenants that require one."""
