"""Archives: closed months of the ledger and the audit log as Parquet files, after which their rows are deleted."""
