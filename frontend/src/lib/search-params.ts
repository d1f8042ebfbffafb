/** Parsers of search parameters, which anybody may have typed: invalid values are treated as missing. */

/** Parses text. The router delivers a number in the address as a number. */
export const text = (value: unknown) =>
  typeof value === "string" && value !== "" ? value : typeof value === "number" ? String(value) : undefined;

/** Parses a whole number from 0 to `most`, which is the API's maximum by default. */
export const whole = (value: unknown, most = 2_000_000_000) =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) <= most ? Number(value) : undefined;

/** Parses the index of a page. 0 is the default and left out. No list has so many pages as the largest index. */
export const pageIn = (value: unknown) => whole(value, 10_000) || undefined;

export const oneOf = <T extends string | number>(value: unknown, known: readonly T[]) =>
  known.find((one) => one === value);

/** Parses a flag. */
export const flag = (value: unknown): true | undefined => value === true || undefined;
