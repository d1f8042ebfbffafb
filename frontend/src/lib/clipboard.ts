/** Copies text. Where the clipboard API is blocked (plain http on another machine), it copies a selection. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "fixed opacity-0";
  // Inside a dialog the focus trap would take the selection from an element outside it.
  const host = document.activeElement?.closest("[role=dialog]") ?? document.body;
  host.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}
