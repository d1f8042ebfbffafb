import { z } from "@/lib/zod";

/** Checks that need no server. The server decides which passwords are too weak. */
export const newPassword = z.string().check(z.minLength(10, "At least 10 characters."));
