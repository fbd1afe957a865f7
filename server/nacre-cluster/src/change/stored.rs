//! Deserializes a change: the name of the change determines its domain.

use crate::{
    BucketChange, Change, FunctionChange, IndexChange, NodeChange, PluginChange, QueryChange,
    RecordChange,
};
use serde::de::value::EnumAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt;

impl<'de> Deserialize<'de> for Change {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Change, D::Error> {
        deserializer.deserialize_enum("Change", &[], ChangeVisitor)
    }
}

struct ChangeVisitor;

impl<'de> Visitor<'de> for ChangeVisitor {
    type Value = Change;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a change of the agreed state")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Change, A::Error> {
        let (name, content) = access.variant::<String>()?;
        let is_of = |names: &[&str]| names.contains(&name.as_str());
        let read = Named { name: &name, content };
        if is_of(names::<NodeChange>()) {
            read.into_domain().map(Change::Nodes)
        } else if is_of(names::<BucketChange>()) {
            read.into_domain().map(Change::Buckets)
        } else if is_of(names::<IndexChange>()) {
            read.into_domain().map(Change::Indexes)
        } else if is_of(names::<PluginChange>()) {
            read.into_domain().map(Change::Plugins)
        } else if is_of(names::<FunctionChange>()) {
            read.into_domain().map(Change::Functions)
        } else if is_of(names::<QueryChange>()) {
            read.into_domain().map(Change::Query)
        } else if is_of(names::<RecordChange>()) {
            read.into_domain().map(Change::Records)
        } else {
            // This call also refuses an unknown name; the error contains it.
            read.into_domain().map(Change::Cluster)
        }
    }
}

/// A change whose name has been read, but not its content.
struct Named<'a, V> {
    name: &'a str,
    content: V,
}

impl<'de, V: serde::de::VariantAccess<'de>> Named<'_, V> {
    fn into_domain<T: Deserialize<'de>>(self) -> Result<T, V::Error> {
        T::deserialize(EnumAccessDeserializer::new(self))
    }
}

impl<'de, V: serde::de::VariantAccess<'de>> EnumAccess<'de> for Named<'_, V> {
    type Error = V::Error;
    type Variant = V;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, V), V::Error> {
        let name = serde::de::value::StrDeserializer::<V::Error>::new(self.name);
        Ok((seed.deserialize(name)?, self.content))
    }
}

/// Returns the names of a domain's changes, which its type passes to every deserializer.
fn names<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(NamesOnly) {
        Err(Names(names)) => names,
        Ok(_) => &[],
    }
}

/// A deserializer that reads nothing and returns the names as its error.
struct NamesOnly;

#[derive(Debug)]
struct Names(&'static [&'static str]);

impl<'de> Deserializer<'de> for NamesOnly {
    type Error = Names;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Names> {
        Err(Names(&[]))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Names> {
        Err(Names(names))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl fmt::Display for Names {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.0)
    }
}

impl std::error::Error for Names {}

impl Error for Names {
    fn custom<T: fmt::Display>(_: T) -> Names {
        Names(&[])
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "samples are files")]
mod tests {
    use super::*;
    use crate::{Cluster, ClusterChange, FORM_VERSION};
    use std::path::PathBuf;

    /// When this variable is set, the test rewrites the sample of the agreed state.
    const WRITE: &str = "NACRE_WRITE_DOCS";

    /// Returns the sampled changes in their stored form, one per line. Each can be applied after those before it.
    fn sampled() -> String {
        let name = format!("changes-{FORM_VERSION}.jsonl");
        std::fs::read_to_string(path(&name)).expect("each version has samples")
    }

    fn path(name: &str) -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "samples", name].iter().collect()
    }

    fn read(line: &str) -> Change {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    #[test]
    fn the_form_of_each_change_is_the_sampled_one() {
        let sampled = sampled();
        for line in sampled.lines() {
            assert_eq!(serde_json::to_string(&read(line)).unwrap(), line);
        }
        let sampled: Vec<&str> =
            sampled.lines().filter_map(|line| line.split('"').nth(1)).collect();
        let domains = [
            names::<ClusterChange>(),
            names::<NodeChange>(),
            names::<BucketChange>(),
            names::<IndexChange>(),
            names::<PluginChange>(),
            names::<FunctionChange>(),
            names::<QueryChange>(),
            names::<RecordChange>(),
        ];
        for name in domains.concat() {
            assert!(sampled.contains(&name), "there is no sample of {name}");
            let of_domains = domains.iter().filter(|names| names.contains(&name));
            assert_eq!(of_domains.count(), 1, "{name} says which domain it belongs to");
        }
    }

    #[test]
    fn the_form_of_the_agreed_state_is_the_sampled_one() {
        let mut cluster = Cluster::new("0".repeat(32));
        for line in sampled().lines() {
            cluster.apply(&read(line)).unwrap_or_else(|refusal| panic!("{line}: {refusal}"));
        }
        let path = path(&format!("cluster-{FORM_VERSION}.json"));
        let written = serde_json::to_string_pretty(&cluster).unwrap() + "\n";
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &written).unwrap();
        }
        let sample = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written, sample);
        assert_eq!(serde_json::from_str::<Cluster>(&sample).unwrap(), cluster);
    }

    #[test]
    fn an_unknown_change_is_refused_by_its_name() {
        let refused = serde_json::from_str::<Change>(r#"{"PutOyster":{"name":"o"}}"#).unwrap_err();
        assert!(refused.to_string().contains("PutOyster"), "{refused}");
        for broken in ["", "7", "{}", r#"{"PutNode":{}}"#, r#"{"RenewMap":7}"#, r#""PutNode""#] {
            assert!(serde_json::from_str::<Change>(broken).is_err(), "{broken}");
        }
    }
}
