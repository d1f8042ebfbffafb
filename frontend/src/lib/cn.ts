import { clsx, type ClassValue } from "clsx";

/** Join class names. A class that must win over a component's own carries Tailwind's `!`. */
export const cn = (...classes: ClassValue[]): string => clsx(classes);
