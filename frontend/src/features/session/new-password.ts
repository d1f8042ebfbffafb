import { z } from "@/lib/zod";

/** Only what can be said without the server, which has the last word on what is too weak. */
export const newPassword = z.string().check(z.minLength(10, "At least 10 characters."));
