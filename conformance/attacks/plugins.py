"""Plugins that try to read, write or keep more than their deployer or caller may."""

import io
import tarfile

from .harness import BUCKET, Json, case, eventually

READS = """
export function onUpdate(doc, meta) { state.put(meta.id, doc); }
export function handle(request) { return [...state.scan({})]; }
"""
POLLUTES = """
globalThis.seen = [];
export function onUpdate() {}
export function handle(request) {
    const user = request.headers['nacre-user'];
    seen.push(user);
    Array.prototype.marked = (Array.prototype.marked || '') + user + ' ';
    return {seen, marked: Array.prototype.marked};
}
"""


def package(name, source, more=""):
    """Returns a package of a script."""
    manifest = f'name = "{name}"\nversion = "1"\nscript = "main.js"\nstate_version = "1"\n{more}'
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, text in (("plugin.toml", manifest), ("main.js", source)):
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


def upload(node, name, source, more="", user="Administrator"):
    """Uploads a package of a script."""
    answer = node.rest("POST", "/plugins", package(name, source, more), user=user)
    assert answer.status == 201, answer.body


def deploy(node, name, user="Administrator", **wanted):
    """Deploys a package under its name; returns the answer."""
    value = {"package": name, "version": "1", "bucket": BUCKET, **wanted}
    return node.rest("PUT", f"/deployments/{name}", Json(value), user=user)


def runs(node, name):
    """Waits until a deployment runs."""
    def state():
        return node.rest("GET", f"/deployments/{name}").json().get("state") == "running"
    eventually(state, within=60)


@case("nobody reads or writes documents through a plugin that he may not read or write")
def deployers_need_the_rights(node):
    with node.kv() as connection:
        connection.set(b"secret", b'{"top": 1}')
    upload(node, "reads", READS)
    upload(node, "writes", READS, '[capabilities]\nkv = { write = ["_default._default"] }\n')
    grants = {"kv": {"write": ["_default._default"]}}
    for role in ("plugin_admin", "cluster_admin"):
        node.add_user("mallory", role)
        answer = deploy(node, "reads", "mallory")
        assert answer.status == 403 and b"data_reader[default]" in answer.body, answer.body
        node.add_user("mallory", f"{role},data_reader[{BUCKET}]")
        answer = deploy(node, "reads", "mallory")
        assert answer.status == 403 and b"data_dcp_reader[default]" in answer.body, answer.body
        node.add_user("mallory", f"{role},data_dcp_reader[{BUCKET}]")
        answer = deploy(node, "writes", "mallory", grants=grants)
        assert answer.status == 403 and b"data_writer[default:_default:_default]" in answer.body, answer.body
    assert deploy(node, "reads", "mallory").status == 200
    assert deploy(node, "writes", grants=grants).status == 200, "administrators have all"
    runs(node, "reads")
    node.add_user("mallory", "plugin_admin")

    def held():
        told = node.rest("GET", "/deployments/reads").json()
        return told["state"] == "paused" and "data_reader[default]" in (told["reason"] or "")

    eventually(held, within=30)
    assert node.rest("POST", "/deployments/reads/resume", user="mallory").status == 403
    assert node.rest("GET", "/deployments/reads/capsules", user="mallory").status == 403
    assert node.rest("GET", "/deployments/reads/capsules").status == 200
    told = node.rest("GET", "/deployments/reads", user="mallory").json()
    assert "dead_letters" not in told and "log" not in told, told
    assert node.rest("POST", "/deployments/reads/resume").json()["owner"] == "Administrator"
    runs(node, "reads")
    assert node.rest("DELETE", "/settings/rbac/users/local/mallory").status == 200
    runs(node, "reads")


@case("what a plugin remembers of one user's request another user's does not find")
def globals_belong_to_a_user(node):
    upload(node, "pollutes", POLLUTES)
    assert deploy(node, "pollutes").status == 200
    runs(node, "pollutes")
    for user in ("ann", "bob"):
        node.add_user(user, f"plugin_invoke[{BUCKET}]")
    for user in ("ann", "bob", "ann", "bob", "bob"):
        answer = node.rest("GET", "/_plugin/pollutes/", user=user, headers={"nacre-user": "forged"}).json()
        assert set(answer["seen"]) == {user} and set(answer["marked"].split()) == {user}, answer


@case("a plugin reaches neither the node nor its machine unless an operator allows it")
def plugins_stay_outside(node):
    port = node.port("mgmt")
    source = f"""
export function onUpdate() {{}}
export function handle() {{
    try {{ return {{status: http.fetch('http://127.0.0.1:{port}/pools').status}}; }}
    catch (error) {{ return {{code: error.code, message: String(error.message)}}; }}
}}"""
    upload(node, "fetches", source, f'[capabilities]\nhttp-out = ["127.0.0.1:{port}"]\n')
    assert deploy(node, "fetches", grants={"http-out": [f"127.0.0.1:{port}"]}).status == 200
    runs(node, "fetches")
    told = node.rest("GET", "/_plugin/fetches/").json()
    assert told.get("code") == "denied" and "outgoingHttp" in told["message"], told
