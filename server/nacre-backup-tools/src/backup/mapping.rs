//! Where a restore puts buckets and collections.

use super::split_path;

/// Pairs of `b1=b2` or `b1.s.c=b2.s2.c2`.
#[derive(Clone, Debug, Default)]
pub(super) struct Mapping {
    pairs: Vec<(Vec<String>, Vec<String>)>,
}

impl Mapping {
    /// Reads pairs.
    ///
    /// # Errors
    /// A sentence about one that is malformed.
    pub fn read(pairs: &[String]) -> Result<Mapping, String> {
        let read = |pair: &String| {
            let (from, to) =
                pair.split_once('=').ok_or_else(|| format!("{pair:?} is not from=to"))?;
            let (from, to) = (owned(from)?, owned(to)?);
            match from.len() == to.len() {
                true => Ok((from, to)),
                false => Err(format!("{pair:?}: both sides are buckets, or both are collections")),
            }
        };
        Ok(Mapping { pairs: pairs.iter().map(read).collect::<Result<_, String>>()? })
    }

    /// Returns bucket, scope and collection in which documents of these are put.
    pub fn target(&self, bucket: &str, scope: &str, collection: &str) -> [String; 3] {
        let whole = [bucket, scope, collection];
        let found = self.pairs.iter().find(|(from, _)| *from == whole);
        if let Some((_, to)) = found
            && let [bucket, scope, collection] = &to[..]
        {
            return [bucket.clone(), scope.clone(), collection.clone()];
        }
        let found = self.pairs.iter().find(|(from, _)| from.len() == 1 && from[0] == bucket);
        let bucket = found.map_or(bucket, |(_, to)| &to[0]);
        [bucket, scope, collection].map(str::to_owned)
    }
}

fn owned(path: &str) -> Result<Vec<String>, String> {
    Ok(split_path(path)?.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_of_a_collection_overrides_that_of_its_bucket() {
        let pairs = ["a=b".to_owned(), "a.s.c=d.t.e".to_owned(), "x.y=z.y".to_owned()];
        let mapping = Mapping::read(&pairs[..2]).unwrap();
        assert_eq!(mapping.target("a", "s", "c"), ["d", "t", "e"]);
        assert_eq!(mapping.target("a", "s", "d"), ["b", "s", "d"]);
        assert_eq!(mapping.target("o", "s", "c"), ["o", "s", "c"]);
        assert!(Mapping::read(&pairs).unwrap_err().contains("bucket.scope.collection"));
        assert!(Mapping::read(&["a=b.s.c".to_owned()]).is_err());
        assert!(Mapping::read(&["a".to_owned()]).is_err());
    }
}
