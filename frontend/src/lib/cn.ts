import { clsx, type ClassValue } from "clsx";
import { extendTailwindMerge } from "tailwind-merge";

// The two font sizes are our own; unknown to tailwind-merge they would count as colours and drop a real one.
const merge = extendTailwindMerge({ extend: { classGroups: { "font-size": [{ text: ["2xs"] }] } } });

/** Join class names; a later Tailwind class wins over an earlier one of its kind. */
export function cn(...classes: ClassValue[]): string {
  return merge(clsx(classes));
}
