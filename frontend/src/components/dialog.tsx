import { X } from "lucide-react";
import { AlertDialog as Alert, Dialog as Radix } from "radix-ui";
import { type FormEvent, type ReactNode, type RefObject, useRef } from "react";
import { cn } from "@/lib/cn";
import { Button } from "./button";
import { ErrorNotice } from "./notices";

const OVERLAY = "fixed inset-0 z-40 animate-fade bg-black/45 backdrop-blur-[1px]";
const PANEL =
  "fixed left-1/2 top-1/2 z-50 max-h-[calc(100dvh-2rem)] w-[calc(100vw-2rem)] -translate-x-1/2 -translate-y-1/2 " +
  "overflow-y-auto rounded-xl border border-line-2 bg-raised shadow-pop outline-none";

interface DialogProps {
  open?: boolean;
  onClose: () => void;
  title: string;
  description?: ReactNode;
  children: ReactNode;
  className?: string;
  /** Ends with a button that closes the dialog: it only shows something. */
  done?: boolean;
  /** Escape and a click outside do not close a dialog whose content is shown only once. */
  keepOpen?: boolean;
  /** Receives the focus if the element that opened the dialog is gone. */
  focusAfter?: RefObject<HTMLElement | null>;
}

const keep = (event: Event) => event.preventDefault();

export function Dialog(props: DialogProps) {
  const { open = true, onClose, title, description, children, className, done, keepOpen, focusAfter } = props;
  const focus = useFocusBefore(focusAfter);
  return (
    <Radix.Root open={open} onOpenChange={(next) => !next && onClose()}>
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
          {done && <DoneButton onClose={onClose} className="mt-5" />}
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

/** The state of a mutation that a dialog shows. */
interface Write {
  error: unknown;
  isPending: boolean;
}

interface FormDialogProps extends DialogProps {
  /** Called on submit; the browser does not send the form. */
  onSubmit: (event: FormEvent<HTMLFormElement>) => unknown;
  /** The mutation that the form starts: its error is shown, and the button waits for it. */
  write: Write;
  /** The label of the button that submits the form. */
  action: string;
  disabled?: boolean;
  /** Other buttons, left of Cancel. */
  buttons?: ReactNode;
  formClassName?: string;
  testId?: string;
  /** Replaces the form after success, until it is closed explicitly: it is shown only once. */
  result?: { title: string; content: ReactNode } | false;
}

/** A dialog around a form: the error, the fields, and the buttons Cancel and `action`. */
export function FormDialog({ onSubmit, write, children, formClassName, result, ...props }: FormDialogProps) {
  const { action, disabled, buttons, testId, ...dialog } = props;
  if (result)
    return (
      <Dialog {...dialog} keepOpen title={result.title} description={undefined} className="max-w-2xl!">
        <div className="grid gap-4">
          {result.content}
          <DoneButton onClose={dialog.onClose} />
        </div>
      </Dialog>
    );
  return (
    <Dialog {...dialog}>
      <form
        noValidate
        className={cn("grid grid-cols-[minmax(0,1fr)] gap-4", formClassName)}
        onSubmit={(event) => {
          event.preventDefault();
          void onSubmit(event);
        }}
      >
        <ErrorNotice error={write.error} className="col-span-full" />
        {children}
        <div className="col-span-full flex justify-end gap-2">
          {buttons}
          <Button onClick={dialog.onClose}>Cancel</Button>
          <Button type="submit" variant="primary" busy={write.isPending} disabled={disabled} data-testid={testId}>
            {action}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** The last row of a dialog that only shows something. */
export function DoneButton({ onClose, className }: { onClose: () => void; className?: string }) {
  return (
    <div className={cn("flex justify-end", className)}>
      <Button variant="primary" onClick={onClose}>
        Done
      </Button>
    </div>
  );
}

interface ConfirmProps {
  open?: boolean;
  onClose: () => void;
  title: string;
  description: ReactNode;
  action: string;
  /** The mutation that the action starts: its error is shown, and the button waits for it. */
  write?: Write;
  /** The action destroys nothing and can be undone: its button is not red. */
  harmless?: boolean;
  /** True until the required input is entered. */
  disabled?: boolean;
  onConfirm: () => void;
  children?: ReactNode;
}

// The element from which a chain of dialogs was opened, of which each replaces the one before.
let opener: Element | null = null;

/**
 * Returns the focus to the element that had it before the dialog opened, or to `otherwise` if that element is gone. Radix
 * does this only for its own triggers.
 */
export function useFocusBefore(otherwise?: RefObject<HTMLElement | null>) {
  const before = useRef<Element>(null);
  return {
    onOpenAutoFocus: () => {
      before.current = document.activeElement;
      const outside = !before.current?.closest("[role=dialog], [role=alertdialog]");
      if (outside && before.current !== document.body) opener = before.current;
    },
    onCloseAutoFocus: (event: Event) => {
      event.preventDefault();
      // Another dialog or the next page has the focus.
      if (document.activeElement !== document.body) return;
      const there = [otherwise?.current, before.current, opener].find(
        (element) => element instanceof HTMLElement && element.isConnected && element !== document.body,
      );
      (there instanceof HTMLElement ? there : document.getElementById("main"))?.focus();
      opener = null;
    },
  };
}

/** Asks before an action, which is one that cannot be undone unless it is `harmless`. The focus starts on Cancel. */
export function Confirm(props: ConfirmProps) {
  const { open = true, onClose, title, description, action, write, harmless, disabled, onConfirm, children } = props;
  const focus = useFocusBefore();
  return (
    <Alert.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Alert.Portal>
        <Alert.Overlay className={OVERLAY} />
        <Alert.Content className={cn(PANEL, "max-w-md p-5")} {...focus}>
          <Alert.Title className="text-lg font-semibold tracking-tight">{title}</Alert.Title>
          <Alert.Description className="mt-1.5 text-sm text-ink-2">{description}</Alert.Description>
          {children}
          <ErrorNotice error={write?.error} className="mt-3" />
          <div className="mt-5 flex justify-end gap-2">
            <Alert.Cancel asChild>
              <Button>Cancel</Button>
            </Alert.Cancel>
            <Button
              variant={harmless ? "primary" : "danger"}
              busy={write?.isPending}
              disabled={disabled}
              onClick={onConfirm}
            >
              {action}
            </Button>
          </div>
        </Alert.Content>
      </Alert.Portal>
    </Alert.Root>
  );
}
