/** Reading what an address holds, which anybody may have typed: what does not fit is as if it were not there. */

/** A whole number that somebody typed into the address arrives as one. */
export const text = (value: unknown) =>
  typeof value === "string" && value !== "" ? value : typeof value === "number" ? String(value) : undefined;

export const whole = (value: unknown) => (Number.isInteger(value) && Number(value) >= 0 ? Number(value) : undefined);

/** Of a list, from 0, which is left out. */
export const pageIn = (value: unknown) => whole(value) || undefined;

export const oneOf = <T extends string | number>(value: unknown, known: readonly T[]) =>
  known.find((one) => one === value);

/** Whether something is open or on. */
export const flag = (value: unknown): true | undefined => value === true || undefined;
