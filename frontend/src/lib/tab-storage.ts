/** Storage for text that survives a reload of this tab. It is deleted when the tab is closed and on sign-out. */

const PREFIX = "lorikeet.kept.";
const SIGNED_OUT = "lorikeet.signed-out";

/** False from a sign-out until something is read again, so that data that is still shown is not stored. */
let open = true;

// Storage may be blocked or full. The text then lasts until the page is closed.
function quietly<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null;
  }
}

export function readText(name: string): string | null {
  open = true;
  return quietly(() => sessionStorage.getItem(PREFIX + name));
}

export function storeText(name: string, text: string): void {
  if (open) quietly(() => sessionStorage.setItem(PREFIX + name, text));
}

function forgetHere(): void {
  open = false;
  quietly(() => {
    const mine = Object.keys(sessionStorage).filter((name) => name.startsWith(PREFIX));
    mine.forEach((name) => sessionStorage.removeItem(name));
  });
}

/** Deletes the stored text of this tab and of all other tabs of this browser, after a sign-out. */
export function forgetEverywhere(): void {
  forgetHere();
  // Writing the same value would not be an event for other tabs.
  quietly(() => localStorage.setItem(SIGNED_OUT, `${Date.now()} ${Math.random()}`));
}

/** Deletes the stored text when another tab signs out. */
export function followSignOut(): void {
  addEventListener("storage", ({ key }) => key === SIGNED_OUT && forgetHere());
}
