//! Settings of replications: a table of names, defaults and ranges. Source: Couchbase's settings of replications.
//!
//! A new replication copies the cluster's defaults. Later changes of the defaults apply to later replications only.
//!
//! The table has every setting of Couchbase, so that tools can send them. `docs/reference/replication-settings.md` names those with an
//! effect. Settings that ask for an effect which nacre does not have are refused by name.

use crate::form::Form;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The longest text of a setting, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Values of settings by name.
pub(crate) type Values = BTreeMap<String, Value>;

/// Type of a setting's value.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A number in this range, inclusive.
    Number(u64, u64),
    /// `true` or `false`.
    Flag,
    /// `true`; `false` is refused for this reason.
    Always(&'static str),
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any text.
    Text,
    /// A JSON object.
    Object,
}

/// Where a setting can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In one replication, and as the default of new ones.
    Everywhere,
    /// In one replication only.
    Replication,
    /// As a default only.
    Defaults,
}

/// A setting.
struct Knob {
    name: &'static str,
    kind: Kind,
    /// Default value in JSON.
    default: &'static str,
    place: Place,
}

const fn knob(name: &'static str, kind: Kind, default: &'static str) -> Knob {
    Knob { name, kind, default, place: Place::Everywhere }
}

const fn own(name: &'static str, kind: Kind, default: &'static str) -> Knob {
    Knob { name, kind, default, place: Place::Replication }
}

use Kind::{Always, Flag, Number, Object, Text, Word};

/// The longest time of a setting in milliseconds: a day.
const DAY_MS: u64 = 86_400_000;
/// Why `filterSystemScope` stays true.
const SYSTEM_SCOPE: &str = "it cannot be changed: documents of the scope _system are never sent";

/// All settings.
static KNOBS: &[Knob] = &[
    own("type", Word(&["xmem"]), r#""xmem""#),
    knob("checkpointInterval", Number(60, 14_400), "600"),
    knob("workerBatchSize", Number(10, 10_000), "500"),
    knob("docBatchSizeKb", Number(10, 10_000), "2048"),
    knob("optimisticReplicationThreshold", Number(0, 20 << 20), "256"),
    knob("failureRestartInterval", Number(1, 300), "10"),
    knob("sourceNozzlePerNode", Number(1, 100), "2"),
    knob("targetNozzlePerNode", Number(1, 100), "2"),
    knob("statsInterval", Number(200, 600_000), "1000"),
    knob("networkUsageLimit", Number(0, 1_000_000), "0"),
    knob("compressionType", Word(&["Auto", "None"]), r#""Auto""#),
    knob("priority", Word(&["High", "Medium", "Low"]), r#""High""#),
    knob("desiredLatency", Number(10, 10_000_000), "50"),
    knob("logLevel", Word(&["Fatal", "Error", "Warn", "Info", "Debug", "Trace"]), r#""Info""#),
    own("pauseRequested", Flag, "false"),
    own("filterExpression", Text, r#""""#),
    own("filterSkipRestream", Flag, "false"),
    knob("filterDeletion", Flag, "false"),
    knob("filterExpiration", Flag, "false"),
    knob("filterBypassExpiry", Flag, "false"),
    knob("filterBinary", Flag, "false"),
    knob("filterBypassUncommittedTxn", Flag, "false"),
    own("filterDeletionsWithExpression", Flag, "false"),
    own("filterExpirationsWithExpression", Flag, "false"),
    knob("filterSystemScope", Always(SYSTEM_SCOPE), "true"),
    own("collectionsExplicitMapping", Flag, "false"),
    own("collectionsMigrationMode", Flag, "false"),
    own("collectionsMirroringMode", Flag, "false"),
    own("colMappingRules", Object, "{}"),
    knob("collectionsOSOMode", Flag, "true"),
    knob("dcpEnablePurgeRollback", Flag, "false"),
    knob("dcpFlowControlThrottle", Number(5, 100), "100"),
    knob("casDriftThresholdSecs", Number(0, 31_536_000), "3900"),
    knob("preCheckCasDriftThresholdHours", Number(0, 87_600), "8760"),
    knob("retryOnRemoteAuthErr", Flag, "true"),
    knob("retryOnRemoteAuthErrMaxWaitSec", Number(1, 86_400), "360"),
    knob("retryOnErrExceptAuthErrMaxWaitSec", Number(1, 86_400), "360"),
    knob("preReplicateVBMasterCheck", Flag, "true"),
    knob("replicateCkptIntervalMin", Number(1, 4320), "20"),
    knob("ckptSvcCacheEnabled", Flag, "true"),
    knob("jsFunctionTimeoutMs", Number(1, 3_600_000), "20000"),
    own("mergeFunctionMapping", Object, "{}"),
    own("mobile", Word(&["Off", "Active"]), r#""Off""#),
    knob("minHLVHistoryLenForMobile", Number(0, 10_000), "5"),
    own("forwardLocalOnly", Flag, "false"),
    own("conflictLogging", Object, "{}"),
    knob("cLogSetTimeoutMs", Number(1, DAY_MS), "5000"),
    knob("cLogPoolGetTimeoutMs", Number(1, DAY_MS), "5000"),
    knob("cLogNetworkRetryCount", Number(0, 1000), "5"),
    knob("cLogNetworkRetryIntervalMs", Number(0, DAY_MS), "2000"),
    knob("cLogWorkerCount", Number(1, 1000), "20"),
    knob("cLogQueueCapacity", Number(1, 1_000_000), "6000"),
    knob("cLogMaxErrorCount", Number(1, 1_000_000), "10"),
    knob("cLogErrorTimeWindowMs", Number(1, DAY_MS), "120000"),
    knob("cLogReattemptDurationMs", Number(1, DAY_MS), "600000"),
    own("cLogPauseReplThreshold", Number(0, 1_000_000), "0"),
    own("cLogMonitorDuration", Number(0, DAY_MS), "0"),
    knob("disableHlvBasedShortCircuit", Flag, "false"),
    knob("skipReplSpecAutoGc", Flag, "false"),
    knob("targetTopologyLogFrequency", Number(0, 10_000_000), "1800"),
    knob("excludeUIErrRegex", Text, r#""""#),
    knob("componentEventsChanLength", Number(1, 10_000_000), "10000"),
    Knob { name: "goMaxProcs", kind: Number(1, 10_000), default: "4", place: Place::Defaults },
    Knob { name: "goGC", kind: Number(0, 10_000), default: "100", place: Place::Defaults },
];

/// Fields of requests that are not settings. nacre does not check that the collections of rules exist at the source, so there is nothing
/// for `collectionsSkipSrcValidation` to skip.
const OTHER_FIELDS: [&str; 7] = [
    "just_validate",
    "include_warnings",
    "fromBucket",
    "toCluster",
    "toBucket",
    "replicationType",
    "collectionsSkipSrcValidation",
];

/// Why nacre needs none of the actions on backfills.
const NO_BACKFILLS: &str = "there are no backfills to start or delete: a replication sends the documents of a collection as soon as the target has it";
/// Fields of Couchbase that nacre refuses, with the reason.
const REFUSED: [(&str, &str); 4] = [
    ("manualBackfill", NO_BACKFILLS),
    ("delAllBackfills", NO_BACKFILLS),
    ("delSpecificBackfillForVb", NO_BACKFILLS),
    ("hlvPruningWindowSec", "it is a property of the bucket: versionPruningWindowHrs"),
];

/// The subject of a settings request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The defaults of new replications.
    Defaults,
    /// One replication.
    Replication,
}

fn is_in(knob: &Knob, scope: Scope) -> bool {
    match scope {
        Scope::Defaults => knob.place != Place::Replication,
        Scope::Replication => knob.place != Place::Defaults,
    }
}

/// Returns true if the pipelines must restart when the setting changes, because it decides where documents go.
pub(crate) fn is_structural(name: &str) -> bool {
    matches!(
        name,
        "collectionsExplicitMapping"
            | "collectionsMigrationMode"
            | "collectionsMirroringMode"
            | "colMappingRules"
    )
}

/// Returns every setting of `scope` with its value in `known` or its default.
pub(crate) fn describe(known: &Values, scope: Scope) -> Value {
    let value = |knob: &Knob| known.get(knob.name).cloned().unwrap_or_else(|| default_of(knob));
    let knobs = KNOBS.iter().filter(|knob| is_in(knob, scope));
    let fields: Map<String, Value> =
        knobs.map(|knob| (knob.name.to_owned(), value(knob))).collect();
    Value::Object(fields)
}

fn default_of(knob: &Knob) -> Value {
    serde_json::from_str(knob.default).expect("defaults are JSON")
}

/// Reads the settings in a form.
///
/// # Errors
/// The name and the error of each invalid field.
pub(crate) fn read(form: &Form, scope: Scope) -> Result<Values, Vec<(String, String)>> {
    let (mut values, mut wrong) = (Values::new(), Vec::new());
    for (field, text) in form.iter().filter(|(field, _)| !OTHER_FIELDS.contains(&field.as_str())) {
        let known = KNOBS.iter().find(|knob| knob.name == *field);
        let read = match known {
            None => Err(reason_against(field).to_owned()),
            Some(knob) if !is_in(knob, scope) => Err(match scope {
                Scope::Defaults => "it can be set for one replication only".to_owned(),
                Scope::Replication => "it can be set for all replications only".to_owned(),
            }),
            Some(knob) => read_value(knob, text),
        };
        match read {
            Ok(value) => drop(values.insert(field.clone(), value)),
            Err(reason) => wrong.push((field.clone(), reason)),
        }
    }
    if wrong.is_empty() { Ok(values) } else { Err(wrong) }
}

/// Returns why a field that is not a setting is refused.
fn reason_against(field: &str) -> &'static str {
    let refused = REFUSED.iter().find(|(name, _)| *name == field);
    refused.map_or("it is not a setting of replications", |(_, reason)| *reason)
}

fn read_value(knob: &Knob, text: &str) -> Result<Value, String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("it has more than {TEXT_BYTES_MAX} bytes"));
    }
    match knob.kind {
        Number(least, most) => match text.parse::<u64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(json!(number)),
            _ => Err(format!("it must be a number between {least} and {most}")),
        },
        Flag => match text {
            "true" | "1" => Ok(json!(true)),
            "false" | "0" => Ok(json!(false)),
            _ => Err("it must be true or false".to_owned()),
        },
        Always(reason) => match text {
            "true" | "1" => Ok(json!(true)),
            _ => Err(reason.to_owned()),
        },
        Word(words) => match words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
            Some(word) => Ok(json!(word)),
            None => Err(format!("it must be one of: {}", words.join(", "))),
        },
        Text => Ok(json!(text)),
        Object if text.is_empty() => Ok(json!({})),
        Object => match serde_json::from_str::<Value>(text) {
            Ok(value) if value.is_object() => Ok(value),
            _ => Err("it must be an object in JSON".to_owned()),
        },
    }
}

/// Typed access to the settings of one replication.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chosen(pub Values);

impl Chosen {
    fn value(&self, name: &str) -> Value {
        let known = || KNOBS.iter().find(|knob| knob.name == name).map(default_of);
        self.0.get(name).cloned().or_else(known).unwrap_or_default()
    }

    /// Returns the value of a number.
    pub fn number(&self, name: &str) -> u64 {
        self.value(name).as_u64().unwrap_or(0)
    }

    /// Returns the value of a flag.
    pub fn flag(&self, name: &str) -> bool {
        self.value(name).as_bool().unwrap_or(false)
    }

    /// Returns the value of a text or word setting.
    pub fn text(&self, name: &str) -> String {
        self.value(name).as_str().unwrap_or("").to_owned()
    }

    /// Returns the members of an object.
    pub fn object(&self, name: &str) -> Map<String, Value> {
        self.value(name).as_object().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[(&str, &str)]) -> Form {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_default_is_a_value_that_can_be_set() {
        for knob in KNOBS {
            let text = match default_of(knob) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            assert_eq!(read_value(knob, &text), Ok(default_of(knob)), "{}", knob.name);
        }
    }

    #[test]
    fn the_reference_lists_every_setting_with_its_default() {
        let page = include_str!("../../../docs/reference/replication-settings.md");
        for Knob { name, default, .. } in KNOBS {
            let row = format!("\n| `{name}` | `{default}` |");
            assert!(page.contains(&row), "{row}");
        }
        let refused = REFUSED.iter().map(|(name, _)| name);
        for name in refused {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn a_setting_out_of_range_is_named() {
        let cases = [
            ("checkpointInterval", "59", "it must be a number between 60 and 14400"),
            ("checkpointInterval", "-1", "it must be a number between 60 and 14400"),
            ("priority", "urgent", "it must be one of: High, Medium, Low"),
            ("filterDeletion", "perhaps", "it must be true or false"),
            ("colMappingRules", "[]", "it must be an object in JSON"),
            ("nothing", "1", "it is not a setting of replications"),
            ("goGC", "1", "it can be set for all replications only"),
            ("filterSystemScope", "false", SYSTEM_SCOPE),
            ("manualBackfill", "s.c", NO_BACKFILLS),
            ("hlvPruningWindowSec", "1", REFUSED[3].1),
        ];
        for (name, value, reason) in cases {
            let wrong = read(&form(&[(name, value)]), Scope::Replication).unwrap_err();
            assert_eq!(wrong, [(name.to_owned(), reason.to_owned())]);
        }
        let own = read(&form(&[("pauseRequested", "true")]), Scope::Defaults).unwrap_err();
        assert_eq!(own[0].1, "it can be set for one replication only");
    }

    #[test]
    fn words_are_read_in_any_case() {
        let values = read(&form(&[("priority", "low")]), Scope::Replication).unwrap();
        let chosen = Chosen(values);
        assert_eq!(chosen.text("priority"), "Low");
        assert_eq!(chosen.number("workerBatchSize"), 500);
        assert!(!chosen.flag("pauseRequested"));
    }
}
