"""Users and groups."""

from ...management.users import (
    DropUserOptions,
    GetAllUsersOptions,
    GetUserOptions,
    Group,
    Origin,
    Role,
    RoleAndDescription,
    RoleAndOrigins,
    UpsertUserOptions,
    User,
    UserAndMetadata,
    UserOptions,
)
from .. import UserManager

__all__ = [
    "DropUserOptions",
    "GetAllUsersOptions",
    "GetUserOptions",
    "Group",
    "Origin",
    "Role",
    "RoleAndDescription",
    "RoleAndOrigins",
    "UpsertUserOptions",
    "User",
    "UserAndMetadata",
    "UserManager",
    "UserOptions",
]
