import { DropdownMenu } from "radix-ui";
import type { ComponentProps } from "react";
import { cn } from "@/lib/cn";

export const Menu = DropdownMenu.Root;
export const MenuTrigger = DropdownMenu.Trigger;
export const MenuSeparator = () => <DropdownMenu.Separator className="my-1 h-px bg-line" />;

export function MenuContent({ className, ...props }: ComponentProps<typeof DropdownMenu.Content>) {
  return (
    <DropdownMenu.Portal>
      <DropdownMenu.Content
        sideOffset={6}
        collisionPadding={8}
        {...props}
        className={cn("z-50 min-w-44 animate-pop rounded-lg border border-line-2 bg-raised p-1 shadow-pop", className)}
      />
    </DropdownMenu.Portal>
  );
}

export function MenuItem({ className, danger, ...props }: ComponentProps<typeof DropdownMenu.Item> & { danger?: boolean }) {
  return (
    <DropdownMenu.Item
      {...props}
      className={cn(
        "flex h-8 cursor-pointer items-center gap-2.5 rounded-md px-2.5 text-sm outline-none select-none data-[highlighted]:bg-fill-2",
        "data-[disabled]:opacity-50 [&_svg]:size-4 [&_svg]:shrink-0 [&_svg]:text-ink-3",
        danger && "text-danger-text [&_svg]:text-danger-text",
        className,
      )}
    />
  );
}

export function MenuLabel(props: ComponentProps<typeof DropdownMenu.Label>) {
  return <DropdownMenu.Label {...props} className="px-2.5 pt-1.5 pb-1 text-xs text-ink-3" />;
}
