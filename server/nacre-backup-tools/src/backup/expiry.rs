//! The expiry of restored documents.

use super::now_ms;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use nacre_backup::Record;
use std::str::FromStr;

/// The value of `--ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ttl {
    /// Documents keep their expiry; those that have expired are left out.
    Keep,
    /// Documents never expire.
    Never,
    /// Documents expire at this second of Unix time.
    At(u32),
    /// Documents expire so many seconds after they are restored.
    After(u32),
}

/// Documents to which `--ttl` applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// All documents
    All,
    /// Documents that have expired
    Expired,
}

/// Options for the expiry of documents.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct ExpiryRule {
    /// Expiry of documents: keep (those that have expired are left out), none, +SECONDS from the restore on, or a time such as
    /// 2027-01-31T12:00:00Z. The limit of the collection applies to all values except none
    #[arg(long, value_name = "EXPIRY", default_value = "keep")]
    ttl: Ttl,
    /// Documents to which --ttl applies; other documents keep their expiry
    #[arg(long, value_enum, value_name = "WHICH", default_value = "all")]
    ttl_for: Which,
}

impl FromStr for Ttl {
    type Err = String;

    fn from_str(text: &str) -> Result<Ttl, String> {
        let wrong = || {
            format!(
                "{text:?} is neither keep nor none, +SECONDS, nor a time such as 2027-01-31T12:00:00Z"
            )
        };
        match text {
            "keep" => return Ok(Ttl::Keep),
            "none" => return Ok(Ttl::Never),
            _ => {}
        }
        if let Some(seconds) = text.strip_prefix('+') {
            let seconds = seconds.parse::<u32>().ok().filter(|seconds| *seconds > 0);
            return seconds.map(Ttl::After).ok_or_else(wrong);
        }
        let time: Timestamp = text.parse().map_err(|_| wrong())?;
        let second =
            u32::try_from(time.as_second()).map_err(|_| format!("{time} is out of range"))?;
        match u64::from(second) > now_ms() / 1000 {
            true => Ok(Ttl::At(second)),
            false => Err(format!("{time} is in the past: documents would expire at once")),
        }
    }
}

impl ExpiryRule {
    /// Returns the second at which a document expires after the restore, 0 for never; `None` if it has expired and is left out.
    /// `max_ttl_s` is the limit of the collection in seconds, 0 for no limit. Tombstones do not expire.
    pub fn expiry(self, record: &Record<'_>, max_ttl_s: u64, now_s: u64) -> Option<u32> {
        if !record.is_document() {
            return Some(record.expiry);
        }
        let has_expired = record.expiry != 0 && u64::from(record.expiry) <= now_s;
        let is_meant = has_expired || self.ttl_for == Which::All;
        let own = match self.ttl {
            Ttl::Keep if has_expired => return None,
            Ttl::Never if is_meant => return Some(0),
            Ttl::At(second) if is_meant => second,
            Ttl::After(seconds) if is_meant => second_of(now_s.saturating_add(seconds.into())),
            _ => record.expiry,
        };
        if max_ttl_s == 0 {
            return Some(own);
        }
        let latest = second_of(now_s.saturating_add(max_ttl_s));
        Some(if own == 0 { latest } else { own.min(latest) })
    }
}

fn second_of(unix_s: u64) -> u32 {
    u32::try_from(unix_s).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_backup::RecordKind;

    fn expiry(ttl: Ttl, ttl_for: Which, own: u32, max_ttl_s: u64) -> Option<u32> {
        let record = Record {
            kind: RecordKind::Set,
            seqno: 1,
            cas: 1,
            rev: 1,
            flags: 0,
            expiry: own,
            datatype: 0,
            collection: 0,
            key: b"k",
            value: b"1",
        };
        ExpiryRule { ttl, ttl_for }.expiry(&record, max_ttl_s, 1000)
    }

    #[test]
    fn an_expiry_is_kept_or_replaced() {
        use Which::{All, Expired};
        for (ttl, which, own, expected) in [
            (Ttl::Keep, All, 0, Some(0)),
            (Ttl::Keep, All, 1001, Some(1001)),
            (Ttl::Keep, All, 1000, None),
            (Ttl::Keep, Expired, 1000, None),
            (Ttl::Never, All, 1001, Some(0)),
            (Ttl::Never, Expired, 1001, Some(1001)),
            (Ttl::Never, Expired, 1000, Some(0)),
            (Ttl::At(5000), All, 0, Some(5000)),
            (Ttl::At(5000), Expired, 0, Some(0)),
            (Ttl::At(5000), Expired, 999, Some(5000)),
            (Ttl::After(60), All, 1001, Some(1060)),
            (Ttl::After(60), Expired, 1001, Some(1001)),
            (Ttl::After(60), Expired, 1, Some(1060)),
        ] {
            assert_eq!(expiry(ttl, which, own, 0), expected, "{ttl:?} for {which:?}: {own}");
        }
    }

    #[test]
    fn no_expiry_is_later_than_the_collection_allows() {
        for (ttl, own, expected) in [
            (Ttl::Keep, 0, Some(1030)),
            (Ttl::Keep, 1010, Some(1010)),
            (Ttl::Keep, 5000, Some(1030)),
            (Ttl::At(5000), 0, Some(1030)),
            (Ttl::After(60), 0, Some(1030)),
            (Ttl::Never, 0, Some(0)),
        ] {
            assert_eq!(expiry(ttl, Which::All, own, 30), expected, "{ttl:?}: {own}");
        }
    }

    #[test]
    fn times_are_read_and_past_times_are_refused() {
        let read = |text: &str| text.parse::<Ttl>();
        assert_eq!(read("keep"), Ok(Ttl::Keep));
        assert_eq!(read("none"), Ok(Ttl::Never));
        assert_eq!(read("+60"), Ok(Ttl::After(60)));
        assert_eq!(read("2100-01-01T00:00:00Z"), Ok(Ttl::At(4_102_444_800)));
        for (words, text) in [
            ("neither", "+0"),
            ("neither", "+x"),
            ("neither", "60"),
            ("in the past", "2001-01-01T00:00:00Z"),
            ("out of range", "2200-01-01T00:00:00Z"),
            ("out of range", "1960-01-01T00:00:00Z"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }
}
