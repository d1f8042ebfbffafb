/** A bar chart of the height of a line of text. */
export function Sparkline({ values, label }: { values: number[]; label: string }) {
  const top = Math.max(1, ...values);
  const width = 4;
  return (
    <svg
      role="img"
      aria-label={label}
      viewBox={`0 0 ${values.length * (width + 2) - 2} 28`}
      className="hidden h-7 shrink-0 sm:block"
    >
      {values.map((value, index) => {
        const height = Math.max(1.5, (value / top) * 28);
        return (
          <rect
            key={index}
            x={index * (width + 2)}
            y={28 - height}
            width={width}
            height={height}
            rx={1}
            className={index === values.length - 1 ? "fill-series-1" : "fill-line-2"}
          />
        );
      })}
    </svg>
  );
}
