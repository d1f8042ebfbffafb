import { ArrowUp, Square } from "lucide-react";
import { type KeyboardEvent, type RefObject, useEffect, useState } from "react";
import { Button } from "@/components/button";

interface ComposerProps {
  area: RefObject<HTMLTextAreaElement | null>;
  /** The initial text. */
  initial: string;
  /** Called with the text on each change. */
  onDraft: (text: string) => void;
  running: boolean;
  /** Number of models that answer. */
  columns: number;
  /** The reason why nothing can be sent. */
  problem: string | null;
  onSend: (prompt: string) => void;
  onStop: () => void;
}

/** Focuses the input, except on touch screens, where that would open the keyboard over the page. */
export function focusOnDesktop(area: RefObject<HTMLTextAreaElement | null>): void {
  if (matchMedia("(pointer: fine)").matches) area.current?.focus();
}

/** The input for a message. Enter sends, Shift+Enter starts a new line, Escape stops. */
export function Composer({ area, initial, onDraft, running, columns, problem, onSend, onStop }: ComposerProps) {
  const [text, setText] = useState(initial);
  const write = (next: string) => {
    setText(next);
    onDraft(next);
  };
  useEffect(() => focusOnDesktop(area), [area]);
  const send = () => {
    const prompt = text.trim();
    if (!prompt || running || problem) return;
    onSend(prompt);
    write("");
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Escape" && running) onStop();
    // While an input method composes a character, Enter belongs to it.
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };
  return (
    <div className="rounded-xl border border-line-2 bg-surface shadow-card transition-colors focus-within:border-focus">
      <textarea
        ref={area}
        data-testid="playground-input"
        aria-label="Message"
        placeholder={columns > 1 ? "Message every column…" : "Send a message…"}
        rows={1}
        value={text}
        dir="auto"
        onChange={(event) => write(event.target.value)}
        onKeyDown={keys}
        className="scroll-quiet field-sizing-content max-h-48 min-h-11 w-full resize-none bg-transparent px-4 pt-3 text-base outline-none"
      />
      <div className="flex items-center justify-between gap-3 px-2.5 pb-2.5 pl-4">
        {problem ? (
          <p className="text-xs text-danger-text">{problem}</p>
        ) : (
          <p className="text-xs text-ink-3 max-sm:invisible">Enter to send, Shift + Enter for a new line</p>
        )}
        {running ? (
          <Button onClick={onStop} data-testid="playground-stop">
            <Square className="fill-current" /> Stop
          </Button>
        ) : (
          // It is not disabled, because it would lose the focus when an answer ends.
          <Button
            variant="primary"
            aria-disabled={!text.trim() || problem !== null}
            onClick={send}
            data-testid="playground-send"
          >
            <ArrowUp /> Send
          </Button>
        )}
      </div>
    </div>
  );
}
