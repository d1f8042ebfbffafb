import { type SyntheticEvent, useState } from "react";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Confirm } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { toast } from "@/components/toast";
import { useTenant } from "@/features/session/queries";
import { type BucketKeys, bucketsQuery, useBucketKeys } from "./queries";

const EMPTY: BucketKeys = {
  bucket: "",
  region: "us-east-1",
  endpoint: "",
  access_key_id: "",
  secret_access_key: "",
  session_token: "",
};

/** The keys of buckets for imports from s3://bucket. They can be set and removed, but not shown. */
export function BucketKeysSection() {
  const tenant = useTenant();
  const { data: buckets, error, refetch } = useQuery(bucketsQuery(tenant));
  const [open, setOpen] = useState(false);
  const [removing, setRemoving] = useState("");
  const remove = useBucketKeys(tenant);
  const forget = () =>
    remove.mutate(removing, {
      onSuccess: () => toast.good("Keys removed"),
      onError: toast.bad,
      onSettled: () => setRemoving(""),
    });
  if (error) return <ErrorNotice error={error} onRetry={refetch} className="m-4" />;
  if (!buckets) return null;
  return (
    <div className="grid gap-3 border-t px-4 py-3 text-sm">
      {buckets.map(({ bucket, endpoint, region }) => (
        <p key={bucket} className="flex flex-wrap items-center justify-between gap-3 text-ink-2">
          <span>
            <span className="font-mono">s3://{bucket}</span> is read with this tenant’s keys ({endpoint || region}).
          </span>
          <Button size="sm" onClick={() => setRemoving(bucket)} aria-label={`Remove keys of ${bucket}`}>
            Remove keys
          </Button>
        </p>
      ))}
      {removing && (
        <Confirm
          onClose={() => setRemoving("")}
          title={`Remove keys of ${removing}?`}
          description="Imports from the bucket are refused, including queued ones, until keys are added again. The removed keys cannot be recovered."
          action="Remove"
          write={{ error: null, isPending: remove.isPending }}
          onConfirm={forget}
        />
      )}
      {open ? (
        <BucketForm onDone={() => setOpen(false)} />
      ) : (
        <Button size="sm" className="justify-self-start" onClick={() => setOpen(true)}>
          Add bucket keys
        </Button>
      )}
    </div>
  );
}

function BucketForm({ onDone }: { onDone: () => void }) {
  const [form, setForm] = useState(EMPTY);
  const keep = useBucketKeys(useTenant());
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    keep.mutate(form, { onSuccess: () => (toast.good("Keys saved, encrypted"), onDone()) });
  };
  const field = (name: keyof BucketKeys, label: string, hint: string, type = "text") => (
    <Field label={label} hint={hint}>
      <Input
        type={type}
        value={form[name]}
        onChange={(event) => setForm({ ...form, [name]: event.target.value.trim() })}
        autoComplete="off"
        spellCheck={false}
        className="font-mono"
      />
    </Field>
  );
  return (
    <form onSubmit={submit} className="field-pairs">
      {field("bucket", "Bucket", "Its name, without s3://.")}
      {field("region", "Region", "Like eu-west-1.")}
      {field("endpoint", "Endpoint", "For example https://s3.example.org. Leave empty for Amazon S3.")}
      {field("access_key_id", "Access key id", "The user must be allowed to list and read the bucket.")}
      {field("secret_access_key", "Secret access key", "Stored encrypted for this tenant and never shown.", "password")}
      {field("session_token", "Session token", "Needed for temporary credentials only.", "password")}
      <ErrorNotice error={keep.error} className="sm:col-span-2" />
      <div className="flex gap-3 sm:col-span-2">
        <Button
          type="submit"
          size="sm"
          busy={keep.isPending}
          disabled={!form.bucket || !form.region || !form.access_key_id || !form.secret_access_key}
        >
          Save keys
        </Button>
        <Button size="sm" onClick={onDone}>
          Cancel
        </Button>
      </div>
    </form>
  );
}
