import type { Model } from "@/api/types";

/**
 * An adapter of a combination. `a+b@v2:0.5` is a model that adds up the changes of adapters, each times its weight.
 */
export interface Part {
  /** Name of an adapter, also with a version or an alias; empty until one is selected. */
  model: string;
  /** The weight as typed. */
  weight: string;
}

/** The bounds that the API accepts. */
export const MAX_PARTS = 4;
export const MAX_WEIGHT = 10;
const MAX_NAME_LENGTH = 200;
const WEIGHT = /^-?\d{1,2}(\.\d{1,4})?$/;

/** Returns whether a name is a combination. Names of adapters contain neither + nor :, but base models and repositories may. */
export const isCombination = (name: string, models: Model[]) =>
  /[+:]/.test(name) && !name.startsWith("hub:") && !models.some(({ id }) => id === name);

export const partsOf = (name: string): Part[] =>
  name.split("+").map((text) => {
    const [model = "", weight = "1"] = text.split(":");
    return { model, weight };
  });

const weightOf = ({ weight }: Part) => (WEIGHT.test(weight) ? Number(weight) : NaN);

/** Returns a weight as part of a name: empty for 1, and without trailing zeros. */
export const nameOf = (parts: Part[]) =>
  parts.map((part) => (weightOf(part) === 1 ? part.model : `${part.model}:${weightOf(part)}`)).join("+");

/** Returns the combination as the list that `model` may also be. */
export const listOf = (parts: Part[]) =>
  parts.map((part) => (weightOf(part) === 1 ? part.model : { model: part.model, weight: weightOf(part) }));

export function weightProblem(part: Part): string | null {
  const weight = weightOf(part);
  if (Number.isNaN(weight)) return "Enter a number with at most four decimal places.";
  if (weight === 0 || Math.abs(weight) > MAX_WEIGHT) return `Not 0, and between -${MAX_WEIGHT} and ${MAX_WEIGHT}.`;
  return null;
}

/** Returns why a combination cannot be requested, or null. The host checks what is not known here. */
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
