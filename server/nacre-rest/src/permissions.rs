//! Checks a user's privileges in terms of Couchbase's permissions: `POST /pools/default/checkPermissions`.
//!
//! A permission is `cluster`, a path of objects and, after an exclamation mark, an operation: `cluster.nodes!read`,
//! `cluster.bucket[travel].data.docs!write`, `cluster.collection[travel:inventory:airline].n1ql.select!execute`.

use super::Call;
use super::body::{Reply, json_reply, ok};
use super::routes::{Route, post, ready};
use hyper::StatusCode;
use nacre_auth::{Keyspace, Privilege, User};
use nacre_cluster::Cluster;
use nacre_http::Access;
use nacre_node::service::ServiceTable;
use serde_json::{Map, Value, json};

/// Largest number of permissions in a request.
const PERMISSIONS_MAX: usize = 1000;
/// The name that means any bucket.
const ANY: &str = ".";

pub(super) const ROUTES: &[Route] =
    &[post("/pools/default/checkPermissions", Access::Login, |call| ready(check(&call)))];

/// Answers for each permission in the body (separated by commas) whether the user has it.
fn check(call: &Call) -> Result<Reply, Reply> {
    let users = call.node.users();
    let user = call.holder(&users);
    let cluster = call.node.cluster();
    let table = call.node.service_table();
    let text = String::from_utf8_lossy(&call.body);
    let asked: Vec<&str> = text.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
    if asked.len() > PERMISSIONS_MAX {
        let reason = format!("At most {PERMISSIONS_MAX} permissions are answered at once.");
        return Err(json_reply(StatusCode::PAYLOAD_TOO_LARGE, &json!(reason)));
    }
    let mut answers = Map::new();
    for permission in asked {
        let Some(wanted) = Permission::read(permission) else {
            let reason = format!("Malformed permission: {permission}");
            return Err(json_reply(StatusCode::BAD_REQUEST, &json!(reason)));
        };
        let has = user.is_some_and(|user| wanted.is_of(user, &cluster, table));
        answers.insert(permission.to_owned(), json!(has));
    }
    Ok(ok(&Value::Object(answers)))
}

/// A parsed permission.
#[derive(Debug, PartialEq)]
struct Permission<'a> {
    keyspace: Keyspace<'a>,
    /// The part of the object, such as `data.docs`.
    object: &'a str,
    operation: &'a str,
}

impl<'a> Permission<'a> {
    /// Returns `None` if `text` is not a permission.
    fn read(text: &'a str) -> Option<Permission<'a>> {
        let (path, operation) = text.split_once('!')?;
        let path = path.strip_prefix("cluster")?;
        let path = if path.is_empty() { path } else { path.strip_prefix('.')? };
        let named = |kind: &str| path.strip_prefix(kind)?.strip_prefix('[')?.split_once(']');
        let found = ["bucket", "scope", "collection"].iter().find_map(|kind| named(kind));
        let (names, object) = match found {
            Some((names, rest)) if rest.is_empty() => (names, rest),
            Some((names, rest)) => (names, rest.strip_prefix('.')?),
            None => ("", path),
        };
        let mut names = names.split(':').map(|name| Some(name).filter(|name| !name.is_empty()));
        let mut next = || names.next().flatten();
        let keyspace = Keyspace { bucket: next(), scope: next(), collection: next() };
        let is_whole = !operation.is_empty() && !object.contains(['[', ']']);
        is_whole.then_some(Permission { keyspace, object, operation })
    }

    /// Returns the privileges that the permission requires in nacre. Permissions for features that nacre does not have
    /// require all privileges.
    fn privileges(&self, table: &ServiceTable) -> &'static [Privilege] {
        use Privilege as P;
        let of_bucket = self.keyspace.bucket.is_some();
        if let Some(privileges) = table.privileges(self.object, of_bucket, self.operation) {
            return privileges;
        }
        let reads = matches!(self.operation, "read" | "list");
        match (self.object, of_bucket, reads) {
            ("data.docs" | "data", true, _) if matches!(self.operation, "read" | "range_scan") => {
                &[P::ReadData]
            }
            ("data.docs" | "data", true, _) => match self.operation {
                "insert" => &[P::InsertData],
                "upsert" => &[P::UpsertData],
                "delete" => &[P::DeleteData],
                _ => &[P::WriteData],
            },
            ("data.sxattr", true, true) => &[P::ReadData, P::SystemAttributes],
            ("data.sxattr", true, false) => &[P::WriteData, P::SystemAttributes],
            ("data.meta", true, true) => &[P::ReadData],
            ("data.meta", true, false) => &[P::WriteWithMeta],
            ("data.dcp" | "data.dcpstream", true, _) => &[P::StreamData],
            ("stats" | "memory_quota", _, true) => &[P::ReadStats],
            ("collections", true, false) => &[P::AdministerCollections],
            ("settings" | "collections" | "", true, true) => &[P::ReadCluster],
            ("settings" | "", true, false) => &[P::AdministerBucket],
            ("buckets", false, false) => &[P::AdministerBucket],
            ("admin.security.admin", false, false) => &[P::AdministerAdministrators],
            ("admin.security.external" | "admin.users.external", false, false) => {
                &[P::AdministerExternalUsers]
            }
            (
                "admin.security" | "admin.security.local" | "admin.users" | "admin.users.local",
                false,
                false,
            ) => &[P::AdministerUsers],
            ("backup", false, _) => &[P::Backup],
            ("plugins", false, _) => &[P::AdministerPlugins],
            (
                "nodes" | "pools" | "settings" | "tasks" | "buckets" | "server_groups" | "logs"
                | "admin.security" | "admin.users" | "admin.settings" | "",
                false,
                true,
            ) => &[P::ReadCluster],
            (
                "nodes" | "pools" | "settings" | "tasks" | "server_groups" | "admin.settings"
                | "admin.setup",
                false,
                false,
            ) => &[P::AdministerCluster],
            _ => &[P::AdministerCluster, P::AdministerUsers],
        }
    }

    fn is_of(&self, user: &User, cluster: &Cluster, table: &ServiceTable) -> bool {
        let may = |keyspace: Keyspace<'_>| {
            self.privileges(table).iter().all(|privilege| user.may(*privilege, keyspace))
        };
        match self.keyspace.bucket {
            Some(ANY) => cluster.buckets.keys().any(|bucket| {
                may(Keyspace { bucket: Some(bucket.as_str()), ..Keyspace::default() })
            }),
            _ => may(self.keyspace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_parsed() {
        let of = |bucket, scope, collection| Keyspace { bucket, scope, collection };
        let permission =
            |keyspace, object, operation| Some(Permission { keyspace, object, operation });
        let read = Permission::read;
        assert_eq!(read("cluster.nodes!read"), permission(of(None, None, None), "nodes", "read"));
        assert_eq!(read("cluster!all"), permission(of(None, None, None), "", "all"));
        let docs = permission(of(Some("b"), None, None), "data.docs", "write");
        assert_eq!(read("cluster.bucket[b].data.docs!write"), docs);
        let select = permission(of(Some("b"), Some("s"), Some("c")), "n1ql.select", "execute");
        assert_eq!(read("cluster.collection[b:s:c].n1ql.select!execute"), select);
        assert_eq!(
            read("cluster.bucket[b]!delete"),
            permission(of(Some("b"), None, None), "", "delete")
        );
        for text in [
            "",
            "cluster",
            "nodes!read",
            "clusters!read",
            "cluster.nodes!",
            "cluster.bucket[b!read",
            "cluster.bucket[b]x!read",
            "cluster.x[y].z!read",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn roles_have_the_permissions_of_their_kind() {
        let cluster = Cluster::new("c".repeat(32));
        let table = ServiceTable::of(&nacre_server::services());
        let has = |role: &str, permission: &str| {
            let user = User::new("ann", "secret", vec![role.parse().unwrap()], [1; 32]);
            Permission::read(permission).unwrap().is_of(&user, &cluster, &table)
        };
        for permission in
            ["cluster.bucket[b].data.docs!read", "cluster.collection[b:s:c].data.docs!read"]
        {
            assert!(has("data_reader[b]", permission), "{permission}");
        }
        for permission in [
            "cluster.bucket[b].data.docs!write",
            "cluster.bucket[other].data.docs!read",
            "cluster.bucket[.].data.docs!read",
            "cluster.nodes!read",
            "cluster.nothing.like.it!read",
        ] {
            assert!(!has("data_reader[b]", permission), "{permission}");
            assert_eq!(has("admin", permission), !permission.contains("[.]"), "{permission}");
        }
        assert!(has("query_select[b]", "cluster.bucket[b].n1ql.select!execute"));
        assert!(!has("query_select[b]", "cluster.bucket[b].n1ql.insert!execute"));
        for (kind, docs) in [("insert", "insert"), ("update", "upsert"), ("delete", "delete")] {
            let role = format!("query_{kind}[b]");
            for other in ["select", "insert", "update", "delete"] {
                let permission = format!("cluster.bucket[b].n1ql.{other}!execute");
                assert_eq!(has(&role, &permission), other == kind, "{role}: {permission}");
            }
            for other in ["insert", "upsert", "delete"] {
                let permission = format!("cluster.bucket[b].data.docs!{other}");
                let is_included = other == docs || (docs, other) == ("upsert", "insert");
                assert_eq!(has(&role, &permission), is_included, "{role}: {permission}");
                assert!(has("data_writer[b]", &permission), "{permission}");
            }
            assert!(!has(&role, "cluster.bucket[b].data.docs!write"), "{role}");
            assert!(!has(&role, "cluster.bucket[b].data.docs!read"), "{role}");
        }
        assert!(has("query_execute_functions[b:s]", "cluster.scope[b:s].n1ql.udf!execute"));
        assert!(!has("query_execute_functions[b:s]", "cluster.scope[b:s].n1ql.udf!manage"));
        assert!(has("views_reader[b]", "cluster.bucket[b].views!read"));
        assert!(!has("views_reader[b]", "cluster.bucket[b].views!write"));
        assert!(has("views_admin[b]", "cluster.bucket[b].views!write"));
        assert!(has("eventing_admin", "cluster.eventing!manage"));
        assert!(has("plugin_admin", "cluster.plugins!write"));
        assert!(!has("eventing_admin", "cluster.plugins!write"));
        assert!(has("ro_admin", "cluster.nodes!read"));
        assert!(!has("ro_admin", "cluster.nodes!write"));
        assert!(!has("cluster_admin", "cluster.admin.security!write"));
    }
}
