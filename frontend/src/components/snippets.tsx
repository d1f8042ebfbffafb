import { Tabs } from "radix-ui";
import { useState } from "react";
import { type Language, LANGUAGES, snippet, type SnippetInput } from "@/lib/snippets";
import { CodeBlock } from "./code-block";

export function Snippets({ languages = LANGUAGES, ...input }: SnippetInput & { languages?: typeof LANGUAGES }) {
  const [language, setLanguage] = useState<Language>("curl");
  return (
    <Tabs.Root value={language} onValueChange={(value) => setLanguage(value as Language)}>
      <Tabs.List aria-label="Language" className="mb-2 flex gap-1">
        {languages.map(({ id, label }) => (
          <Tabs.Trigger
            key={id}
            value={id}
            className="h-7 rounded-md px-2.5 text-xs font-medium text-ink-3 hover:text-ink data-[state=active]:bg-fill-2 data-[state=active]:text-ink"
          >
            {label}
          </Tabs.Trigger>
        ))}
      </Tabs.List>
      {languages.map(({ id, label }) => (
        <Tabs.Content key={id} value={id} tabIndex={-1}>
          <CodeBlock code={snippet(id, input)} label={`${label} snippet`} />
        </Tabs.Content>
      ))}
    </Tabs.Root>
  );
}
