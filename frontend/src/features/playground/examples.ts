/** Openers that make the difference between adapters visible at once. */
export const EXAMPLES = [
  "Where is my order?",
  "How many customers live in Berlin?",
  "Tell me about the sea.",
  "Who are you and what can you do?",
];
