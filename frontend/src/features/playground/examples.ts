/** Messages that show the differences between adapters. */
export const EXAMPLES = [
  "What is the capital of France?",
  "Where is my order 1042?",
  "How many customers live in Berlin?",
  "Tell me a short story.",
];
