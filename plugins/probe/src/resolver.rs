//! The world `resolver`: the longer body wins, `merge` as a local body joins both, `loop` never ends, `trap` crashes, `large` is
//! merged to more than a document may have, and `context` is merged to a JSON object with the facts that came with the versions. Of a key that begins with `counter::`, whose body has a number for each place that counts,
//! the greater number of each is kept.

use nacre_plugin::{Conflict, Fault, History, Resolver, Verdict, Version};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The numbers of a counter by place.
type Counter = BTreeMap<String, u64>;

struct Longer;

impl Resolver for Longer {
    fn describe() -> String {
        r#"{"name":"longer","version":"0.1.0","limits":{}}"#.into()
    }

    fn init(_: &str) -> Result<Longer, Fault> {
        Ok(Longer)
    }

    fn resolve_conflict(&mut self, conflict: &Conflict) -> Result<Verdict, Fault> {
        if conflict.local.body == b"context" {
            return Ok(Verdict::Merged(described(conflict).to_string().into_bytes()));
        }
        self.resolve(&conflict.key, &conflict.local, &conflict.remote)
    }

    fn resolve(&mut self, key: &[u8], local: &Version, remote: &Version) -> Result<Verdict, Fault> {
        if key.starts_with(b"counter::") {
            return merge(local, remote);
        }
        match &local.body[..] {
            b"merge" => Ok(Verdict::Merged([&local.body[..], &remote.body].concat())),
            b"loop" => loop {
                std::hint::black_box(());
            },
            b"trap" => panic!("on purpose"),
            b"large" => Ok(Verdict::Merged(vec![b'1'; (20 << 20) + 1])),
            b"refuse" => Err(Fault::Reject("no verdict".into())),
            body if body.len() >= remote.body.len() => Ok(Verdict::KeepLocal),
            _ => Ok(Verdict::KeepRemote),
        }
    }
}

/// Returns the facts about a conflict.
fn described(conflict: &Conflict) -> Value {
    let history = |history: Option<&History>| {
        history.map(|it| json!([it.source, it.cas, it.merged, it.previous]))
    };
    let base = conflict.base.as_ref();
    json!({
        "keyspace": format!("{}.{}", conflict.scope, conflict.collection),
        "here": conflict.here,
        "local": history(conflict.local_history.as_ref()),
        "remote": history(conflict.remote_history.as_ref()),
        "base": base.map(|base| (String::from_utf8_lossy(&base.body).into_owned(), base.cas)),
    })
}

fn merge(local: &Version, remote: &Version) -> Result<Verdict, Fault> {
    let counter = |version: &Version| {
        serde_json::from_slice::<Counter>(&version.body)
            .map_err(|error| Fault::Reject(error.to_string()))
    };
    let mut merged = counter(local)?;
    for (place, number) in counter(remote)? {
        let own = merged.entry(place).or_default();
        *own = number.max(*own);
    }
    serde_json::to_vec(&merged)
        .map(Verdict::Merged)
        .map_err(|error| Fault::Reject(error.to_string()))
}

nacre_plugin::export_resolver!(Longer);
