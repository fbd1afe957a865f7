//! The world `resolver`: the longer body wins, `merge` as a local body joins both, `loop` never ends, `trap` crashes, `large` is
//! merged to more than a document may have. Of a key that begins with `counter::`, whose body has a number for each place that counts,
//! the greater number of each is kept.

use nacre_plugin::{Fault, Resolver, Verdict, Version};
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
