import { Check, CircleAlert, X } from "lucide-react";
import { DismissableLayer } from "radix-ui/internal";
import { useEffect, useState, useSyncExternalStore } from "react";
import { current, dismiss, type Note, subscribe } from "@/components/toast";

const SHOWN_MS = 6000;

/** Messages in a corner above dialogs: a click on one does not close a dialog, and Escape closes only the dialog. */
export default function Toasts() {
  const shown = useSyncExternalStore(subscribe, current);
  return (
    <DismissableLayer.Branch asChild>
      <ol
        aria-label="Notes"
        className="pointer-events-auto fixed right-4 bottom-4 z-50 grid w-[min(22rem,calc(100vw-2rem))] gap-2"
      >
        {shown.map((note) => (
          <Toast key={note.id} note={note} />
        ))}
      </ol>
    </DismissableLayer.Branch>
  );
}

function Toast({ note: { id, tone, title, detail } }: { note: Note }) {
  // A message stays while the pointer or the focus is on it.
  const [paused, setPaused] = useState(false);
  useEffect(() => {
    if (paused) return;
    const timer = setTimeout(() => dismiss(id), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [paused, id]);
  return (
    <li
      onPointerEnter={() => setPaused(true)}
      onPointerLeave={() => setPaused(false)}
      className="flex animate-pop items-start gap-3 rounded-lg border border-line-2 bg-raised p-3 shadow-pop"
    >
      {tone === "good" ? (
        <Check className="mt-0.5 size-4 text-accent-text" />
      ) : (
        <CircleAlert className="mt-0.5 size-4 text-danger-text" />
      )}
      <div className="min-w-0 flex-1">
        <p className="text-sm font-medium break-words">{title}</p>
        {detail && <p className="text-xs break-words text-ink-2">{detail}</p>}
      </div>
      <button
        type="button"
        aria-label="Dismiss"
        onFocus={() => setPaused(true)}
        onBlur={() => setPaused(false)}
        onKeyDown={({ key }) => key === "Escape" && dismiss(id)}
        onClick={() => dismiss(id)}
        className="rounded p-0.5 text-ink-3 hover:text-ink"
      >
        <X className="size-3.5" />
      </button>
    </li>
  );
}
