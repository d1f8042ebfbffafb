import { fireEvent, render, screen } from "@testing-library/react";
import { useState } from "react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { SearchInput } from "./search-input";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it("keeps a space that is typed, and reports the text without it", () => {
  const reports: (string | undefined)[] = [];
  function Search() {
    const [value, setValue] = useState<string>();
    return <SearchInput label="Search" value={value} onChange={(text) => setValue((reports.push(text), text))} />;
  }
  render(<Search />);
  const field = screen.getByRole("searchbox");
  for (const text of ["legal ", "legal d", " "]) {
    fireEvent.change(field, { target: { value: text } });
    vi.runAllTimers();
    expect(field).toHaveValue(text);
  }
  expect(reports).toEqual(["legal", "legal d", undefined]);
});
