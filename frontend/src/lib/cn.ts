import { clsx, type ClassValue } from "clsx";

/** Joins class names. A class that must override one of a component carries Tailwind's `!`. */
export const cn = (...classes: ClassValue[]): string => clsx(classes);
