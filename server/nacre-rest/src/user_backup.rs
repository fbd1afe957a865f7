//! Backup of users and groups. Paths, fields and members of answers are those of Couchbase 7.6.
//!
//! ```text
//! GET /settings/rbac/backup?include=group:*&include=user:local:*
//! PUT /settings/rbac/backup   backup=<the answer to GET>&canOverwrite=true
//! ```

use super::Call;
use super::body::{Reply, form, invalid, ok};
use super::routes::{Route, get, put, ready};
use super::users::{change, check_name, permit};
use nacre_auth::{BackupPart, Domain, Edit, Privilege, Restored, User, UsersBackup};
use nacre_http::Access;
use serde_json::{Value, json};

const PATH: &str = "/settings/rbac/backup";
/// Privilege for a backup: it contains the keys of passwords, and restoring it can create administrators.
const ALL_USERS: Access = Access::Cluster(Privilege::AdministerAdministrators);

pub(super) const ROUTES: &[Route] = &[
    get(PATH, ALL_USERS, |call| ready(take(&call))),
    put(PATH, ALL_USERS, |call| Box::pin(restore(call))),
];

/// Names of parts, each possibly with `*` for all: `admin`, `user:local:ann`, `group:staff`.
struct Patterns(Vec<Vec<String>>);

impl Patterns {
    fn read(field: &str, texts: &[String]) -> Result<Patterns, Reply> {
        let read = |text: &String| {
            let parts: Vec<String> = text.splitn(3, ':').map(str::to_owned).collect();
            let is_known = match parts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["*" | "admin"] | ["group", _] => true,
                ["user", domain, _] => {
                    domain == "*" || Domain::ALL.iter().any(|known| known.name() == domain)
                }
                _ => false,
            };
            let reason = || {
                let forms =
                    "must be *, admin, user:DOMAIN:NAME or group:NAME, where a name may be *";
                invalid(field, forms)
            };
            if is_known { Ok(parts) } else { Err(reason()) }
        };
        texts.iter().map(read).collect::<Result<_, Reply>>().map(Patterns)
    }

    fn cover(&self, part: BackupPart<'_>) -> bool {
        let named = match part {
            BackupPart::Administrator => vec!["admin"],
            BackupPart::User(domain, name) => vec!["user", domain.name(), name],
            BackupPart::Group(name) => vec!["group", name],
        };
        let covers = |pattern: &Vec<String>| {
            let is_all = pattern[..] == ["*"];
            let mut pairs = pattern.iter().zip(&named);
            is_all
                || (pattern.len() == named.len()
                    && pairs.all(|(pattern, name)| pattern == "*" || pattern == name))
        };
        self.0.iter().any(covers)
    }
}

fn take(call: &Call) -> Result<Reply, Reply> {
    let fields = form(call.query.as_bytes());
    let values = |wanted: &str| -> Vec<String> {
        let found = fields.iter().filter(|(field, _)| field == wanted);
        found.map(|(_, value)| value.clone()).collect()
    };
    if let Some((field, _)) =
        fields.iter().find(|(field, _)| !["include", "exclude"].contains(&field.as_str()))
    {
        return Err(invalid(field, "Unsupported key"));
    }
    let (include, exclude) = (values("include"), values("exclude"));
    if !include.is_empty() && !exclude.is_empty() {
        return Err(invalid("include", "include and exclude are mutually exclusive"));
    }
    let (included, excluded) =
        (Patterns::read("include", &include)?, Patterns::read("exclude", &exclude)?);
    let is_wanted = |part: BackupPart<'_>| match include.is_empty() {
        true => !excluded.cover(part),
        false => included.cover(part),
    };
    let administrator = call.node.cluster().administrator.clone();
    let backup = UsersBackup::of(&call.node.users(), &administrator, is_wanted);
    Ok(ok(&json!(backup)))
}

async fn restore(call: Call) -> Result<Reply, Reply> {
    let (mut backup, mut overwrite) = (None, false);
    for (field, value) in call.form() {
        match (field.as_str(), value.as_str()) {
            ("backup", _) => backup = Some(value),
            ("canOverwrite", "true" | "false") => overwrite = value == "true",
            ("canOverwrite", _) => {
                return Err(invalid("canOverwrite", "The value must be one of [true, false]"));
            }
            _ => return Err(invalid(&field, "Unsupported key")),
        }
    }
    let backup = backup.ok_or_else(|| invalid("backup", "The value must be supplied"))?;
    let backup: UsersBackup = serde_json::from_str(&backup)
        .map_err(|error| invalid("backup", format!("the backup cannot be read: {error}")))?;
    let at = u64::from(call.node.now().unix_s());
    let mut restored =
        backup.restored(overwrite, at).map_err(|reason| invalid("backup", reason))?;
    restored.users().try_for_each(|user| check_name(&user.name))?;
    restored.groups.iter().try_for_each(|group| check_name(&group.name))?;
    let administrator = call.node.cluster().administrator.clone();
    // The cluster has exactly one initial administrator. Restoring an administrator with another name would create a
    // second one that no list shows.
    let foreign = restored.administrator.take_if(|admin| admin.name != administrator);
    let report = report(&call, &restored, foreign.as_ref());
    let edit = Edit::Restore(Box::new(restored));
    permit(&call, &edit)?;
    change(&call, edit).await?;
    Ok(ok(&report))
}

/// Reports what a restore does to the present users and groups.
fn report(call: &Call, restored: &Restored, skipped: Option<&User>) -> Value {
    let users = call.node.users();
    let name = |user: &User, domain: &str| json!({"name": user.name, "domain": domain});
    let (mut created, mut present, mut apart) = (0, Vec::new(), Vec::new());
    apart.extend(skipped.map(|user| name(user, "admin")));
    for user in restored.users() {
        let is_admin =
            restored.administrator.as_ref().is_some_and(|admin| std::ptr::eq(admin, user));
        let domain = if is_admin { "admin" } else { user.domain.name() };
        match users.of(user.domain, &user.name) {
            None => created += 1,
            Some(_) => present.push(name(user, domain)),
        }
    }
    let is_new = |group: &&nacre_auth::Group| users.group(&group.name).is_none();
    let new_groups = restored.groups.iter().filter(is_new).count();
    let known = restored.groups.iter().filter(|group| !is_new(group));
    let known: Vec<&str> = known.map(|group| group.name.as_str()).collect();
    let split = |known: Vec<Value>| match restored.overwrite {
        true => (known, Vec::new()),
        false => (Vec::new(), known),
    };
    let (overwritten, mut left) = split(present);
    left.splice(0..0, apart);
    let (groups_overwritten, groups_left) = split(known.into_iter().map(Value::from).collect());
    json!({
        "stats": {
            "usersCreated": created,
            "usersOverwritten": overwritten.len(),
            "usersSkipped": left.len(),
            "groupsCreated": new_groups,
            "groupsOverwritten": groups_overwritten.len(),
            "groupsSkipped": groups_left.len(),
        },
        "usersOverwritten": overwritten,
        "usersSkipped": left,
        "groupsOverwritten": groups_overwritten,
        "groupsSkipped": groups_left,
    })
}
