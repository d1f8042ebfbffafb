import { useQuery } from "@/app/use-query";
import { Field, Select } from "@/components/field";
import { modelsQuery } from "@/features/adapters/queries";
import { useTenant } from "@/features/session/queries";

/** What the adapter was trained for; nothing to choose where one base model is served. */
export function BaseChoice({ value, onChange }: { value: string; onChange: (base: string) => void }) {
  const { data: models = [] } = useQuery(modelsQuery(useTenant()));
  const bases = models.filter(({ kind }) => kind === "base");
  if (bases.length < 2) return null;
  return (
    <Field
      label="Base model"
      hint="What it was trained for. Left open, its configuration or its earlier versions say so."
    >
      {(control) => (
        <Select {...control} value={value} onChange={(event) => onChange(event.target.value)}>
          <option value="">As its configuration says</option>
          {bases.map(({ id }) => (
            <option key={id} value={id}>
              {id}
            </option>
          ))}
        </Select>
      )}
    </Field>
  );
}
