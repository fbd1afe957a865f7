//! Properties of a run, under the names of the dissertation's workloads.
//!
//! A file has one line `name=value` per property; the command line takes precedence.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

/// Known names. Others are ignored with a warning, because files for YCSB contain properties for other programs.
const KNOWN: [&str; 30] = [
    "clusters",
    "recordcount",
    "operationcount",
    "threadcount",
    "fieldSize",
    "tries",
    "maxBackoff",
    "notRetried",
    "waitingTime",
    "startAt",
    "flushBucket",
    "flushBucketTimeout",
    "durability",
    "scanConsistency",
    "incrementingKey.remoteCounter",
    "secondaryIndex.counterStart",
    "indexTable.counterStart",
    // The spelling of the original workload for Couchbase.
    "indexTable.counterStar",
    "enumerableKeys.postUuid",
    "enumerableKeys.pagination.commentCount",
    "lba.postUuid",
    "lba.pagination.commentCount",
    "for.usersCount",
    "for.friendsPerUser",
    "for.friendsPerPage",
    "for.activitiesPerUser",
    "for.friendActivitiesPerPage",
    "fow.usersCount",
    "fow.friendsPerUser",
    "fow.activitiesPerUser",
];
/// Known prefixes: of names that end with the name of a cluster, and of others.
const KNOWN_STARTS: [&str; 3] = ["nodes.", "keys.", "fow.activitiesPerPage"];

/// Values by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<String, String>);

impl Properties {
    /// Reads files, of which later ones take precedence, and then `given`, each `name=value`.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is not `name=value`.
    pub fn read(files: &[impl AsRef<Path>], given: &[String]) -> Result<Properties, String> {
        let mut properties = Properties::default();
        for file in files {
            let file = file.as_ref();
            let text = std::fs::read_to_string(file)
                .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            for (number, line) in text.lines().enumerate() {
                let at = || format!("{}:{}", file.display(), number + 1);
                properties.add(line).map_err(|reason| format!("{}: {reason}", at()))?;
            }
        }
        for one in given {
            properties.add(one)?;
        }
        Ok(properties)
    }

    /// Adds a line; comments and empty lines are ignored.
    fn add(&mut self, line: &str) -> Result<(), String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '!']) {
            return Ok(());
        }
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| format!("{line:?} is not a property: write name=value"))?;
        self.0.insert(name.trim().to_owned(), value.trim().to_owned());
        Ok(())
    }

    /// Returns the unknown names.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        let is_known = |name: &&String| {
            KNOWN.contains(&name.as_str())
                || KNOWN_STARTS.iter().any(|start| name.starts_with(start))
        };
        self.0.keys().filter(move |name| !is_known(name)).map(String::as_str)
    }

    /// Returns the value of a property.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the value of a property as a number or another type that can be parsed.
    ///
    /// # Errors
    /// The invalid value.
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => {
                text.parse().map_err(|_| format!("invalid value of the property {name}: {text}"))
            }
        }
    }

    /// Returns a count, which is at least 1.
    ///
    /// # Errors
    /// The invalid value.
    pub fn count(&self, name: &str, default: u64) -> Result<u64, String> {
        match self.get(name, default)? {
            0 => Err(format!("{name} begins at 1")),
            count => Ok(count),
        }
    }

    /// Returns the elements of a comma-separated list.
    pub fn list(&self, name: &str) -> Vec<&str> {
        let elements = self.text(name).unwrap_or_default().split(',').map(str::trim);
        elements.filter(|element| !element.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_preferred_to_files_and_later_files_to_earlier_ones() {
        let folder = tempfile::tempdir().unwrap();
        let files = [("a", "# of all\ntries = 3\nfieldSize=25\n\n"), ("b", "!more\ntries=4\n")];
        let files = files.map(|(name, text)| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        });
        let given = ["clusters=a,b ,".to_owned(), "fieldSize=7".to_owned()];
        let properties = Properties::read(&files, &given).unwrap();
        assert_eq!(properties.get("tries", 0), Ok(4));
        assert_eq!(properties.get("fieldSize", 0), Ok(7));
        assert_eq!(properties.get("maxBackoff", 1000), Ok(1000));
        assert_eq!(properties.list("clusters"), ["a", "b"]);
        assert_eq!(properties.list("notRetried"), [""; 0]);
        let broken = Properties::read(&files, &["tries".to_owned()]).unwrap_err();
        assert_eq!(broken, "\"tries\" is not a property: write name=value");
    }

    #[test]
    fn invalid_and_unknown_properties_are_named() {
        let given = ["tries=many", "nodes.a=h:8091", "db=x", "recordcount=0"].map(str::to_owned);
        let properties = Properties::read(&[] as &[&Path], &given).unwrap();
        assert_eq!(
            properties.get("tries", 1).unwrap_err(),
            "invalid value of the property tries: many"
        );
        assert_eq!(properties.count("recordcount", 1).unwrap_err(), "recordcount begins at 1");
        assert_eq!(properties.unknown().collect::<Vec<_>>(), ["db"]);
    }
}
