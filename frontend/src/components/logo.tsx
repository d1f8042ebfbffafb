/** A lorikeet in profile: blue head, green back, coral beak. */
export function Mark({ className }: { className?: string }) {
  return (
    <svg viewBox="0 0 32 32" className={className} aria-hidden="true">
      <path d="M4 31c0-11 4.5-17 12-17h9c0 10-6 17-14 17H4Z" fill="#1a9d66" />
      <path d="M4 31c1-7 5-11.500 11-11.500 2.500 0 4.500.8 6 2.200C18.600 27.300 15 31 11 31H4Z" fill="#0c7a4c" />
      <path
        d="M8 14.500C8 7.600 12.300 3 18 3s9 4.300 9 9.500v2c-3 1.600-6 2-9.500 2-4 0-7-.6-9.500-2Z"
        fill="#2f62dd"
      />
      <path
        d="M25.600 7.800c3.600.5 5.600 3.200 4.600 7.400-.3 1.300-1.300 1.400-1.900.4-.9-1.500-1.800-2.300-3.300-2.700Z"
        fill="#f2694a"
      />
      <circle cx="20.400" cy="9.600" r="1.700" fill="#fff" />
    </svg>
  );
}

export function Wordmark() {
  return (
    <span className="inline-flex items-center gap-2">
      <Mark className="size-6" />
      <span className="text-lg font-semibold tracking-tight">Lorikeet</span>
    </span>
  );
}
