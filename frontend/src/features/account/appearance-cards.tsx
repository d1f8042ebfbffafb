import { Monitor, Moon, Rows3, Rows4, Sun } from "lucide-react";
import { RadioGroup } from "radix-ui";
import type { ReactNode } from "react";
import { type Density, setPreferences, type Theme, usePreferences } from "@/app/preferences";
import { Card } from "@/components/card";

interface Choice<T> {
  value: T;
  label: string;
  note: string;
  icon: ReactNode;
}

const THEMES: Choice<Theme>[] = [
  { value: "system", label: "System", note: "Follows your device", icon: <Monitor /> },
  { value: "light", label: "Light", note: "Always light", icon: <Sun /> },
  { value: "dark", label: "Dark", note: "Always dark", icon: <Moon /> },
];

const DENSITIES: Choice<Density>[] = [
  { value: "comfortable", label: "Comfortable", note: "More space between rows", icon: <Rows3 /> },
  { value: "compact", label: "Compact", note: "More rows on a screen", icon: <Rows4 /> },
];

/** The look of the console in this browser. */
export function AppearanceCards() {
  const preferences = usePreferences();
  return (
    <>
      <Card title="Theme" note="In this browser">
        <Choices
          label="Theme"
          value={preferences.theme}
          choices={THEMES}
          onChange={(theme) => setPreferences({ theme })}
        />
      </Card>
      <Card title="Density" note="In this browser">
        <Choices
          label="Density"
          value={preferences.density}
          choices={DENSITIES}
          onChange={(density) => setPreferences({ density })}
        />
      </Card>
      <Shortcuts />
    </>
  );
}

interface ChoicesProps<T extends string> {
  label: string;
  value: T;
  choices: Choice<T>[];
  onChange: (value: T) => void;
}

function Choices<T extends string>({ label, value, choices, onChange }: ChoicesProps<T>) {
  return (
    <RadioGroup.Root
      aria-label={label}
      value={value}
      onValueChange={(next) => onChange(next as T)}
      className="grid gap-3 p-4 sm:grid-cols-3"
    >
      {choices.map((choice) => (
        <RadioGroup.Item
          key={choice.value}
          value={choice.value}
          className="flex items-center gap-3 rounded-lg border px-3 py-2.5 text-left hover:bg-fill data-[state=checked]:border-accent data-[state=checked]:bg-accent-soft [&_svg]:size-4 [&_svg]:text-ink-2"
        >
          {choice.icon}
          <span>
            <span className="block text-sm font-medium text-ink">{choice.label}</span>
            <span className="block text-xs text-ink-2">{choice.note}</span>
          </span>
        </RadioGroup.Item>
      ))}
    </RadioGroup.Root>
  );
}

const KEYS: [keys: string[], meaning: string][] = [
  [["Ctrl", "K"], "Search pages, adapters and actions"],
  [["Enter"], "Send in the playground"],
  [["Shift", "Enter"], "New line in the playground"],
  [["Esc"], "Close a dialog or stop an answer"],
];

function Shortcuts() {
  return (
    <Card title="Keyboard">
      <dl className="divide-y">
        {KEYS.map(([keys, meaning]) => (
          <div key={meaning} className="flex min-h-row items-center gap-4 px-4">
            <dt className="flex w-28 shrink-0 gap-1 sm:w-44">
              {keys.map((key) => (
                <kbd key={key} className="rounded-md border bg-fill px-1.5 py-0.5 font-sans text-2xs text-ink-2">
                  {key}
                </kbd>
              ))}
            </dt>
            <dd className="text-ink-2">{meaning}</dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}
