"""Users against other users: races with the administrator, roles beyond one's own, logins that should have ended."""

import threading
import time

from . import kv
from .harness import PASSWORD, USER, case

USERS = "/settings/rbac/users/local"
GROUPS = "/settings/rbac/groups"
ROUNDS = 6


class Repeats:
    """Repeats an attack in three threads until the block ends."""

    def __init__(self, attack):
        self.attack, self.stop = attack, threading.Event()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(3)]

    def _run(self):
        while not self.stop.is_set():
            try:
                self.attack()
            except OSError:
                pass

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        time.sleep(0.1)
        return self

    def __exit__(self, *_):
        # The case is about requests in progress when the administrator has acted.
        time.sleep(0.2)
        self.stop.set()
        for thread in self.threads:
            thread.join(20)


def user_of(node, name):
    """Returns the administrator's view of a user, or `None`."""
    answer = node.rest("GET", f"{USERS}/{name}")
    return answer.json() if answer.status == 200 else None


def as_admin(node, method, path, form=None):
    """Makes a change as the administrator, and checks that it succeeded."""
    answer = node.rest(method, path, form)
    assert answer.status == 200, (method, path, answer.status, answer.body)


def own_password(node, password=PASSWORD):
    """Lets `mallory` set the own password to its present value repeatedly."""
    return lambda: node.rest("POST", "/controller/changePassword", {"password": password}, user="mallory", password=password)


@case("a new password of one's own undoes no revocation")
def revocation(node):
    for _ in range(ROUNDS):
        node.add_user("mallory", "admin")
        with Repeats(own_password(node)):
            as_admin(node, "PUT", f"{USERS}/mallory", {"roles": ""})
        assert user_of(node, "mallory")["roles"] == []


@case("a new password of one's own undoes no deletion")
def deletion(node):
    for _ in range(ROUNDS):
        node.add_user("mallory", "admin")
        with Repeats(own_password(node)):
            as_admin(node, "DELETE", f"{USERS}/mallory")
        assert user_of(node, "mallory") is None


@case("a new password of one's own undoes no reset")
def reset(node):
    for _ in range(ROUNDS):
        node.add_user("mallory", "admin")
        with Repeats(own_password(node)):
            as_admin(node, "PUT", f"{USERS}/mallory", {"roles": "", "password": "another1"})
        assert user_of(node, "mallory")["roles"] == []
        assert node.rest("GET", "/whoami", user="mallory").status == 401
        assert node.rest("GET", "/whoami", user="mallory", password="another1").status == 200


@case("an administrator who is demoted cannot grant the role back with requests under way")
def granting_back(node):
    for _ in range(ROUNDS):
        node.add_user("mallory", "admin")

        def grant():
            node.rest("PUT", f"{USERS}/mallory", {"roles": "admin", "password": PASSWORD}, user="mallory")

        with Repeats(grant):
            as_admin(node, "PATCH", f"{USERS}/mallory", {"roles": "", "password": "another1"})
        assert user_of(node, "mallory")["roles"] == []


@case("an administrator who is deleted cannot come back with requests under way")
def coming_back(node):
    for _ in range(ROUNDS):
        node.add_user("mallory", "admin")

        def create():
            node.rest("PUT", f"{USERS}/mallory", {"roles": "admin", "password": PASSWORD}, user="mallory")

        with Repeats(create):
            as_admin(node, "DELETE", f"{USERS}/mallory")
        assert user_of(node, "mallory") is None


PRIVILEGED = ["admin", "ro_admin", "security_admin", "security_admin_local", "security_admin_external"]


@case("a security administrator neither becomes an administrator nor touches one")
def security_administrators(node):
    node.add_user("victim", "data_reader[default]")
    node.add_user("other", "security_admin")
    as_admin(node, "PUT", f"{GROUPS}/bosses", {"roles": "admin"})
    as_admin(node, "PUT", f"{USERS}/member", {"password": PASSWORD, "groups": "bosses"})
    for role in ("security_admin", "security_admin_local"):
        node.add_user("sec", role)

        def ask(method, path, form=None):
            return node.rest(method, path, form, user="sec").status

        for granted in PRIVILEGED:
            for path in (f"{USERS}/sec", f"{USERS}/victim", f"{USERS}/new", f"{GROUPS}/new"):
                form = {"roles": f"data_reader[default],{granted}", "password": PASSWORD}
                assert ask("PUT", path, form) == 403, (role, path, granted)
            assert ask("PATCH", f"{USERS}/victim", {"roles": granted}) == 403
        for name in (USER, "other", "member"):
            assert ask("PUT", f"{USERS}/{name}", {"password": "hacked11", "roles": ""}) == 403, name
            assert ask("PATCH", f"{USERS}/{name}", {"password": "hacked11"}) == 403, name
            assert ask("PATCH", f"{USERS}/{name}", {"locked": "true"}) == 403, name
            assert ask("DELETE", f"{USERS}/{name}") == 403, name
        assert ask("PUT", f"{USERS}/victim", {"groups": "bosses"}) == 403
        assert ask("PATCH", f"{USERS}/victim", {"groups": "bosses"}) == 403
        assert ask("PUT", f"{GROUPS}/bosses", {"roles": ""}) == 403
        assert ask("DELETE", f"{GROUPS}/bosses") == 403
        for statement in [
            "GRANT admin TO sec", "GRANT security_admin TO victim", "GRANT ro_admin TO GROUP new", f"REVOKE admin FROM {USER}",
            "GRANT data_reader ON default TO other", f'ALTER USER {USER} PASSWORD "hacked11"', f"DROP USER {USER}", "DROP USER other",
            "DROP GROUP bosses", "ALTER GROUP bosses ROLES admin", "CREATE GROUP new ROLES admin",
        ]:
            answer = node.query(statement, user="sec")
            assert [error["code"] for error in answer["errors"]] == [13014], (role, statement, answer)
        # The role permits these requests.
        assert ask("PUT", f"{USERS}/new", {"password": PASSWORD, "roles": "data_reader[default]"}) == 200
        assert ask("PATCH", f"{USERS}/new", {"locked": "true"}) == 200
        assert ask("DELETE", f"{USERS}/new") == 200
        assert ask("POST", "/controller/changePassword", {"password": PASSWORD}) == 200
    assert node.rest("GET", "/whoami").status == 200


@case("a new password ends key-value connections that logged in with the old one")
def old_passwords(node):
    node.add_user("ann", "data_writer[default],data_reader[default]")
    with node.kv("ann") as connection, node.kv() as other:
        assert connection.set(b"k", b"1").status == kv.SUCCESS
        as_admin(node, "PATCH", f"{USERS}/ann", {"password": "another1"})
        assert connection.get(b"k").status == kv.AUTH_STALE
        assert connection.login("ann", PASSWORD).status == kv.AUTH_ERROR
        assert connection.login("ann", "another1").status == kv.SUCCESS
        assert other.get(b"k").status == kv.SUCCESS, "others go on"


@case("a user who is deleted and created again between two requests is another one")
def created_again(node):
    roles = "data_writer[default],data_reader[default]"
    node.add_user("ann", roles)
    with node.kv("ann") as connection:
        assert connection.set(b"k", b"1").status == kv.SUCCESS
        as_admin(node, "DELETE", f"{USERS}/ann")
        node.add_user("ann", roles)
        assert connection.get(b"k").status == kv.AUTH_STALE


@case("a locked user is out at once on every port, and back when unlocked")
def locked(node):
    node.add_user("ann", "admin")
    with node.kv("ann") as connection:
        assert node.rest("GET", "/whoami", user="ann").status == 200
        as_admin(node, "PATCH", f"{USERS}/ann", {"locked": "true"})
        assert connection.get(b"k").status == kv.AUTH_STALE
    assert node.rest("GET", "/whoami", user="ann").status == 401
    as_admin(node, "PATCH", f"{USERS}/ann", {"locked": "false"})
    assert node.rest("GET", "/whoami", user="ann").status == 200


@case("users without roles change only their own password")
def own_password_only(node):
    node.add_user("ann")
    node.add_user("bob")
    for method, path in [
        ("GET", USERS), ("GET", f"{USERS}/bob"), ("PUT", f"{USERS}/bob"), ("PATCH", f"{USERS}/bob"),
        ("DELETE", f"{USERS}/bob"), ("PUT", "/settings/rbac/users/external/bob"), ("GET", GROUPS),
        ("PUT", f"{GROUPS}/g"), ("DELETE", f"{GROUPS}/g"), ("GET", "/settings/rbac/roles"),
        ("POST", "/settings/passwordPolicy"), ("PATCH", f"{USERS}/ann"),
    ]:
        form = {"roles": "admin", "password": PASSWORD} if method in ("PUT", "PATCH") else None
        assert node.rest(method, path, form, user="ann").status == 403, (method, path)
    assert node.rest("POST", "/controller/changePassword", {"password": "another1"}, user="ann").status == 200
    assert node.rest("GET", "/whoami", user="ann").status == 401
    assert node.rest("GET", "/whoami", user="bob").status == 200
