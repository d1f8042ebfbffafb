import { useMemo, useState } from "react";
import { Field, type Option, Select } from "@/components/field";
import { number, plural } from "@/lib/format";
import { type Piece, wordDiff, words } from "@/lib/word-diff";
import { type Column, comparable, comparableTurns, type Turn } from "./conversation";

interface DifferencesProps {
  columns: Column[];
  /** The turns of the branch that is shown. */
  turns: Turn[];
}

/** A comparison of two answers to one message, word by word. */
export function Differences({ columns, turns }: DifferencesProps) {
  const questions = comparableTurns(turns, columns);
  const [selected, setSelected] = useState<number>();
  const turn = questions.find(({ id }) => id === selected) ?? questions.at(-1);
  const answered = turn ? comparable(turn, columns) : [];
  const [places, setPlaces] = useState<[number, number]>([0, 1]);
  const first = answered[places[0]] ?? answered[0];
  const second = answered[places[1]] ?? answered.find(({ id }) => id !== first?.id);
  const [a, b] = [first && turn?.answers[first.id], second && turn?.answers[second.id]];
  if (!turn || !first || !second || !a || !b)
    return <p className="text-sm text-ink-3">No question has two answers yet.</p>;
  // The same model may answer in two columns, so the position tells them apart.
  const label = (column: Column, index: number) => `${index + 1}: ${turn.answers[column.id]?.model ?? column.model}`;
  const choice = (side: 0 | 1, title: string) => (
    <Field label={title}>
      <Select
        value={answered.indexOf(side === 0 ? first : second)}
        onChange={(event) =>
          setPlaces(side === 0 ? [Number(event.target.value), places[1]] : [places[0], Number(event.target.value)])
        }
        options={answered.map((column, index): Option => [column.id, label(column, index)])}
      />
    </Field>
  );
  return (
    <div className="grid min-w-0 gap-4">
      {questions.length > 1 && (
        <Field label="Question">
          <Select
            value={turn.id}
            onChange={(event) => setSelected(Number(event.target.value))}
            options={questions.map(({ id, prompt }, index): Option => [
              id,
              `${index + 1}: ${prompt.slice(0, 80) || "results of tools"}`,
            ])}
          />
        </Field>
      )}
      <div className="grid gap-3 sm:grid-cols-2 [&>*]:min-w-0">
        {choice(0, "From")}
        {choice(1, "To")}
      </div>
      <Marked first={a.text} second={b.text} />
    </div>
  );
}

const count = (pieces: Piece[], kind: Piece["kind"]) =>
  pieces
    .filter((piece) => piece.kind === kind)
    .reduce((sum, { text }) => sum + words(text).filter((word) => /[\p{L}\p{N}]/u.test(word)).length, 0);

function Marked({ first, second }: { first: string; second: string }) {
  const pieces = useMemo(() => wordDiff(first, second), [first, second]);
  const same = pieces.every(({ kind }) => kind === "both");
  return (
    <>
      <p className="text-xs text-ink-3" role="status">
        {same
          ? "Both answers are the same, word for word."
          : `${plural(count(pieces, "first"), "word")} removed, ${plural(count(pieces, "second"), "word")} added, ${number(count(pieces, "both"))} the same.`}
      </p>
      <div
        dir="auto"
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
        tabIndex={0}
        role="region"
        aria-label="Differences"
        data-testid="playground-differences"
        className="scroll-quiet max-h-[50dvh] overflow-y-auto rounded-lg border bg-fill p-3 text-sm leading-6 wrap-anywhere whitespace-pre-wrap"
      >
        {pieces.map(({ kind, text }, index) => {
          if (kind === "first")
            return (
              <del key={index} className="rounded-sm bg-danger-soft text-danger-text">
                {text}
              </del>
            );
          if (kind === "second")
            return (
              <ins key={index} className="rounded-sm bg-accent-soft text-accent-text underline">
                {text}
              </ins>
            );
          return <span key={index}>{text}</span>;
        })}
      </div>
    </>
  );
}
