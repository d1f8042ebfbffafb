import { asApiError } from "@/api/errors";

export interface Note {
  id: number;
  tone: "good" | "bad";
  title: string;
  detail?: string;
}

let notes: Note[] = [];
let count = 0;
const watchers = new Set<() => void>();

function set(next: Note[]): void {
  notes = next;
  watchers.forEach((watcher) => watcher());
}

export const dismiss = (id: number) => set(notes.filter((note) => note.id !== id));
export const current = () => notes;
export const subscribe = (watcher: () => void) => {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
};

const add = (note: Omit<Note, "id">) => set([...notes.slice(-2), { ...note, id: ++count }]);

/** Messages of success, or of failure in the words of the server. Callable from anywhere. */
export const toast = {
  good: (title: string, detail?: string) => add({ tone: "good", title, detail }),
  bad: (cause: unknown) => {
    const error = asApiError(cause);
    add({ tone: "bad", title: error.message, detail: error.fix });
  },
};

/** Options of a mutation whose success shows a message and then calls `next`, which usually closes a dialog. */
export const toastThen = (message: string, next?: () => void) => ({
  onSuccess: () => {
    toast.good(message);
    next?.();
  },
});
