/** The columns of the list of requests that people choose, in the order of the table. */
export const COLUMNS = {
  key: "Key",
  endpoint: "Endpoint",
  finish: "Finish reason",
  host: "Host",
  tokens: "Tokens",
  first_token: "First token",
  total: "Total time",
  phases: "Phases",
  cost: "Cost",
  when: "Time",
} as const;

export type RequestColumn = keyof typeof COLUMNS;

export const ALL_COLUMNS = Object.keys(COLUMNS) as RequestColumn[];
export const DEFAULT_COLUMNS: RequestColumn[] = [
  "key",
  "endpoint",
  "finish",
  "tokens",
  "first_token",
  "total",
  "cost",
  "when",
];
/** Columns of the short list on the overview. */
export const BRIEF_COLUMNS: RequestColumn[] = ["tokens", "first_token", "when"];
