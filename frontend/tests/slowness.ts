import { getPriority } from "node:os";

/**
 * How many times longer every timer of a test waits. A run at the lowest priority gets what other processes leave of a
 * core, perhaps a hundredth: polls, time-outs and notes that disappear would overtake the steps of a test.
 */
export const SLOWNESS = getPriority() > 10 ? 30 : 1;
