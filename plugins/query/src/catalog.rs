//! What `system:` has of the service itself: prepared statements, functions, requests that run and those that were slow.

use crate::function;
use crate::prepared_key::{PREPARED, PreparedKey};
use crate::run::Run;
use crate::service::Service;
use crate::watch;
use nacre_sql::{Error, Name, Result, Value};

impl Service {
    /// The rows of a catalog.
    pub(crate) fn catalog(&self, name: &str, run: &Run<'_>) -> Result<Vec<(Name, Value)>> {
        Ok(match name {
            "dual" => vec![("dual".into(), Value::Null)],
            "prepareds" => self.prepareds(run)?,
            "functions" | "functions_cache" => function::rows(run.store)?,
            "active_requests" => watch::active(run)?,
            "completed_requests" => watch::completed(run)?,
            _ => run.store.catalog(name)?.ok_or_else(|| {
                Error::new(12003, format!("Keyspace not found in CB datastore: system:{name}"))
            })?,
        })
    }

    fn prepareds(&self, run: &Run<'_>) -> Result<Vec<(Name, Value)>> {
        let keys = run.store.notes().keys(PREPARED)?;
        let user = run.store.user();
        let row = |note: String| {
            let key = PreparedKey::from_note(&note)?;
            // One may have gone since the keys were read.
            let prepared = self.prepared_statement(&key, run.store).ok()?;
            let mut fields = vec![
                ("encoded_plan", Value::from("")),
                ("name", key.name.as_str().into()),
                ("statement", prepared.text.as_str().into()),
            ];
            let more = [("queryContext", &key.context), ("users", &key.user)];
            let more = more.into_iter().filter(|(_, value)| !value.is_empty());
            fields.extend(more.map(|(name, value)| (name, value.as_str().into())));
            Some((key.id(&user).into(), Value::object(fields)))
        };
        Ok(keys.into_iter().filter_map(row).collect())
    }

    /// Takes an entry out of a catalog: a request that runs is stopped by that.
    ///
    /// # Errors
    /// Code 11003 for catalogs that only tell.
    pub(crate) fn remove_entry(&self, catalog: &str, id: &str, run: &Run<'_>) -> Result<()> {
        let notes = run.store.notes();
        match catalog {
            "prepareds" => {
                notes.note(&PreparedKey::from_id(id, &run.store.user()).note(), None);
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
