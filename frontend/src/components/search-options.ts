import type { UseQueryOptions } from "@tanstack/react-query";

export interface SearchOption {
  value: string;
  label: string;
  /** A second line, such as the beginning of a key. */
  note?: string;
}

/** The options that match a search, and the number of all that do. */
export interface SearchOptions {
  options: SearchOption[];
  total: number;
}

export interface SearchSelectProps {
  /** Accessible name outside a `Field`. */
  label?: string;
  value: string;
  /** Label of the selected value. */
  text: string;
  /** Options above the others, such as "Any key"; hidden while a search is typed. */
  first?: SearchOption[];
  /** Placeholder of the search. */
  hint: string;
  /** Returns the query that reads the matching options from the server. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- the type of the key does not matter here
  find: (search: string) => UseQueryOptions<any, Error, SearchOptions, any>;
  onChange: (value: string) => void;
  disabled?: boolean;
  className?: string;
  testId?: string;
}
