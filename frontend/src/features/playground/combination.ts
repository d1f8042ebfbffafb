import type { Model } from "@/api/types";

/** `a+b@v2:0.5`: several adapters as one model, the sum of what each adds times its weight. */
export interface Part {
  /** An adapter's name, also with a version or an alias; empty until one is chosen. */
  model: string;
  /** As typed. */
  weight: string;
}

/** What the API takes. */
export const MAX_PARTS = 4;
export const MAX_WEIGHT = 10;
const MAX_NAME_LENGTH = 200;
const WEIGHT = /^-?\d{1,2}(\.\d{1,4})?$/;

/** No adapter's name has either in it; base models and names of repositories may. */
export const isCombination = (name: string, models: Model[]) =>
  /[+:]/.test(name) && !name.startsWith("hub:") && !models.some(({ id }) => id === name);

export const partsOf = (name: string): Part[] =>
  name.split("+").map((text) => {
    const [model = "", weight = "1"] = text.split(":");
    return { model, weight };
  });

const weightOf = ({ weight }: Part) => (WEIGHT.test(weight) ? Number(weight) : NaN);

/** A weight as names have it: none for 1, and nothing behind the last digit that counts. */
export const nameOf = (parts: Part[]) =>
  parts.map((part) => (weightOf(part) === 1 ? part.model : `${part.model}:${weightOf(part)}`)).join("+");

/** The same as the list that `model` may be too. */
export const listOf = (parts: Part[]) =>
  parts.map((part) => (weightOf(part) === 1 ? part.model : { model: part.model, weight: weightOf(part) }));

export function weightProblem(part: Part): string | null {
  const weight = weightOf(part);
  if (Number.isNaN(weight)) return "Enter a number with at most four decimal places.";
  if (weight === 0 || Math.abs(weight) > MAX_WEIGHT) return `Not 0, and between -${MAX_WEIGHT} and ${MAX_WEIGHT}.`;
  return null;
}

/** Why it cannot be asked for, as far as that can be known here; null if it can. The host says what else cannot be combined. */
export function combinationProblem(parts: Part[], models: Model[]): string | null {
  const names = parts.map(({ model }) => model);
  if (names.includes("")) return "Choose an adapter in each row.";
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice) return `“${twice}” is listed twice. List each adapter once.`;
  if (parts.some((part) => weightProblem(part))) return "Correct the weights first.";
  const bases = new Map(
    names
      .map((name) => [models.find(({ id }) => id === name.split("@")[0])?.base_model, name] as const)
      .filter(([base]) => base),
  );
  if (bases.size > 1)
    return `The adapters belong to different base models: ${[...bases].map(([base, name]) => `“${name}” of ${base}`).join(", ")}. Choose adapters of one base model.`;
  if (nameOf(parts).length > MAX_NAME_LENGTH) return "The combined name is too long. Combine fewer adapters.";
  return null;
}
