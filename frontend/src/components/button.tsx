import { Slot } from "radix-ui";
import type { ComponentProps, MouseEvent } from "react";
import { cn } from "@/lib/cn";

const VARIANTS = {
  primary: "bg-accent text-on-accent hover:bg-accent-hover border-transparent shadow-card",
  secondary: "bg-surface text-ink border-line-2 hover:bg-fill shadow-card",
  ghost: "border-transparent text-ink-2 hover:bg-fill hover:text-ink",
  danger: "bg-surface text-danger-text border-line-2 hover:bg-danger-soft",
} as const;

const SIZES = {
  sm: "h-7 px-2.5 text-xs gap-1.5 rounded-md",
  md: "h-8.5 px-3.5 text-sm gap-2 rounded-lg",
  icon: "size-8 rounded-lg justify-center",
} as const;

interface ButtonProps extends ComponentProps<"button"> {
  variant?: keyof typeof VARIANTS;
  size?: keyof typeof SIZES;
  /** Applies the style to the child, such as a link, instead of a button. */
  asChild?: boolean;
  /** A write is on its way: clicks do nothing until it ends. The button keeps the focus meanwhile. */
  busy?: boolean;
}

const ignore = (event: MouseEvent) => {
  event.preventDefault();
  event.stopPropagation();
};

/** Ignores the second click of a double click, which arrives before the button shows as busy. */
const onceOnly = (event: MouseEvent) => event.detail >= 2 && ignore(event);

export function Button({ variant = "secondary", size = "md", asChild, busy, className, ...props }: ButtonProps) {
  const Root = asChild ? Slot.Root : "button";
  return (
    <Root
      {...(asChild ? {} : { type: props.type ?? "button" })}
      {...(busy === undefined ? {} : { onClickCapture: busy ? ignore : onceOnly })}
      {...props}
      aria-busy={busy || undefined}
      aria-disabled={busy || props["aria-disabled"]}
      className={cn(
        "inline-flex shrink-0 items-center justify-center border font-medium whitespace-nowrap transition-colors select-none",
        "disabled:pointer-events-none disabled:opacity-50 aria-disabled:pointer-events-none aria-disabled:opacity-50 [&_svg]:size-4 [&_svg]:shrink-0",
        SIZES[size],
        VARIANTS[variant],
        className,
      )}
    />
  );
}
