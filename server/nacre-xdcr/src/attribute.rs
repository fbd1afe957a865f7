//! The stored form of histories: the system attributes `_vv` and `_mou`, as in Couchbase.
//!
//! ```text
//! "_vv": {"cvCas": "0x…", "src": "…", "ver": "0x…", "mv": ["…@…", …], "pv": ["…@…", …]}
//! "_mou": {"cas": "0x…", "pRev": "…"}
//! ```
//!
//! Numbers are 64 bits in little-endian order as hexadecimal text. Lists are sorted by version: the first entry is the
//! whole number, each later entry is the difference to its predecessor. List entries have no `0x` prefix and no
//! trailing zeros.
//!
//! Only replication writes `_vv`. Clients that write the document leave the attribute unchanged, so a CAS other than
//! `cvCas` shows a later local write: see [`Known::of`].

use crate::{History, SourceId, history::Versions};
use nacre_types::{Cas, DATATYPE_XATTR, Meta};
use nacre_value::xattr::Xattrs;
use serde::{Deserialize, Serialize};

/// Name of the attribute with the version history.
pub const HISTORY: &str = "_vv";
/// Name of the attribute that marks a metadata-only update, as Sync Gateway writes it.
pub const METADATA_ONLY_UPDATE: &str = "_mou";
/// Maximum number of versions in one list; a longer list from a peer is refused.
const VERSIONS_MAX: usize = 1000;

/// The bytes do not have the expected format: an attribute, a section of attributes, or records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is malformed")]
pub struct Malformed;

/// A bucket that takes part in replication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Name of the bucket in histories.
    pub id: SourceId,
    /// CAS from which the bucket keeps histories (`vbucketsMaxCas` of the vBucket); lower CAS values are older.
    pub since: Cas,
}

/// Knowledge about a version: the values to compare, and its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The CAS to compare: for a metadata-only update, the CAS before it.
    pub cas: Cas,
    /// The revision to compare: for a metadata-only update, the revision before it.
    pub rev: u64,
    /// The history; `None` when the version predates histories.
    pub history: Option<History>,
    /// True if the version has attributes other than those of replication.
    pub has_others: bool,
}

impl Known {
    /// Returns the knowledge about an arriving version with these attributes. Without a history, the origin of the
    /// version is unknown to this bucket.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn arriving(meta: &Meta, xattrs: &[u8]) -> Result<Known, Malformed> {
        let nowhere = Site { id: SourceId::nobody(), since: Cas(u64::MAX) };
        let known = Known::of(meta, xattrs, &nowhere)?;
        let history = known.history.filter(|history| *history.source() != nowhere.id);
        Ok(Known { history, ..known })
    }

    /// Returns the knowledge about a version with these attributes that is stored at `site`.
    ///
    /// | CAS of the version | history |
    /// | --- | --- |
    /// | `cvCas` | as written |
    /// | greater | as written, followed by a write of `site` (no further write after a metadata-only update) |
    /// | less, or no history is written | a write of `site` without predecessors; none if the CAS is below `site.since` |
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn of(meta: &Meta, xattrs: &[u8], site: &Site) -> Result<Known, Malformed> {
        let attributes = Xattrs::parse(xattrs).map_err(|_| Malformed)?;
        let update = attributes.get(METADATA_ONLY_UPDATE).map(Update::parse).transpose()?;
        let written = attributes.get(HISTORY).map(parse).transpose()?;
        let plain = |cas| (cas >= site.since).then(|| History::of_write(site.id.clone(), cas));
        let updated = update.filter(|update| update.cas == meta.cas);
        let has_others =
            attributes.iter().any(|(key, _)| key != HISTORY && key != METADATA_ONLY_UPDATE);
        let known = |cas, rev, history| Known { cas, rev, history, has_others };
        Ok(match (written, updated) {
            (Some((history, of)), Some(update)) if of < meta.cas => {
                known(of, update.previous_rev, Some(history))
            }
            (Some((history, of)), _) if of == meta.cas => known(meta.cas, meta.rev, Some(history)),
            (Some((history, of)), _) if of < meta.cas => {
                let history = history.written_over(site.id.clone(), meta.cas);
                known(meta.cas, meta.rev, Some(history))
            }
            _ => known(meta.cas, meta.rev, plain(meta.cas)),
        })
    }

    /// Returns the metadata to compare. The history attribute itself does not count as a difference.
    pub fn compared(&self, meta: &Meta) -> Meta {
        let without_history = self.history.is_some() && !self.has_others;
        let kept = if without_history { !DATATYPE_XATTR } else { u8::MAX };
        Meta { cas: self.cas, rev: self.rev, datatype: meta.datatype & kept, ..*meta }
    }
}

/// Returns the section of attributes with `history` added, for the version with this CAS.
///
/// # Errors
/// [`Malformed`] when `xattrs` is not a section of attributes.
pub fn stamp(xattrs: &[u8], history: &History, cas: Cas) -> Result<Vec<u8>, Malformed> {
    let mut attributes = Xattrs::parse(xattrs).map_err(|_| Malformed)?;
    attributes.set(HISTORY, &encode(history, cas)).map_err(|_| Malformed)?;
    Ok(attributes.encode())
}

#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(rename = "cvCas")]
    cv_cas: String,
    src: String,
    ver: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mv: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pv: Vec<String>,
}

/// Encodes `history` as the attribute of the version with this CAS.
pub fn encode(history: &History, cas: Cas) -> Vec<u8> {
    let written = Written {
        cv_cas: hex(cas),
        src: history.source.to_string(),
        ver: hex(history.version),
        mv: differences(&history.merged),
        pv: differences(&history.previous),
    };
    serde_json::to_vec(&written).expect("texts can be written")
}

/// Parses the attribute: returns the history and the CAS of the version that it describes.
///
/// # Errors
/// [`Malformed`].
pub fn parse(text: &[u8]) -> Result<(History, Cas), Malformed> {
    let written: Written = serde_json::from_slice(text).map_err(|_| Malformed)?;
    let history = History {
        source: SourceId::parse(&written.src).ok_or(Malformed)?,
        version: number(&written.ver)?,
        merged: versions(&written.mv)?,
        previous: versions(&written.pv)?,
    };
    Ok((history, number(&written.cv_cas)?))
}

/// Sync Gateway's record of a metadata-only update.
struct Update {
    cas: Cas,
    previous_rev: u64,
}

impl Update {
    fn parse(text: &[u8]) -> Result<Update, Malformed> {
        #[derive(Deserialize)]
        struct Written {
            cas: String,
            #[serde(rename = "pRev")]
            previous_rev: Number,
        }
        // Releases differ in how they write the revision.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Number {
            Number(u64),
            Text(String),
        }
        let written: Written = serde_json::from_slice(text).map_err(|_| Malformed)?;
        let previous_rev = match written.previous_rev {
            Number::Number(rev) => rev,
            Number::Text(text) => text.parse().map_err(|_| Malformed)?,
        };
        Ok(Update { cas: number(&written.cas)?, previous_rev })
    }
}

fn hex(cas: Cas) -> String {
    format!("0x{:016x}", cas.0.swap_bytes())
}

/// Parses a number with or without a prefix and without its trailing zeros.
fn number(text: &str) -> Result<Cas, Malformed> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if digits.is_empty() || digits.len() > 16 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Malformed);
    }
    let whole = format!("{digits:0<16}");
    u64::from_str_radix(&whole, 16).map(|number| Cas(number.swap_bytes())).map_err(|_| Malformed)
}

fn differences(versions: &Versions) -> Vec<String> {
    let mut sorted: Vec<_> = versions.iter().map(|(source, version)| (version.0, source)).collect();
    sorted.sort_unstable();
    // Readers refuse more than `VERSIONS_MAX` entries, so drop the oldest ones. A dropped entry can look like a conflict
    // later.
    let sorted = sorted.split_off(sorted.len().saturating_sub(VERSIONS_MAX));
    let mut before = 0;
    let mut entry = |(version, source): (u64, &SourceId)| {
        let bytes = (version - before).to_le_bytes();
        before = version;
        let length = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        let digits: String = bytes[..length].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{digits}@{source}")
    };
    sorted.into_iter().map(&mut entry).collect()
}

fn versions(entries: &[String]) -> Result<Versions, Malformed> {
    if entries.len() > VERSIONS_MAX {
        return Err(Malformed);
    }
    let (mut versions, mut before) = (Versions::new(), 0u64);
    for entry in entries {
        let (digits, source) = entry.split_once('@').ok_or(Malformed)?;
        before = before.checked_add(number(digits)?.0).ok_or(Malformed)?;
        let known = versions.entry(SourceId::parse(source).ok_or(Malformed)?).or_default();
        *known = Cas(before).max(*known);
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> SourceId {
        SourceId::parse(name).unwrap()
    }

    fn site() -> Site {
        Site { id: id("here"), since: Cas(100) }
    }

    fn section(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut attributes = Xattrs::default();
        pairs.iter().for_each(|(key, value)| attributes.set(key, value.as_bytes()).unwrap());
        attributes.encode()
    }

    /// The text and the numbers of Sync Gateway's own test.
    const EXAMPLE: &str = r#"{"cvCas":"0x40e2010000000000","src":"cb06dc003846116d9b66d2ab23887a96","ver":"0x40e2010000000000","mv":["c0ff05d7ac059a16@s_LhRPsa7CpjEvP5zeXTXEBA","1c008cd6@s_NqiIe0LekFPLeX4JvTO6Iw"],"pv":["f0ff44d6ac059a16@s_YZvBpEaztom9z5V/hDoeIw"]}"#;

    #[test]
    fn a_history_is_written_as_others_write_it() {
        let (history, cas) = parse(EXAMPLE.as_bytes()).unwrap();
        assert_eq!((cas, history.version()), (Cas(123_456), Cas(123_456)));
        let merged = [
            (id("s_LhRPsa7CpjEvP5zeXTXEBA"), Cas(1_628_620_455_147_864_000)),
            (id("s_NqiIe0LekFPLeX4JvTO6Iw"), Cas(1_628_620_458_747_363_292)),
        ];
        assert_eq!(history.merged(), &Versions::from(merged));
        let previous = (id("s_YZvBpEaztom9z5V/hDoeIw"), Cas(1_628_620_455_135_215_600));
        assert_eq!(history.previous(), &Versions::from([previous]));
        assert_eq!(String::from_utf8(encode(&history, cas)).unwrap(), EXAMPLE);
    }

    #[test]
    fn equal_versions_of_two_sources_keep_their_entries() {
        let both = Versions::from([(id("a"), Cas(0x100)), (id("b"), Cas(0x100))]);
        assert_eq!(differences(&both), ["0001@a", "00@b"]);
        assert_eq!(versions(&differences(&both)), Ok(both));
    }

    /// Without the limit, a long history from a peer would produce an attribute that no reader accepts, not even this
    /// one.
    #[test]
    fn a_history_that_is_written_can_be_read() {
        let many = |name: &str| {
            let versions = (1..=VERSIONS_MAX as u64)
                .map(|number| (id(&format!("{name}{number}")), Cas(number)));
            History { previous: versions.collect(), ..History::of_write(id(name), Cas(5000)) }
        };
        let merge = many("a").merge(&many("b"), id("here"), Cas(6000));
        assert_eq!(merge.previous().len(), 2 * VERSIONS_MAX);
        let (read, _) = parse(&encode(&merge, Cas(6000))).unwrap();
        assert_eq!(read.merged(), merge.merged());
        assert_eq!(read.previous().len(), VERSIONS_MAX);
        assert_eq!(read.newest_of(&id("a1000")), Cas(1000), "the newest are kept");
        assert_eq!(read.newest_of(&id("a1")), Cas::ANY);
    }

    #[test]
    fn texts_of_another_format_are_refused() {
        let entry = r#"["1c008cd61c008cd61c008cd6@x"]"#;
        let long = format!("[{}]", vec![r#""01@a""#; VERSIONS_MAX + 1].join(","));
        let over = r#"["ffffffffffffffff@a","01@b"]"#;
        for list in [entry, &long, over, r#"["01"]"#, r#"["@a"]"#, r#"["01@"]"#, r#"["zz@a"]"#] {
            let text = format!(r#"{{"cvCas":"0x01","src":"s","ver":"0x01","pv":{list}}}"#);
            assert_eq!(parse(text.as_bytes()), Err(Malformed), "{text}");
        }
        for text in ["", "[]", r#"{"cvCas":"0x01","src":"","ver":"0x01"}"#, r#"{"src":"s"}"#] {
            assert_eq!(parse(text.as_bytes()), Err(Malformed), "{text}");
        }
    }

    #[test]
    fn the_cas_shows_if_a_history_belongs_to_the_version() {
        let history = History::of_write(id("there"), Cas(90)).written_over(id("far"), Cas(150));
        let text = String::from_utf8(encode(&history, Cas(150))).unwrap();
        let attributes = section(&[(HISTORY, &text)]);
        let known = |cas| {
            Known::of(&Meta { cas: Cas(cas), ..Meta::default() }, &attributes, &site()).unwrap()
        };
        assert_eq!(known(150).history, Some(history.clone()));
        assert_eq!(known(200).history, Some(history.written_over(id("here"), Cas(200))));
        assert_eq!(known(120).history, Some(History::of_write(id("here"), Cas(120))), "invalid");
        assert_eq!(known(99).history, None, "from before there were histories");
        let bare = Known::of(&Meta { cas: Cas(100), ..Meta::default() }, &[], &site()).unwrap();
        assert_eq!(bare.history, Some(History::of_write(id("here"), Cas(100))));
    }

    #[test]
    fn the_source_of_an_arriving_version_is_known_from_its_history_only() {
        let history = History::of_write(id("there"), Cas(150));
        let text = String::from_utf8(encode(&history, Cas(150))).unwrap();
        let attributes = section(&[(HISTORY, &text)]);
        let known = |cas, attributes: &[u8]| {
            Known::arriving(&Meta { cas: Cas(cas), ..Meta::default() }, attributes).unwrap().history
        };
        assert_eq!(known(150, &attributes), Some(history));
        assert_eq!(known(200, &attributes), None, "it was changed, by whomever");
        assert_eq!(known(150, &[]), None);
        assert_eq!(Known::arriving(&Meta::default(), b"\0"), Err(Malformed));
    }

    #[test]
    fn a_change_of_metadata_only_is_compared_by_its_metadata() {
        let history = History::of_write(id("there"), Cas(150));
        let text = String::from_utf8(encode(&history, Cas(150))).unwrap();
        for rev in ["\"7\"", "7"] {
            let update = format!(r#"{{"cas":"{}","pCas":"0x00","pRev":{rev}}}"#, hex(Cas(200)));
            let attributes = section(&[(HISTORY, &text), (METADATA_ONLY_UPDATE, &update)]);
            let meta = Meta { cas: Cas(200), rev: 8, ..Meta::default() };
            let known = Known::of(&meta, &attributes, &site()).unwrap();
            assert_eq!((known.cas, known.rev), (Cas(150), 7));
            assert_eq!(known.history, Some(history.clone()));
            let later = Meta { cas: Cas(201), rev: 9, ..meta };
            let known = Known::of(&later, &attributes, &site()).unwrap();
            assert_eq!((known.cas, known.rev), (Cas(201), 9), "a later write counts");
        }
    }
}
