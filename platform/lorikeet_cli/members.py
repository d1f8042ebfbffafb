"""`lorikeet members`: people of the tenant, their roles, and invitations."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import Commands, list_actions, list_options, searched
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import Output, moment, part_note, say, table

ROLES = ("owner", "admin", "developer", "viewer")
_EMAIL = ("email", "the address of an account")


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "members",
        members,
        "List, invite and remove people, and change their roles.",
        "lorikeet members",
        "lorikeet members invite ada@example.org --role developer",
        "lorikeet members role ada@example.org admin",
    )
    actions = list_actions(verb, searched("the name or address"))
    invited = actions.add("invite", invite, "invite a person; the link is printed once", ("email", "their address"))
    invited.add_argument("--role", choices=ROLES, default="developer", help="by default developer")
    changed = actions.add("role", change_role, "give a member another role", _EMAIL)
    changed.add_argument("role", choices=ROLES)
    actions.add("remove", remove, "end a membership", _EMAIL)
    list_options(actions.add("invitations", invitations, "list the invitations that are not accepted yet"))
    actions.add("uninvite", uninvite, "revoke an invitation", ("email", "the address that was invited"))


def members(args: Namespace, client: Client) -> Output:
    members, total = client.rows("members", limit=args.limit, search=args.search)
    rows = [[each["email"], each["name"], each["role"], each["joined_at"][:10]] for each in members]
    part_note(members, total, "by name")
    return Output(members, table(["address", "name", "role", "joined"], rows))


def invite(args: Namespace, client: Client) -> Output:
    invitation = client.tenant("POST", "invitations", body={"email": args.email, "role": args.role})
    say(f"{args.email} may join as {args.role} until {invitation['expires_at'][:10]}, with this link:")
    return Output(invitation, invitation["link"])


def change_role(args: Namespace, client: Client) -> Output:
    member = client.tenant("PATCH", "members", _find(client, "members", args.email)["id"], body={"role": args.role})
    say(f"{args.email} is {args.role} from the next request on.")
    return Output(member)


def remove(args: Namespace, client: Client) -> Output:
    client.tenant("DELETE", "members", _find(client, "members", args.email)["id"])
    say(f"{args.email} is no longer a member.")
    return Output()


def invitations(args: Namespace, client: Client) -> Output:
    invitations, total = client.rows("invitations", limit=args.limit)
    rows = [[each["email"], each["role"], each["invited_by"] or "", moment(each["expires_at"])] for each in invitations]
    part_note(invitations, total)
    return Output(invitations, table(["address", "role", "invited by", "expires"], rows))


def uninvite(args: Namespace, client: Client) -> Output:
    client.tenant("DELETE", "invitations", _find(client, "invitations", args.email)["id"])
    say(f"The invitation of {args.email} is revoked.")
    return Output()


def _find(client: Client, kind: str, email: str) -> Any:
    """Return the member or the invitation with an address. Raises CliError if there is none."""
    for row in client.rows(kind, limit=sys.maxsize, search=email)[0]:
        if row["email"].lower() == email.lower():
            return row
    listing = "lorikeet members" if kind == "members" else "lorikeet members invitations"
    raise CliError(f"{email} is not among the {kind}.", f"`{listing}` lists them.", code=f"no_such_{kind[:-1]}")
