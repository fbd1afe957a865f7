"""Management of users, groups and roles."""

import re
from collections.abc import Iterable
from dataclasses import field
from datetime import datetime
from typing import Any, TypedDict, Unpack
from urllib.parse import quote

from .._instruments import watched
from .._record import dataclass
from ..auth import AuthDomain
from ..exceptions import (
    GroupNotFoundException,
    InvalidArgumentException,
    UserNotFoundException,
)
from ..options import TimeoutOptions, options_of
from ._base import Manager, read, require_success

_ROLE = re.compile(r"([^\[\]]+)(?:\[([^:\]]+)(?::([^:\]]+))?(?::([^:\]]+))?\])?")


class UserOptions(TimeoutOptions, total=False):
    """Options of operations on users."""

    domain_name: str
    """``local``, which it is by default, or ``external``."""


GetUserOptions = GetAllUsersOptions = UpsertUserOptions = DropUserOptions = UserOptions


@dataclass(frozen=True, slots=True)
class Role:
    """A role, in the cluster or in a bucket, scope or collection; None means everywhere."""

    name: str
    bucket: str | None = None
    scope: str | None = None
    collection: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Role":
        """Parses a role: ``data_reader[bucket:scope:collection]``."""
        match = _ROLE.fullmatch(text)
        if match is None:
            raise InvalidArgumentException(f"{text!r} is no role")
        return cls(*match.groups())

    def as_dict(self) -> dict[str, str | None]:
        """Returns the parts of the role by their names."""
        return {
            "name": self.name,
            "bucket_name": self.bucket,
            "scope_name": self.scope,
            "collection_name": self.collection,
        }

    def __str__(self) -> str:
        place = [part for part in (self.bucket, self.scope, self.collection) if part]
        return f"{self.name}[{':'.join(place)}]" if place else self.name


@dataclass(frozen=True, slots=True)
class RoleAndDescription:
    """A role, and its description."""

    role: Role
    display_name: str
    description: str
    ce: bool | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a role: the user itself, or a group."""

    type: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class RoleAndOrigins:
    """A role, and its origins."""

    role: Role
    origins: tuple[Origin, ...] = ()


def _roles(roles: Iterable[Role | str]) -> tuple[Role, ...]:
    given = [roles] if isinstance(roles, Role | str) else roles
    return tuple(role if isinstance(role, Role) else Role.parse(role) for role in given)


@dataclass(slots=True)
class User:
    """A user. A password can be set, but never read."""

    username: str
    display_name: str | None = None
    groups: Iterable[str] = ()
    roles: Iterable[Role | str] = ()
    password: str | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Returns the user's members by their names, without the password."""
        return {
            "username": self.username,
            "display_name": self.display_name,
            "groups": sorted(self.groups),
            "roles": [role.as_dict() for role in _roles(self.roles)],
        }


@dataclass(frozen=True, slots=True)
class UserAndMetadata:
    """A user with the server's metadata."""

    user: User
    domain: AuthDomain
    effective_roles: tuple[RoleAndOrigins, ...] = ()
    password_changed: datetime | None = None
    external_groups: tuple[str, ...] = ()
    raw_data: dict[str, Any] = field(repr=False, default_factory=dict)


@dataclass(slots=True)
class Group:
    """A group of users, who have its roles."""

    name: str
    description: str | None = None
    roles: Iterable[Role | str] = ()
    ldap_group_reference: str | None = None
    raw_data: dict[str, Any] = field(repr=False, default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Returns the group's members by their names."""
        return {
            "name": self.name,
            "description": self.description,
            "roles": [role.as_dict() for role in _roles(self.roles)],
            "ldap_group_reference": self.ldap_group_reference,
        }


@watched
class UserManager(Manager):
    """Manages the users and groups of a cluster."""

    async def get_user(
        self,
        username: str,
        options: UserOptions | None = None,
        **kwargs: Unpack[UserOptions],
    ) -> UserAndMetadata:
        """Returns a user.

        Raises:
            UserNotFoundException: if it does not exist.
        """
        merged = options_of("get_user", UserOptions, options, kwargs)
        response = await self._send("GET", _user_path(username, merged), _timeout(merged))
        if response.status == 404:
            raise UserNotFoundException(response.text, response.context)
        return read(response, _user)

    async def get_all_users(
        self, options: UserOptions | None = None, **kwargs: Unpack[UserOptions]
    ) -> list[UserAndMetadata]:
        """Returns all users of a domain."""
        merged = options_of("get_all_users", UserOptions, options, kwargs)
        path = f"/settings/rbac/users/{_domain(merged)}"
        response = await self._send("GET", path, _timeout(merged))
        return read(response, lambda users: [_user(user) for user in users])

    async def upsert_user(
        self,
        user: User,
        options: UserOptions | None = None,
        **kwargs: Unpack[UserOptions],
    ) -> None:
        """Creates a user, or replaces its settings. Without a password, an existing user keeps its
        password.
        """
        merged = options_of("upsert_user", UserOptions, options, kwargs)
        fields: dict[str, object] = {
            "name": user.display_name,
            "password": user.password,
            "roles": ",".join(map(str, _roles(user.roles))),
            "groups": ",".join(user.groups),
        }
        path = _user_path(user.username, merged)
        require_success(await self._send("PUT", path, _timeout(merged), fields))

    async def drop_user(
        self,
        username: str,
        options: UserOptions | None = None,
        **kwargs: Unpack[UserOptions],
    ) -> None:
        """Removes a user.

        Raises:
            UserNotFoundException: if it does not exist.
        """
        merged = options_of("drop_user", UserOptions, options, kwargs)
        response = await self._send("DELETE", _user_path(username, merged), _timeout(merged))
        if response.status == 404:
            raise UserNotFoundException(response.text, response.context)
        require_success(response)

    async def change_password(
        self,
        new_password: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Changes the password of the connected user.

        Future connections need it: call `Cluster.set_authenticator`.
        """
        merged = options_of("change_password", TimeoutOptions, options, kwargs)
        fields: dict[str, object] = {"password": new_password}
        require_success(await self._send("POST", "/controller/changePassword", merged, fields))

    async def get_roles(
        self, options: TimeoutOptions | None = None, **kwargs: Unpack[TimeoutOptions]
    ) -> list[RoleAndDescription]:
        """Returns all roles."""
        merged = options_of("get_roles", TimeoutOptions, options, kwargs)
        response = await self._send("GET", "/settings/rbac/roles", merged)
        return read(response, lambda roles: [_described(role) for role in roles])

    async def get_group(
        self,
        group_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> Group:
        """Returns a group.

        Raises:
            GroupNotFoundException: if it does not exist.
        """
        merged = options_of("get_group", TimeoutOptions, options, kwargs)
        response = await self._send("GET", _group_path(group_name), merged)
        if response.status == 404:
            raise GroupNotFoundException(response.text, response.context)
        return read(response, _group)

    async def get_all_groups(
        self, options: TimeoutOptions | None = None, **kwargs: Unpack[TimeoutOptions]
    ) -> list[Group]:
        """Returns all groups."""
        merged = options_of("get_all_groups", TimeoutOptions, options, kwargs)
        response = await self._send("GET", "/settings/rbac/groups", merged)
        return read(response, lambda groups: [_group(group) for group in groups])

    async def upsert_group(
        self,
        group: Group,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Creates a group, or replaces its settings."""
        merged = options_of("upsert_group", TimeoutOptions, options, kwargs)
        fields: dict[str, object] = {
            "description": group.description,
            "roles": ",".join(map(str, _roles(group.roles))),
            "ldap_group_ref": group.ldap_group_reference,
        }
        require_success(await self._send("PUT", _group_path(group.name), merged, fields))

    async def drop_group(
        self,
        group_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Removes a group. Its users lose its roles.

        Raises:
            GroupNotFoundException: if it does not exist.
        """
        merged = options_of("drop_group", TimeoutOptions, options, kwargs)
        response = await self._send("DELETE", _group_path(group_name), merged)
        if response.status == 404:
            raise GroupNotFoundException(response.text, response.context)
        require_success(response)


def _timeout(options: UserOptions) -> TimeoutOptions:
    return {"timeout": options["timeout"]} if "timeout" in options else {}


def _domain(options: UserOptions) -> str:
    domain = options.get("domain_name", "local")
    if domain not in ("local", "external"):
        raise InvalidArgumentException("a domain is local or external")
    return domain


def _user_path(username: str, options: UserOptions) -> str:
    if not username:
        raise InvalidArgumentException("a user has a name")
    return f"/settings/rbac/users/{_domain(options)}/{quote(username, safe='')}"


def _group_path(name: str) -> str:
    if not name:
        raise InvalidArgumentException("a group has a name")
    return f"/settings/rbac/groups/{quote(name, safe='')}"


class _RoleMembers(TypedDict, total=False):
    role: str
    bucket_name: str
    scope_name: str
    collection_name: str


def _role(members: _RoleMembers) -> Role:
    place = (members.get(f"{part}_name") for part in ("bucket", "scope", "collection"))
    return Role(members["role"], *(None if part in (None, "*") else str(part) for part in place))


def _described(members: dict[str, Any]) -> RoleAndDescription:
    role = Role(members["role"], members.get("bucket_name"))
    return RoleAndDescription(
        role, members.get("name", ""), members.get("desc", ""), members.get("ce")
    )


def _user(members: dict[str, Any]) -> UserAndMetadata:
    roles = [
        RoleAndOrigins(
            _role(role),
            tuple(Origin(one["type"], one.get("name")) for one in role.get("origins", ())),
        )
        for role in members.get("roles", ())
    ]
    own = [
        one.role
        for one in roles
        if not one.origins or any(origin.type == "user" for origin in one.origins)
    ]
    changed = members.get("password_change_date")
    return UserAndMetadata(
        User(members["id"], members.get("name") or None, set(members.get("groups", ())), own),
        AuthDomain(members.get("domain", "local")),
        tuple(roles),
        datetime.fromisoformat(changed) if changed else None,
        tuple(members.get("external_groups", ())),
        members,
    )


def _group(members: dict[str, Any]) -> Group:
    return Group(
        members["id"],
        members.get("description"),
        [_role(role) for role in members.get("roles", ())],
        members.get("ldap_group_ref"),
        members,
    )
