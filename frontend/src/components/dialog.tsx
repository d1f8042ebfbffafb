import { X } from "lucide-react";
import { AlertDialog as Alert, Dialog as Radix } from "radix-ui";
import { type ReactNode, type RefObject, useRef } from "react";
import { cn } from "@/lib/cn";
import { Button } from "./button";

const OVERLAY = "fixed inset-0 z-40 animate-fade bg-black/45 backdrop-blur-[1px]";
const PANEL =
  "fixed left-1/2 top-1/2 z-50 max-h-[calc(100dvh-2rem)] w-[calc(100vw-2rem)] -translate-x-1/2 -translate-y-1/2 " +
  "overflow-y-auto rounded-xl border border-line-2 bg-raised shadow-pop outline-none";

interface DialogProps {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  title: string;
  description?: ReactNode;
  children: ReactNode;
  className?: string;
  /** It shows something that is shown only once: Escape and a click beside it do not close it. */
  keepOpen?: boolean;
  /** Where the keyboard goes on, if what opened it is gone by then. */
  focusAfter?: RefObject<HTMLElement | null>;
}

const keep = (event: Event) => event.preventDefault();

export function Dialog({
  open,
  onOpenChange,
  title,
  description,
  children,
  className,
  keepOpen,
  focusAfter,
}: DialogProps) {
  const focus = useFocusBefore(focusAfter);
  return (
    <Radix.Root open={open} onOpenChange={onOpenChange}>
      <Radix.Portal>
        <Radix.Overlay className={OVERLAY} />
        <Radix.Content
          className={cn(PANEL, "max-w-lg p-5", className)}
          {...focus}
          {...(description ? {} : { "aria-describedby": undefined })}
          {...(keepOpen ? { onEscapeKeyDown: keep, onPointerDownOutside: keep, onInteractOutside: keep } : {})}
        >
          <Radix.Title className="pr-8 text-lg font-semibold tracking-tight">{title}</Radix.Title>
          {description && <Radix.Description className="mt-1 text-sm text-ink-3">{description}</Radix.Description>}
          <div className="mt-4">{children}</div>
          <Radix.Close asChild>
            <Button size="icon" variant="ghost" aria-label="Close" className="absolute top-3 right-3">
              <X />
            </Button>
          </Radix.Close>
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

interface ConfirmProps {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  title: string;
  description: ReactNode;
  action: string;
  busy?: boolean;
  /** Until what it asks for is entered. */
  disabled?: boolean;
  onConfirm: () => void;
  children?: ReactNode;
}

/** What opens a dialog is not its trigger, as Radix calls it: so the keyboard goes back to what had it before, if that is still there. */
export function useFocusBefore(otherwise?: RefObject<HTMLElement | null>) {
  const before = useRef<Element>(null);
  return {
    onOpenAutoFocus: () => {
      before.current = document.activeElement;
    },
    onCloseAutoFocus: (event: Event) => {
      event.preventDefault();
      // Another dialog, or the page that was gone to, has taken it.
      if (document.activeElement !== document.body) return;
      const there = [otherwise?.current, before.current].find(
        (element) => element instanceof HTMLElement && element.isConnected && element !== document.body,
      );
      (there instanceof HTMLElement ? there : document.getElementById("main"))?.focus();
    },
  };
}

/** For what cannot be undone. The focus starts on Cancel. */
export function Confirm({
  open,
  onOpenChange,
  title,
  description,
  action,
  busy,
  disabled,
  onConfirm,
  children,
}: ConfirmProps) {
  const focus = useFocusBefore();
  return (
    <Alert.Root open={open} onOpenChange={onOpenChange}>
      <Alert.Portal>
        <Alert.Overlay className={OVERLAY} />
        <Alert.Content className={cn(PANEL, "max-w-md p-5")} {...focus}>
          <Alert.Title className="text-lg font-semibold tracking-tight">{title}</Alert.Title>
          <Alert.Description className="mt-1.5 text-sm text-ink-2">{description}</Alert.Description>
          {children}
          <div className="mt-5 flex justify-end gap-2">
            <Alert.Cancel asChild>
              <Button>Cancel</Button>
            </Alert.Cancel>
            <Button variant="danger" busy={busy} disabled={disabled} onClick={onConfirm}>
              {action}
            </Button>
          </div>
        </Alert.Content>
      </Alert.Portal>
    </Alert.Root>
  );
}
