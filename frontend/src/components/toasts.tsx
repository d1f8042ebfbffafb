import { Check, CircleAlert, X } from "lucide-react";
import { Toast } from "radix-ui";
import { useSyncExternalStore } from "react";
import { current, dismiss, subscribe } from "@/components/toast";

export default function Toasts() {
  const shown = useSyncExternalStore(subscribe, current);
  return (
    <Toast.Provider duration={6000} swipeDirection="right">
      {shown.map((note) => (
        <Toast.Root
          key={note.id}
          onOpenChange={(open) => !open && dismiss(note.id)}
          className="flex animate-pop items-start gap-3 rounded-lg border border-line-2 bg-raised p-3 shadow-pop"
        >
          {note.tone === "good" ? <Check className="mt-0.5 size-4 text-accent-text" /> : <CircleAlert className="mt-0.5 size-4 text-danger-text" />}
          <div className="min-w-0 flex-1">
            <Toast.Title className="text-sm font-medium break-words">{note.title}</Toast.Title>
            {note.detail && <Toast.Description className="text-xs break-words text-ink-2">{note.detail}</Toast.Description>}
          </div>
          <Toast.Close aria-label="Dismiss" className="rounded p-0.5 text-ink-3 hover:text-ink">
            <X className="size-3.5" />
          </Toast.Close>
        </Toast.Root>
      ))}
      <Toast.Viewport className="fixed right-4 bottom-4 z-50 grid w-[min(22rem,calc(100vw-2rem))] gap-2 outline-none" />
    </Toast.Provider>
  );
}
