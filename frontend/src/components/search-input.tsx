import { Search } from "lucide-react";
import { useEffect, useEffectEvent, useState } from "react";
import { Input } from "./field";

const PAUSE_MS = 200;

interface SearchInputProps {
  label: string;
  /** Placeholder of the input; the label by default. */
  hint?: string;
  /** Name of a search landmark that holds only this field. */
  landmark?: string;
  className?: string;
  value?: string;
  /** Gets the text without spaces around it, and undefined for an empty field. */
  onChange: (value?: string) => void;
}

/** A search field that calls `onChange` after a short pause, so that the server gets one request per word. */
export function SearchInput({ label, hint = label, landmark, className, value = "", onChange }: SearchInputProps) {
  const [typed, setTyped] = useState(value);
  const [reported, setReported] = useState(value);
  const [seen, setSeen] = useState(value);
  // Back and forward change the search in the address.
  if (value !== seen) {
    setSeen(value);
    if (value !== reported) {
      setReported(value);
      setTyped(value);
    }
  }
  // A space between two words stays in the field while the second one is typed.
  const text = typed.trim();
  const report = useEffectEvent(() => {
    setReported(text);
    onChange(text || undefined);
  });
  useEffect(() => {
    if (text === reported) return;
    const timer = setTimeout(report, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text, reported]);
  const field = (
    <div className="relative">
      <Search
        className="pointer-events-none absolute top-1/2 left-3 size-3.5 -translate-y-1/2 text-ink-3"
        aria-hidden
      />
      <Input
        type="search"
        aria-label={label}
        placeholder={hint}
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
        className="pl-9!"
        dir="auto"
      />
    </div>
  );
  if (!landmark) return field;
  return (
    <div role="search" aria-label={landmark} className={className}>
      {field}
    </div>
  );
}
