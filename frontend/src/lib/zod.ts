import * as z from "zod/mini";

// zod compiles schemas with `new Function` where it may; the content security policy forbids that, and even the
// probe for it would be reported as a violation.
z.config({ jitless: true });

export { z };
