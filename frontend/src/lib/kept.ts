/** Text that outlives a reload in this tab, and nothing longer: it is gone when the tab is closed, and when anybody signs out. */

const PREFIX = "lorikeet.kept.";
const SIGNED_OUT = "lorikeet.signed-out";

/** False from a sign-out until something is read again: what is still shown for a moment is not kept. */
let open = true;

// Storage may be blocked or full; then what was to be kept lasts as long as the page.
function quietly<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null;
  }
}

export function keptHere(name: string): string | null {
  open = true;
  return quietly(() => sessionStorage.getItem(PREFIX + name));
}

export function keepHere(name: string, text: string): void {
  if (open) quietly(() => sessionStorage.setItem(PREFIX + name, text));
}

function forgetHere(): void {
  open = false;
  quietly(() => {
    const mine = Object.keys(sessionStorage).filter((name) => name.startsWith(PREFIX));
    mine.forEach((name) => sessionStorage.removeItem(name));
  });
}

/** After a sign-out: nothing is left here, nor in this browser's other tabs. */
export function forgetEverywhere(): void {
  forgetHere();
  // A write of the same value would be no event.
  quietly(() => localStorage.setItem(SIGNED_OUT, `${Date.now()} ${Math.random()}`));
}

/** Forget when another tab signs out. */
export function followSignOut(): void {
  addEventListener("storage", ({ key }) => key === SIGNED_OUT && forgetHere());
}
