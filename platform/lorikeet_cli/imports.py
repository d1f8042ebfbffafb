"""`lorikeet hub-token`, `follow`, `hub-models` and `buckets`: sources from which adapters are imported."""

from __future__ import annotations

from argparse import Namespace

from lorikeet_cli.client import Client
from lorikeet_cli.commands import Commands, list_actions, no_options
from lorikeet_cli.errors import CliError
from lorikeet_cli.login import read_secret
from lorikeet_cli.output import Output, say, table

_BUCKET_KEYS = {
    "access_key_id": "Access key id",
    "secret_access_key": "Secret access key",
    "session_token": "Session token (empty for a permanent key)",
}


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "follow",
        follow,
        "Let adapters follow branches of the Hub; without a source, list them.",
        "lorikeet follow hub:org/name@main --name support",
        "lorikeet follow --name support --remove",
    )
    verb.add_argument("source", nargs="?", default="", help="like hub:org/name@main")
    verb.add_argument("--name", default="", help="the adapter; made if there is none")
    verb.add_argument("--remove", action="store_true", help="the adapter of --name no longer follows a source")
    verb = commands.add(
        "hub-token",
        hub_token,
        "Store a token for private repositories of the Hub, which it reads from the terminal.",
        "lorikeet hub-token < token.txt",
    )
    verb.add_argument("--remove", action="store_true", help="delete it")
    verb = commands.add(
        "hub-models",
        hub_models,
        "Show or set whether requests may name repositories of the Hub.",
        "lorikeet hub-models --on --organization acme",
    )
    switch = verb.add_mutually_exclusive_group()
    switch.add_argument("--on", action="store_true", help="allow the organisations of --organization, or all")
    switch.add_argument("--off", action="store_true", help="allow none")
    verb.add_argument("--organization", action="append", default=[], help="may be repeated; goes with --on")
    verb = commands.add(
        "buckets",
        buckets,
        "List, set and remove keys of buckets, for imports from s3://bucket.",
        "lorikeet buckets set trainings --region eu-west-1",
    )
    actions = list_actions(verb, no_options)
    text = "store a key that may list and read a bucket, which it reads from the terminal"
    keep = actions.add("set", set_bucket, text, ("bucket", "its name"))
    keep.add_argument("--region", default="us-east-1")
    keep.add_argument("--endpoint", default="", help="a server other than Amazon's, like https://s3.example.org")
    actions.add("remove", remove_bucket, "delete the key of a bucket", ("bucket", "its name"))


def hub_token(args: Namespace, client: Client) -> Output:
    if args.remove:
        client.tenant("DELETE", "hub-token")
    else:
        client.tenant("PUT", "hub-token", body={"token": read_secret("Hub token: ").strip()})
    say("The token is deleted." if args.remove else "The token is stored, encrypted, and never shown.")
    return Output()


def follow(args: Namespace, client: Client) -> Output:
    if ((args.source or args.remove) and not args.name) or (args.source and args.remove):
        raise CliError("The adapter or its source is missing.", "lorikeet follow hub:org/name@main --name support")
    if args.source:
        follow = client.tenant("POST", "follows", body={"name": args.name, "source": args.source})
        say(f"{args.name} follows {follow['source']}; each move of it becomes a version, which you promote.")
        return Output(follow)
    follows = client.tenant("GET", "follows")
    if args.remove:
        ids = [each["id"] for each in follows if each["name"] == args.name]
        if not ids:
            raise CliError(f"{args.name} follows nothing.", "`lorikeet follow` lists the adapters that do.")
        client.tenant("DELETE", "follows", ids[0])
        say(f"{args.name} no longer follows a source; its versions stay.")
        return Output()
    rows = [
        [each["name"], each["source"], each["commit"][:12], (each["problem"] or {}).get("message", "")]
        for each in follows
    ]
    return Output(follows, table(["adapter", "follows", "commit", "problem"], rows))


def hub_models(args: Namespace, client: Client) -> Output:
    if args.organization and not args.on:
        raise CliError("Organisations are set with --on.", "Add --on.")
    if args.on or args.off:
        client.tenant("PUT", "hub-models", body={"enabled": args.on, "organizations": args.organization})
    setting = client.tenant("GET", "hub-models")
    of = ", ".join(setting["organizations"]) or "all organisations"
    say(f"Requests may name repositories of {of}." if setting["enabled"] else "Requests may not name repositories.")
    rows = [
        [each["name"], each["state"], f"{each['adapter']}@v{each['version']}" if each["version"] else ""]
        for each in setting["models"]
    ]
    return Output(setting, table(["model", "import", "version"], rows))


def buckets(args: Namespace, client: Client) -> Output:
    buckets = client.tenant("GET", "bucket-credentials")
    rows = [[each["bucket"], each["region"], each["endpoint"] or "Amazon S3"] for each in buckets]
    return Output(buckets, table(["bucket", "region", "endpoint"], rows))


def set_bucket(args: Namespace, client: Client) -> Output:
    keys = {name: read_secret(f"{text}: ").strip() for name, text in _BUCKET_KEYS.items()}
    body = {"bucket": args.bucket, "region": args.region, "endpoint": args.endpoint, **keys}
    bucket = client.tenant("POST", "bucket-credentials", body=body)
    say(f"The key of {args.bucket} is stored, encrypted, and never shown.")
    return Output(bucket)


def remove_bucket(args: Namespace, client: Client) -> Output:
    client.tenant("DELETE", "bucket-credentials", args.bucket)
    say(f"The key of {args.bucket} is deleted.")
    return Output()
