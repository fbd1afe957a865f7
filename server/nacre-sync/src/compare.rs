//! Compares the device's version of a document with the hub's version.
//!
//! | Device's version | State | Result |
//! | --- | --- | --- |
//! | missing | | the device takes the hub's |
//! | is the hub's, or has the same content | | the device takes the hub's, so that both have the same CAS |
//! | is contained in the hub's | | the device takes the hub's |
//! | contains the hub's | is unsent, or the hub has lost it | the device's is sent over the hub's |
//! | neither contains the other | is in step, or both are tombstones | the device takes the hub's |
//! | | is unsent, or the hub has lost it | a conflict |
//!
//! The hub uses one name in histories even after it has lost the end of a history. After such a loss, a later version of the hub
//! by number need not contain an earlier one: see [`HubLoss`].

use crate::Local;
use crate::replica::{Branch, cas_above};
use nacre_types::{Cas, DATATYPE_XATTR, Document, Kind, Meta};
use nacre_value::xattr::Xattrs;
use nacre_xdcr::attribute::{self, HISTORY, METADATA_ONLY_UPDATE};
use nacre_xdcr::{Arriving, History, Known, Malformed, Site, SourceId, known_here};

/// The maximum lead of an unsent version over the hub's clock, in nanoseconds. A version further ahead would win every conflict
/// until the clock catches up.
const AHEAD_NS_MAX: u64 = 10_000_000_000;

/// The step that makes both sides equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Both sides are equal.
    Nothing,
    /// The device takes the hub's version.
    Take,
    /// The hub gets the device's version.
    Send,
    /// There is a conflict to resolve.
    Decide,
}

/// The uncertainty about the hub's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HubLoss {
    /// None: the hub has kept its history since the device last connected.
    None,
    /// The hub has lost versions, and this version may be from before or after the loss.
    Lost {
        /// True if it was written after the loss.
        is_since: bool,
    },
}

/// Returns the CAS of the version that the history of a document describes, if it has a history.
pub(crate) fn base_of(document: &Document) -> Option<Cas> {
    let attributes = Xattrs::parse(document.xattrs()).ok()?;
    attribute::parse(attributes.get(HISTORY)?).ok().map(|(_, cas)| cas)
}

/// Returns a version that the hub has lost as an unsent one: with its history, which is marked with CAS 0 instead of the
/// version's CAS.
pub(crate) fn unsent(document: &Document, own: &SourceId) -> Result<Arriving, Malformed> {
    let site = Site { id: own.clone(), since: Cas::ANY };
    let history = known_here(document, &site).history.ok_or(Malformed)?;
    let section = attribute::stamp(document.xattrs(), &history, Cas::ANY)?;
    let meta = Meta { datatype: document.meta.datatype | DATATYPE_XATTR, ..document.meta };
    Ok(Arriving { meta, value: [&section[..], document.body()].concat() })
}

/// Returns true if the document is in step: unchanged since it was received, or since the hub accepted it.
pub(crate) fn is_in_step(document: &Document) -> bool {
    base_of(document) == Some(document.meta.cas)
}

/// Returns the hub's version in the form that the device stores: with its complete history under its own CAS.
pub(crate) fn received(version: &Arriving, hub: &SourceId) -> Result<Arriving, Malformed> {
    let (section, body) = version.split()?;
    let site = Site { id: hub.clone(), since: Cas::ANY };
    let known = Known::of(&version.meta, section, &site).or_else(|Malformed| {
        // A client has written the attribute: it counts as empty.
        Known::of(&version.meta, &[], &site)
    })?;
    let history = known.history.unwrap_or_else(|| History::of_write(hub.clone(), version.meta.cas));
    stamped(version.meta, section, body, &history)
}

/// Returns the version with its history.
fn stamped(
    meta: Meta,
    section: &[u8],
    body: &[u8],
    history: &History,
) -> Result<Arriving, Malformed> {
    let section = attribute::stamp(section, history, meta.cas)?;
    let datatype = meta.datatype | DATATYPE_XATTR;
    Ok(Arriving { meta: Meta { datatype, ..meta }, value: [&section[..], body].concat() })
}

/// Returns the document. If it is unsent and too far ahead of the hub's clock, lowers its CAS to the maximum lead.
///
/// The versions of a document that a device sends must ascend: a version that does not would seem contained in any version that
/// contains the previous one, and be lost. Its history need not name the previous one, because a document may be deleted and
/// created again. `last` is the greatest CAS sent so far. The new CAS is above it, except where the version's own CAS is lower:
/// the own CAS is above all others of the same vBucket, and versions are never raised, so it is also above the CAS with which
/// they were sent. The hub's clock alone is not enough: two nodes have two clocks, and a later reading can be an earlier time.
pub(crate) fn limited_to_hub_clock(
    document: Document,
    own: &[Branch],
    last: Cas,
    hub_unix_ns: u64,
) -> Document {
    if document.meta.cas.unix_ns() <= hub_unix_ns.saturating_add(AHEAD_NS_MAX) {
        return document;
    }
    let attributes = Xattrs::parse(document.xattrs()).ok();
    let written = attributes.as_ref().and_then(|attributes| attributes.get(HISTORY));
    let written = written.and_then(|text| attribute::parse(text).ok());
    if written.as_ref().is_some_and(|(_, base)| *base == document.meta.cas) {
        return document;
    }
    // Above every version that it was made from: a device's versions of a document ascend.
    let known = written.into_iter().flat_map(|(history, base)| {
        let of_own: Vec<Cas> = own.iter().map(|branch| history.newest_of(&branch.name)).collect();
        of_own.into_iter().chain([base, history.version()])
    });
    let Some(device) = own.first() else { return document };
    let cas =
        cas_above(known.chain([last]), hub_unix_ns.saturating_add(AHEAD_NS_MAX), &device.name);
    document.with_meta(|meta| meta.cas = meta.cas.min(cas))
}

/// Returns an unsent version in the form to send: with its history.
pub(crate) fn outgoing(document: &Document, own: &SourceId) -> Result<Arriving, Malformed> {
    let site = Site { id: own.clone(), since: Cas::ANY };
    let known = known_here(document, &site);
    let history =
        known.history.unwrap_or_else(|| History::of_write(own.clone(), document.meta.cas));
    stamped(document.meta, document.xattrs(), document.body(), &history)
}

/// Returns the step that makes both sides equal. `hubs` is the hub's version as [`received`]; the device's version is
/// [`limited_to_hub_clock`].
pub(crate) fn compare(
    local: &Local,
    hubs: &Arriving,
    hub: &SourceId,
    hub_loss: HubLoss,
) -> Result<Step, Malformed> {
    let Some(here) = &local.document else { return Ok(Step::Take) };
    let is_unsent = !is_in_step(here);
    let (section, body) = hubs.split()?;
    let is_alive = |meta: &Meta| meta.kind == Kind::Alive;
    let same_kind = is_alive(&here.meta) == is_alive(&hubs.meta);
    let both_are_deleted = same_kind && !is_alive(&here.meta);
    let same_content = same_kind
        && (both_are_deleted
            || (here.meta.flags, here.meta.expiry) == (hubs.meta.flags, hubs.meta.expiry))
        && here.body() == body
        && others(here.xattrs()) == others(section);
    if same_content {
        let is_same = !is_unsent && here.meta.cas == hubs.meta.cas;
        return Ok(if is_same { Step::Nothing } else { Step::Take });
    }
    let theirs = Known::arriving(&hubs.meta, section)?.history.ok_or(Malformed)?;
    let own = local.own_name().ok_or(Malformed)?;
    let site = Site { id: own.clone(), since: Cas::ANY };
    let ours = known_here(here, &site).history.ok_or(Malformed)?;
    if let HubLoss::Lost { is_since } = hub_loss
        && [ours.source(), theirs.source()] == [hub, hub]
    {
        // CAS values of one branch of history do not order those of another one.
        return Ok(match is_since {
            true => Step::Decide,
            false if ours.version() > theirs.version() => Step::Send,
            false => Step::Take,
        });
    }
    let is_contained = is_unsent && is_contained(here, &local.own, &theirs);
    Ok(match (theirs.contains(&ours) || is_contained, ours.contains(&theirs)) {
        (true, _) => Step::Take,
        // Written since the loss: the CAS values of the hub's versions do not order it. It need not be the version that was
        // edited, even with the same CAS, because the hub's clock may be behind that of the previous node.
        (false, true)
            if hub_loss == (HubLoss::Lost { is_since: true }) && theirs.source() == hub =>
        {
            Step::Decide
        }
        // The hub does not send an older version that the device's history contains, except the edited one. If it does, it has
        // lost versions, and had not even a tombstone of the document when the loss was found.
        (false, true)
            if hub_loss == HubLoss::None
                && is_unsent
                && theirs.source() == hub
                && base_of(here) != Some(hubs.meta.cas) =>
        {
            Step::Decide
        }
        (false, true) if is_unsent || hub_loss != HubLoss::None => Step::Send,
        (false, true) => Step::Nothing,
        (false, false) if both_are_deleted => Step::Take,
        // The hub had this version and has a later one now.
        (false, false) if !is_unsent && hub_loss == HubLoss::None => Step::Take,
        (false, false) => Step::Decide,
    })
}

/// Returns true if an unsent version is contained in `theirs` under the name of an earlier branch of the device.
///
/// A branch names the versions written before the next branch began. Later versions under that name belong to the folder of which
/// this one is a copy, or were lost; they may have the same CAS.
fn is_contained(here: &Document, own: &[Branch], theirs: &History) -> bool {
    let attributes = Xattrs::parse(here.xattrs()).ok();
    let written = attributes.as_ref().and_then(|attributes| attributes.get(HISTORY));
    let written = written.and_then(|text| attribute::parse(text).ok());
    // The hub had it under its first name and has lost it.
    let first =
        written.filter(|(history, base)| *base == Cas::ANY && history.version() == here.meta.cas);
    let is_first = |branch: &Branch| {
        first.as_ref().is_some_and(|(history, _)| *history.source() == branch.name)
    };
    let later = own.iter().take_while(|branch| here.meta.seqno <= branch.began).count();
    own.iter().enumerate().any(|(index, branch)| {
        (index <= later || is_first(branch)) && theirs.newest_of(&branch.name) == here.meta.cas
    })
}

/// Returns the attributes other than those of replication.
fn others(section: &[u8]) -> Vec<(String, Vec<u8>)> {
    let Ok(attributes) = Xattrs::parse(section) else { return Vec::new() };
    let kept = attributes.iter().filter(|(key, _)| ![HISTORY, METADATA_ONLY_UPDATE].contains(key));
    let mut kept: Vec<_> = kept.map(|(key, value)| (key.to_owned(), value.to_vec())).collect();
    kept.sort_unstable();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Seqno;

    fn id(name: &str) -> SourceId {
        SourceId::parse(name).unwrap()
    }

    fn plain(cas: u64, body: &str) -> Arriving {
        let meta = Meta { cas: Cas(cas), rev: 1, ..Meta::default() };
        Arriving { meta, value: body.as_bytes().to_vec() }
    }

    fn deleted(cas: u64) -> Arriving {
        let meta = Meta { cas: Cas(cas), rev: 2, kind: Kind::Deleted, ..Meta::default() };
        Arriving { meta, value: Vec::new() }
    }

    fn at_device(version: &Arriving) -> Local {
        let meta = Meta { seqno: Seqno(1), ..version.meta };
        let document = Some(Document::new(meta, b"\0k", &version.value));
        Local { document, own: branches() }
    }

    /// Returns branches: the device, or the one it was copied from, began another branch after version 5.
    fn branches() -> Vec<Branch> {
        let branch = |name, began| Branch { name: id(name), began: Seqno(began) };
        vec![branch("device", 5), branch("before", 0)]
    }

    /// Returns the version after the application has written over it and left the attributes.
    fn edited(version: &Arriving, cas: u64, body: &str) -> Arriving {
        let (section, _) = version.split().unwrap();
        let meta = Meta { cas: Cas(cas), rev: version.meta.rev + 1, ..version.meta };
        Arriving { meta, value: [section, body.as_bytes()].concat() }
    }

    fn step(local: &Arriving, hubs: &Arriving) -> Step {
        let hubs = received(hubs, &id("hub")).unwrap();
        compare(&at_device(local), &hubs, &id("hub"), HubLoss::None).unwrap()
    }

    #[test]
    fn a_version_that_was_received_is_in_step_until_it_is_edited() {
        let first = received(&plain(10, "1"), &id("hub")).unwrap();
        assert!(is_in_step(&at_device(&first).document.unwrap()));
        assert_eq!(step(&first, &plain(10, "1")), Step::Nothing);
        let second = edited(&first, 20, "2");
        assert!(!is_in_step(&at_device(&second).document.unwrap()));
        assert_eq!(step(&second, &plain(10, "1")), Step::Send);
        assert_eq!(step(&second, &plain(15, "3")), Step::Decide);
        assert_eq!(step(&second, &plain(15, "2")), Step::Take, "the same content");
        assert_eq!(step(&second, &deleted(15)), Step::Decide);
        let stranger =
            outgoing(&at_device(&plain(30, "4")).document.unwrap(), &id("other")).unwrap();
        assert_eq!(step(&first, &stranger), Step::Take, "the hub has moved on");
        assert_eq!(step(&second, &stranger), Step::Decide);
    }

    #[test]
    fn a_merge_of_the_hub_for_a_sent_version_is_taken() {
        let first = plain(10, "1");
        let sent = outgoing(&at_device(&first).document.unwrap(), &id("device")).unwrap();
        assert_eq!(step(&first, &sent), Step::Take, "its answer was lost");
        let later = edited(&sent, 30, "2");
        assert_eq!(step(&first, &later), Step::Take);
        assert_eq!(step(&edited(&first, 20, "x"), &later), Step::Decide);
        let before = outgoing(&at_device(&first).document.unwrap(), &id("before")).unwrap();
        assert_eq!(step(&first, &edited(&before, 30, "2")), Step::Take, "of the branch before");
    }

    /// A folder is copied, and the application writes on both devices within a tick of their clocks: both versions have the same
    /// CAS, and the source of the first device's version is the earlier branch of the copy. The copy mistook that version for its
    /// own, and dropped its own.
    #[test]
    fn an_edit_of_a_copy_has_not_gone_into_an_edit_of_the_first_device_with_the_same_cas() {
        let common = received(&plain(10, "common"), &id("hub")).unwrap();
        let first = at_device(&edited(&common, 20, "first")).document.unwrap();
        let first = outgoing(&first, &id("before")).unwrap();
        let mut copy = at_device(&edited(&common, 20, "copy"));
        let hubs = received(&first, &id("hub")).unwrap();
        let compared = |copy: &Local| compare(copy, &hubs, &id("hub"), HubLoss::None).unwrap();
        assert_eq!(compared(&copy), Step::Take, "written before the folder was copied");
        copy.document = copy.document.map(|it| it.with_meta(|meta| meta.seqno = Seqno(6)));
        assert_eq!(compared(&copy), Step::Decide, "written since");
    }

    /// The hub lost a version of the earlier branch, which became unsent, and has it again with another client's edit over it.
    #[test]
    fn a_version_that_was_lost_and_came_back_keeps_its_name() {
        let sent = at_device(&plain(20, "1")).document.unwrap();
        let sent = outgoing(&sent, &id("before")).unwrap();
        let again = unsent(&at_device(&sent).document.unwrap(), &id("device")).unwrap();
        let mut local = at_device(&again);
        local.document = local.document.map(|it| it.with_meta(|meta| meta.seqno = Seqno(6)));
        let hubs = received(&edited(&sent, 30, "2"), &id("hub")).unwrap();
        assert_eq!(compare(&local, &hubs, &id("hub"), HubLoss::None).unwrap(), Step::Take);
    }

    #[test]
    fn two_deletions_are_no_conflict() {
        let first = received(&plain(10, "1"), &id("hub")).unwrap();
        let (section, _) = first.split().unwrap();
        let tombstone = Arriving { value: section.to_vec(), ..deleted(20) };
        let tombstone = Arriving {
            meta: Meta { datatype: first.meta.datatype, ..tombstone.meta },
            ..tombstone
        };
        assert_eq!(step(&tombstone, &plain(10, "1")), Step::Send);
        assert_eq!(step(&tombstone, &deleted(15)), Step::Take);
        assert_eq!(step(&tombstone, &plain(15, "2")), Step::Decide);
    }

    #[test]
    fn versions_of_a_hub_that_lost_some_are_compared_with_care() {
        let known = at_device(&received(&plain(50, "lost"), &id("hub")).unwrap());
        let compared = |hubs: &Arriving, is_since| {
            let hubs = received(hubs, &id("hub")).unwrap();
            compare(&known, &hubs, &id("hub"), HubLoss::Lost { is_since }).unwrap()
        };
        assert_eq!(compared(&plain(10, "old"), false), Step::Send);
        assert_eq!(compared(&plain(60, "since"), true), Step::Decide);
        assert_eq!(compared(&plain(40, "since"), true), Step::Decide);
        assert_eq!(compared(&plain(60, "later"), false), Step::Take);
        assert_eq!(compared(&plain(50, "lost"), true), Step::Nothing);
    }

    /// The hub lost the version that was edited here and gave its CAS to another version, because its clock was behind. The edit
    /// was sent over that one, although no history contained it.
    #[test]
    fn an_edit_of_a_lost_version_is_not_one_of_a_version_that_got_its_cas() {
        let lost = received(&plain(50, "lost"), &id("hub")).unwrap();
        let edit = at_device(&edited(&lost, 60, "edit"));
        let since = received(&plain(50, "since"), &id("hub")).unwrap();
        let compared =
            |is_since| compare(&edit, &since, &id("hub"), HubLoss::Lost { is_since }).unwrap();
        assert_eq!(compared(true), Step::Decide);
        assert_eq!(
            compared(false),
            Step::Send,
            "the version that was edited is of before the loss"
        );
    }

    /// The first version was 9 s ahead of the hub and was sent unchanged. The document was then created again after the clock was
    /// set a year ahead. With the hub's time as its CAS, the second version seemed contained in versions that others made from
    /// the first.
    #[test]
    fn versions_of_a_document_ascend_though_it_was_deleted_and_created_again() {
        let hour = 3_600_000_000_000;
        let own = &branches()[..1];
        let first = at_device(&plain(hour + 9_000_000_000, "1")).document.unwrap();
        let sent = limited_to_hub_clock(first.clone(), own, Cas::ANY, hour);
        assert_eq!(sent.meta.cas, first.meta.cas);
        let again = at_device(&plain(10_000 * hour, "2")).document.unwrap();
        assert!(
            limited_to_hub_clock(again, own, Cas::ANY, hour + 1_000_000_000).meta.cas
                > sent.meta.cas
        );
    }

    /// The first version was sent unchanged, 9 s ahead of the hub. Then another node of the hub reports a time 20 s earlier, and
    /// the document is created again. No version gets a CAS above its own: later ones of the same vBucket would be below it.
    #[test]
    fn versions_ascend_though_the_hubs_clock_steps_back() {
        let hour = 3_600_000_000_000;
        let own = &branches()[..1];
        let sent = Cas(hour + 9_000_000_000);
        let again = at_device(&plain(10_000 * hour, "2")).document.unwrap();
        let level =
            limited_to_hub_clock(again.clone(), own, Cas::ANY, hour - 20_000_000_000).meta.cas;
        assert!(level < sent, "this is why it is told what was sent");
        let level = limited_to_hub_clock(again, own, sent, hour - 20_000_000_000).meta.cas;
        assert!(level > sent && level.unix_ns() <= sent.unix_ns() + (1 << 16), "{level:?}");
        let close = at_device(&plain(sent.0 + 5, "3")).document.unwrap();
        let level = limited_to_hub_clock(close, own, sent, hour - 20_000_000_000);
        assert_eq!(level.meta.cas, Cas(sent.0 + 5));
    }

    /// The hub lost the document that was deleted here, and received another one after the end of the pass.
    #[test]
    fn a_deletion_does_not_delete_what_the_hub_wrote_since_a_loss() {
        let lost = received(&plain(50, "lost"), &id("hub")).unwrap();
        let (section, _) = lost.split().unwrap();
        let meta = Meta { datatype: lost.meta.datatype, ..deleted(60).meta };
        let deletion = Arriving { meta, value: section.to_vec() };
        assert_eq!(step(&deletion, &plain(40, "since")), Step::Decide);
        assert_eq!(step(&deletion, &plain(50, "lost")), Step::Send);
        let later = edited(&lost, 60, "later");
        let later = outgoing(&at_device(&later).document.unwrap(), &id("device")).unwrap();
        let (section, _) = later.split().unwrap();
        let deletion = Arriving { meta: Meta { cas: Cas(70), ..meta }, value: section.to_vec() };
        assert_eq!(
            step(&deletion, &plain(50, "since")),
            Step::Decide,
            "the CAS is not that of what was deleted"
        );
    }

    #[test]
    fn an_unsent_version_of_a_wrong_clock_is_levelled() {
        let hour = 3_600_000_000_000;
        let first = received(&plain(hour, "1"), &id("hub")).unwrap();
        let year = edited(&first, 10_000 * hour, "2");
        let document = at_device(&year).document.unwrap();
        let own = &branches()[..1];
        let level = limited_to_hub_clock(document.clone(), own, Cas::ANY, 2 * hour);
        assert!(level.meta.cas > Cas(hour) && level.meta.cas.unix_ns() <= 2 * hour + AHEAD_NS_MAX);
        assert_eq!(
            limited_to_hub_clock(document.clone(), own, Cas::ANY, 10_000 * hour).meta.cas,
            Cas(10_000 * hour)
        );
        let taken = received(&plain(10_000 * hour, "1"), &id("hub")).unwrap();
        let taken = at_device(&taken).document.unwrap();
        assert_eq!(
            limited_to_hub_clock(taken.clone(), own, Cas::ANY, hour).meta.cas,
            taken.meta.cas,
            "it is the hub's"
        );
        let own_before = limited_to_hub_clock(
            at_device(&plain(9000 * hour, "x")).document.unwrap(),
            own,
            Cas::ANY,
            hour,
        );
        assert!(own_before.meta.cas.unix_ns() <= hour + AHEAD_NS_MAX);
        let next = limited_to_hub_clock(document, own, level.meta.cas, 2 * hour);
        assert!(next.meta.cas > level.meta.cas);
    }
}
