//! The `system:` catalogs of the service itself: prepared statements, functions, active requests and slow ones.

use crate::function;
use crate::prepared_key::{PREPARED, PreparedKey};
use crate::prepared_use;
use crate::run::Run;
use crate::service::Service;
use crate::service_functions;
use crate::statistics;
use crate::vectors;
use crate::watch;
use nacre_datastore::Keyspace;
use nacre_sql::{Error, Name, Result, Value};

/// Returns the keyspaces that the user may query, with their document counts.
fn keyspaces(run: &Run<'_>) -> Result<Vec<(Name, Value)>> {
    let mut rows = Vec::new();
    for (id, row) in run.store.catalog("keyspaces")?.unwrap_or_default() {
        let Value::Object(mut fields) = row else { continue };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(Name::from);
        let Some(name) = text("name") else { continue };
        let default = || Name::from("_default");
        // Rows of default collections have only the name of their bucket.
        let (bucket, collection) = match text("bucket") {
            Some(bucket) => (bucket, name),
            None => (name, default()),
        };
        let scope = text("scope").unwrap_or_else(default);
        let keyspace = Keyspace { namespace: "default".into(), bucket, scope, collection };
        nacre_sql::Host::tick(run)?;
        let count = match run.store.count(&keyspace, &run.settings.consistency) {
            Ok(count) => count,
            // The keyspace was dropped meanwhile, or the user may not query it.
            Err(error) if [FORBIDDEN, 12003, 12021].contains(&error.code) => continue,
            Err(error) => return Err(error),
        };
        let fields_mut = std::sync::Arc::make_mut(&mut fields);
        fields_mut.insert("count".into(), Value::Int(count as i64));
        rows.push((id, Value::Object(fields)));
    }
    Ok(rows)
}

/// Code for a missing right.
const FORBIDDEN: u32 = 13014;

impl Service {
    /// Returns the rows of a catalog.
    pub(crate) fn catalog(&self, name: &str, run: &Run<'_>) -> Result<Vec<(Name, Value)>> {
        Ok(match name {
            "dual" => vec![("dual".into(), Value::Null)],
            "prepareds" => self.prepareds(run)?,
            "functions" | "functions_cache" => function::rows(run.store)?,
            "dictionary" | "dictionary_cache" => statistics::rows(run)?,
            "keyspaces_info" | "all_keyspaces_info" => keyspaces(run)?,
            // Workload reports are not written; slow requests are in other catalogs.
            "awr" => {
                vec![(
                    "awr".into(),
                    Value::object([("enabled", false.into()), ("location", "".into())]),
                )]
            }
            "indexes" | "all_indexes" => {
                let mut rows = run.store.catalog(name)?.unwrap_or_default();
                rows.extend(vectors::rows(run));
                rows
            }
            "active_requests" => watch::active(run)?,
            "tasks_cache" => watch::tasks(run)?,
            // Requests are kept in one place: there is no archive besides.
            "completed_requests" | "completed_requests_history" => watch::completed(run)?,
            _ => run.store.catalog(name)?.ok_or_else(|| {
                Error::new(12003, format!("Keyspace not found in CB datastore: system:{name}"))
            })?,
        })
    }

    fn prepareds(&self, run: &Run<'_>) -> Result<Vec<(Name, Value)>> {
        let keys = run.store.notes().keys(PREPARED)?;
        let user = run.store.user();
        let node = service_functions::node(run)?.field("name");
        let row = |note: String| {
            let key = PreparedKey::from_note(&note)?;
            // A statement may have been removed since the keys were read.
            let prepared = self.prepared_statement(&key, run.store).ok()?;
            let mut fields = prepared_use::fields(&key);
            fields.extend([
                ("node", node.clone()),
                ("statement", prepared.full_text.as_str().into()),
                ("users", key.user.as_str().into()),
            ]);
            fields.extend(prepared_use::use_fields(&key, run).ok()?);
            Some((key.id(&user).into(), Value::object(fields)))
        };
        Ok(keys.into_iter().filter_map(row).collect())
    }

    /// Removes an entry from a catalog; removing an active request stops it.
    ///
    /// # Errors
    /// Code 11003 for catalogs that are read-only.
    pub(crate) fn remove_entry(&self, catalog: &str, id: &str, run: &Run<'_>) -> Result<()> {
        let notes = run.store.notes();
        match catalog {
            "prepareds" => {
                let key = PreparedKey::from_id(id, &run.store.user());
                notes.note(&key.note(), None);
                prepared_use::forget(&key, run.store);
            }
            "active_requests" => watch::stop(id, run),
            "completed_requests" => watch::forget(id, run),
            _ => {
                let message =
                    format!("System datastore :  Not implemented DELETE on system:{catalog}");
                return Err(Error::new(11003, message));
            }
        }
        Ok(())
    }
}
