import { useQuery } from "@/app/use-query";
import { Field, type Option, Select } from "@/components/field";
import { modelsQuery } from "@/features/adapters/queries";
import { useTenant } from "@/features/session/queries";

/** A select for the base model of an adapter. It is hidden if only one base model is served. */
export function BaseChoice({ value, onChange }: { value: string; onChange: (base: string) => void }) {
  const { data: models = [] } = useQuery(modelsQuery(useTenant()));
  const bases = models.filter(({ kind }) => kind === "base");
  if (bases.length < 2) return null;
  return (
    <Field
      label="Base model"
      hint="The base model that the adapter was trained for. Without a choice it is read from adapter_config.json, or taken from earlier versions."
    >
      <Select
        value={value}
        onChange={(event) => onChange(event.target.value)}
        options={[["", "From the configuration"], ...bases.map(({ id }): Option => [id, id])]}
      />
    </Field>
  );
}
