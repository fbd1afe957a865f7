//! When stores reclaim space: `/settings/autoCompaction`, `/controller/setAutoCompaction`, and the same fields of a bucket. Paths,
//! fields and texts are Couchbase's.

use super::Call;
use super::body::{Invalid, Reply, invalid, ok};
use super::routes::{ADMINISTER, READ, Route, get, post, ready};
use nacre_bucket::compactor::FRAGMENTATION_PERCENT;
use nacre_cluster::{Change, ClusterChange, Compaction, SettingsChange};
use serde_json::{Value, json};

const PATH: &str = "/settings/autoCompaction";
const DAY_S: f64 = 86_400.0;
/// Default age at which tombstones are purged, in days.
const PURGE_DAYS: f64 = 3.0;
/// Fields with fixed values: stores may be compacted at any time and at any size, and indexes together with them.
const FIXED: [(&str, &[&str]); 5] = [
    ("databaseFragmentationThreshold[size]", &["", "undefined"]),
    ("viewFragmentationThreshold[size]", &["", "undefined"]),
    ("viewFragmentationThreshold[percentage]", &["", "undefined"]),
    ("indexCompactionMode", &["full"]),
    ("indexFragmentationThreshold[percentage]", &["", "undefined"]),
];

/// Reads a field of a form into `compaction`. Returns false if the field does not concern compaction.
///
/// # Errors
/// An invalid value, or a value without effect.
pub(super) fn read(compaction: &mut Compaction, field: &str, value: &str) -> Result<bool, Invalid> {
    let percent = |least: u8| match value {
        "" | "undefined" => Ok(None),
        text => {
            let percent = text.parse().ok().filter(|percent| (least..=100).contains(percent));
            let reason = format!("The value must be an integer in range from {least} to 100");
            percent.map(Some).ok_or_else(|| Invalid::new(field, reason))
        }
    };
    match field {
        "databaseFragmentationThreshold[percentage]" => {
            compaction.fragmentation_percent = percent(2)?;
        }
        "magmaFragmentationPercentage" => compaction.magma_fragmentation_percent = percent(10)?,
        "parallelDBAndViewCompaction" => {
            compaction.parallel = match value {
                "true" => true,
                "false" => false,
                _ => return Err(Invalid::new(field, "parallelDBAndViewCompaction is invalid")),
            };
        }
        "purgeInterval" => compaction.purge_age_s = purge_age_s(field, value)?,
        _ => {
            if let Some((_, allowed)) = FIXED.iter().find(|(name, _)| *name == field) {
                let is_usual =
                    field.ends_with("[percentage]") && value.parse() == Ok(FRAGMENTATION_PERCENT);
                if !is_usual && !allowed.contains(&value) {
                    let reason = "It cannot be changed: stores and views are compacted by the share of dead bytes, \
                                  at any time.";
                    return Err(Invalid::new(field, reason));
                }
            } else if field.starts_with("allowedTimePeriod[")
                || field.starts_with("indexCircularCompaction[")
            {
                return Err(Invalid::new(
                    field,
                    "Compaction cannot be bound to a time of the day.",
                ));
            } else {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn purge_age_s(field: &str, value: &str) -> Result<Option<u32>, Invalid> {
    if value == "undefined" {
        return Ok(None);
    }
    let days: Option<f64> = value.parse().ok().filter(|days| (0.0..=60.0).contains(days));
    let days = days.ok_or_else(|| {
        Invalid::new(field, "metadata purge interval must be a number in range from 0.01 to 60")
    })?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 60 days")]
    Ok(Some((days * DAY_S).round() as u32))
}

/// Describes the settings as `autoCompactionSettings` of a bucket or of the cluster.
pub(super) fn describe(compaction: &Compaction) -> Value {
    let percent = |known: Option<u8>| known.unwrap_or(FRAGMENTATION_PERCENT);
    let own = percent(compaction.fragmentation_percent);
    json!({
        "parallelDBAndViewCompaction": compaction.parallel,
        "databaseFragmentationThreshold": {"percentage": own, "size": "undefined"},
        "viewFragmentationThreshold": {"percentage": FRAGMENTATION_PERCENT, "size": "undefined"},
        "magmaFragmentationPercentage": percent(compaction.magma_fragmentation_percent),
        "indexCompactionMode": "full",
        "indexFragmentationThreshold": {"percentage": FRAGMENTATION_PERCENT},
    })
}

/// Returns the age at which tombstones are purged, in days.
pub(super) fn purge_days(compaction: &Compaction) -> f64 {
    compaction.purge_age_s.map_or(PURGE_DAYS, |age| f64::from(age) / DAY_S)
}

/// `GET` and `POST` of `/settings/autoCompaction`, and `POST /controller/setAutoCompaction`.
pub(super) const ROUTES: &[Route] = &[
    get(PATH, READ, |call| ready(Ok(ok(&settings(&call.node.cluster().settings.compaction))))),
    post(PATH, ADMINISTER, |call| Box::pin(set(call))),
    post("/controller/setAutoCompaction", ADMINISTER, |call| Box::pin(set(call))),
];

fn settings(compaction: &Compaction) -> Value {
    json!({
        "autoCompactionSettings": describe(compaction),
        "purgeInterval": purge_days(compaction),
    })
}

async fn set(call: Call) -> Result<Reply, Reply> {
    let mut compaction = call.node.cluster().settings.compaction.clone();
    let form = call.form();
    if !form.iter().any(|(field, _)| field == "parallelDBAndViewCompaction") {
        let field = "parallelDBAndViewCompaction";
        return Err(invalid(field, "parallelDBAndViewCompaction is missing"));
    }
    for (field, value) in &form {
        if !read(&mut compaction, field, value)? {
            return Err(invalid(field, "Unsupported key"));
        }
    }
    if call.parameter("just_validate").as_deref() != Some("1") {
        let change = Box::new(SettingsChange::Compaction(compaction));
        call.change(Change::Cluster(ClusterChange::ChangeSettings { change })).await?;
    }
    Ok(ok(&json!([])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_or_refused() {
        let mut compaction = Compaction::default();
        let mut set = |field: &str, value: &str| read(&mut compaction, field, value);
        for (field, value) in [
            ("databaseFragmentationThreshold[percentage]", "25"),
            ("magmaFragmentationPercentage", "60"),
            ("parallelDBAndViewCompaction", "true"),
            ("purgeInterval", "0.5"),
            ("databaseFragmentationThreshold[size]", "undefined"),
        ] {
            assert!(set(field, value).unwrap(), "{field}");
        }
        for (field, value) in [
            ("databaseFragmentationThreshold[percentage]", "1"),
            ("databaseFragmentationThreshold[percentage]", "101"),
            ("databaseFragmentationThreshold[size]", "1048576"),
            ("viewFragmentationThreshold[percentage]", "25"),
            ("magmaFragmentationPercentage", "9"),
            ("parallelDBAndViewCompaction", "yes"),
            ("purgeInterval", "61"),
            ("purgeInterval", "NaN"),
            ("allowedTimePeriod[fromHour]", "1"),
            ("indexCircularCompaction[daysOfWeek]", "Monday"),
        ] {
            assert!(set(field, value).is_err(), "{field} {value}");
        }
        assert!(!set("name", "b").unwrap());
        let expected = Compaction {
            fragmentation_percent: Some(25),
            magma_fragmentation_percent: Some(60),
            purge_age_s: Some(43_200),
            parallel: true,
        };
        assert_eq!(compaction, expected);
    }
}
