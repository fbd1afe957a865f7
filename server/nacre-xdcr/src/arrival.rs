//! The receiving side: decides what a bucket stores when a replicated version arrives.
//!
//! ```text
//! receive(local, arriving) ─► Keep      keep the local version; the sender learns that the target has one
//!                         ├─► Store     write the arriving version over exactly the local version compared
//!                         └─► Ask       a resolver decides ─► settle(verdict) ─► Store
//! ```
//!
//! Both are pure functions: the caller holds the lock of the vBucket, or writes under the condition that the local
//! version is still the one that was compared ([`nacre_vbucket::Rule::Over`]).

use crate::{Judgement, Known, Malformed, Policy, Side, Site, attribute, judge};
use nacre_types::{Cas, DATATYPE_JSON, DATATYPE_XATTR, Document, FailoverLog, Kind, Meta, Seqno};
use nacre_value::{json, xattr};
use nacre_vbucket::{ConflictContext, Verdict, Version};

/// A version of a document outside a vBucket: metadata, and attributes followed by the body. The seqno has no meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// The metadata.
    pub meta: Meta,
    /// Attributes (if the datatype has them), then the body.
    pub value: Vec<u8>,
}

impl Arriving {
    /// Returns the version that a stored document holds.
    pub fn of(document: &Document) -> Arriving {
        Arriving { meta: document.meta, value: document.value().to_vec() }
    }

    /// Attributes and body.
    ///
    /// # Errors
    /// [`Malformed`] when the section is longer than the value.
    pub fn split(&self) -> Result<(&[u8], &[u8]), Malformed> {
        match self.meta.datatype & DATATYPE_XATTR {
            0 => Ok((&[], &self.value)),
            _ => xattr::split(&self.value).ok_or(Malformed),
        }
    }

    /// Returns the version in the form that resolvers receive.
    pub fn shown(&self) -> Version {
        let Meta { cas, rev, flags, expiry, datatype, kind, .. } = self.meta;
        Version {
            body: self.split().map_or(&self.value[..], |(_, body)| body).to_vec(),
            is_deleted: kind != Kind::Alive,
            cas,
            rev,
            flags,
            expiry,
            is_json: datatype & DATATYPE_JSON != 0,
        }
    }

    fn known(&self) -> Result<Known, Malformed> {
        Known::arriving(&self.meta, self.split()?.0)
    }
}

/// The decision about a version that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Keep the local version.
    Keep,
    /// Store this version, under exactly its CAS and revision.
    Store(Arriving),
    /// Ask a resolver, then call [`settle`].
    Ask,
}

/// Decides about a version that arrives at `site`. `next_cas` is a CAS greater than that of both versions, for a write under a
/// CAS of this bucket. `lost` is the seqno of the [first loss](first_loss) in the vBucket's history.
///
/// The arriving history can contain the local version by its numbers without accounting for it. This happens when a failover lost
/// a later version of this bucket, which the arriving version includes, and the bucket wrote the local version after the loss.
/// The resolver is asked then, as in any conflict. `lost` is the first loss and not the last one, because a local version older
/// than the last loss may have been written after an earlier loss.
///
/// # Errors
/// [`Malformed`] when the attributes or the history of the arriving version cannot be read.
pub fn receive(
    local: Option<&Document>,
    arriving: &Arriving,
    site: &Site,
    policy: Policy,
    next_cas: Cas,
    lost: Seqno,
) -> Result<Outcome, Malformed> {
    let incoming = arriving.known()?;
    let Some(local) = local else { return Ok(Outcome::Store(arriving.clone())) };
    // The local version was checked when it arrived. If a client has since overwritten `_vv` with something unreadable,
    // treat it as absent.
    let here = known_here(local, site);
    let (xattrs, body) = arriving.split()?;
    let values = if local.is_resident() { Some((local.xattrs(), local.body())) } else { None };
    let (local_xattrs, local_body) = values.unzip();
    let sides = (
        Side { meta: &arriving.meta, known: &incoming, xattrs, body: Some(body) },
        Side {
            meta: &local.meta,
            known: &here,
            xattrs: local_xattrs.unwrap_or_default(),
            body: local_body,
        },
    );
    Ok(match judge(policy, sides.0, sides.1) {
        // Without the local value (ejected document), the bodies cannot be compared: the local version stays.
        Judgement::Keep | Judgement::Compare => Outcome::Keep,
        Judgement::Ask => Outcome::Ask,
        Judgement::Take | Judgement::TakeAnew
            if matches!(policy, Policy::Resolver(_))
                && local.meta.seqno > lost
                && is_unknown(&incoming, &here, site)
                && (local.is_alive() || arriving.meta.kind == Kind::Alive) =>
        {
            Outcome::Ask
        }
        Judgement::Take => Outcome::Store(arriving.clone()),
        Judgement::TakeAnew => {
            let (xattrs, body) = arriving.split()?;
            let rev = arriving.meta.rev.max(local.meta.rev) + 1;
            let meta = Meta { cas: next_cas, rev, ..arriving.meta };
            let history = match (incoming.history, here.history) {
                (Some(history), Some(other)) => {
                    Some(history.adopted(&other, site.id.clone(), next_cas))
                }
                _ => None,
            };
            Outcome::Store(joined(meta, xattrs, body, history.as_ref())?)
        }
    })
}

/// Returns the seqno after which a local version may ignore a lost one: the start of the second known branch of the failover log.
/// Returns 0 if the log has one branch only, or has forgotten its oldest branches.
pub fn first_loss(log: &FailoverLog) -> Seqno {
    match log.entries() {
        [.., second, (_, Seqno::ZERO)] => second.1,
        _ => Seqno::ZERO,
    }
}

/// Returns true if the arriving history lacks the local version of `site` although it lists a later version of `site`. On one
/// branch of history a later version would have accounted for the local one, so the later version comes from a lost branch.
fn is_unknown(incoming: &Known, here: &Known, site: &Site) -> bool {
    let (Some(arriving), Some(local)) = (&incoming.history, &here.history) else { return false };
    local.represented_by(&site.id).is_some_and(|own| {
        arriving.newest_of(&site.id) >= own && arriving.listed_of(&site.id) != own
    })
}

/// Adds what a resolver learns about the origins of two versions at `site`: their histories.
///
/// # Errors
/// [`Malformed`] under the conditions of [`receive`].
pub fn add_histories(
    context: &mut ConflictContext,
    local: &Document,
    arriving: &Arriving,
    site: &Site,
) -> Result<(), Malformed> {
    let shown = |known: Known| known.history.map(|history| history.shown());
    site.id.as_str().clone_into(&mut context.here);
    context.remote = shown(arriving.known()?);
    context.local = shown(known_here(local, site));
    Ok(())
}

/// Returns true if `kept`, an earlier version that `site` keeps, went into both the local and the arriving version. The newest
/// such version is their common ancestor.
///
/// A version of `site` that only the numbers of the arriving history cover is not an ancestor: it may belong to another branch of
/// history than the one that the arriving version was derived from.
pub fn is_common_ancestor(
    kept: &Document,
    local: &Document,
    arriving: &Arriving,
    site: &Site,
) -> bool {
    let Ok(incoming) = arriving.known() else { return false };
    let (here, before) = (known_here(local, site), known_here(kept, site));
    let (Some(arrived), Some(stored), Some(earlier)) =
        (&incoming.history, &here.history, &before.history)
    else {
        return false;
    };
    arrived.contains(earlier) && stored.contains(earlier) && !is_unknown(&incoming, &before, site)
}

/// Returns the version to store after a resolver has decided between the local and the arriving version. A decision is
/// recorded as a merge of both under `next_cas`. If the arriving version is of a lost branch of this bucket's history, the
/// decision is recorded as a write of this bucket instead.
///
/// A merged body takes attributes, flags and expiry from the version with the greater CAS. If only one of the two versions is
/// alive, it takes them from that one.
///
/// # Errors
/// [`Malformed`] under the conditions of [`receive`].
pub fn settle(
    local: &Document,
    arriving: &Arriving,
    verdict: &Verdict,
    site: &Site,
    next_cas: Cas,
) -> Result<Arriving, Malformed> {
    let incoming = arriving.known()?;
    let here = known_here(local, site);
    let of_local = Arriving::of(local);
    let is_alive = |version: &Arriving| version.meta.kind == Kind::Alive;
    let base = match verdict {
        Verdict::KeepLocal => &of_local,
        Verdict::KeepRemote => arriving,
        Verdict::Merged(_) => match (is_alive(&of_local), is_alive(arriving)) {
            (true, false) => &of_local,
            (false, true) => arriving,
            _ if arriving.meta.cas > local.meta.cas => arriving,
            _ => &of_local,
        },
    };
    let (xattrs, kept) = base.split()?;
    let body = if let Verdict::Merged(body) = verdict { body } else { kept };
    let mut meta = Meta { cas: next_cas, ..base.meta };
    meta.rev = arriving.meta.rev.max(local.meta.rev) + 1;
    if matches!(verdict, Verdict::Merged(_)) && meta.kind != Kind::Alive {
        // The resolver restored a document that both sides had deleted. A tombstone's expiry field holds its deletion
        // time, so clear it.
        (meta.kind, meta.expiry) = (Kind::Alive, 0);
    }
    let is_of_lost_branch = is_unknown(&incoming, &here, site);
    let history = match (incoming.history, here.history) {
        (Some(incoming), Some(here)) if is_of_lost_branch => {
            Some(here.decided(&incoming, site.id.clone(), next_cas))
        }
        (Some(incoming), Some(here)) => Some(here.merge(&incoming, site.id.clone(), next_cas)),
        // A decision about a version of unknown origin counts as a write of this bucket.
        (Some(known), None) | (None, Some(known)) => {
            Some(known.written_over(site.id.clone(), next_cas))
        }
        (None, None) => None,
    };
    joined(meta, xattrs, body, history.as_ref())
}

/// Returns the knowledge about a version stored at `site`. Unreadable attributes count as absent.
pub fn known_here(local: &Document, site: &Site) -> Known {
    let xattrs = if local.is_resident() { local.xattrs() } else { &[] };
    Known::of(&local.meta, xattrs, site).unwrap_or_else(|Malformed| {
        Known::of(&local.meta, &[], site).expect("no attributes are well-formed")
    })
}

/// Returns a version with `body` and `xattrs`, in which `history` replaces the stored history.
pub(crate) fn joined(
    meta: Meta,
    xattrs: &[u8],
    body: &[u8],
    history: Option<&crate::History>,
) -> Result<Arriving, Malformed> {
    let stamped = match history {
        Some(history) => attribute::stamp(xattrs, history, meta.cas)?,
        None => xattrs.to_vec(),
    };
    let is_json = meta.kind == Kind::Alive && json::is_json(body);
    let datatype = (if is_json { DATATYPE_JSON } else { 0 })
        | (if stamped.is_empty() { 0 } else { DATATYPE_XATTR });
    let value = [&stamped[..], body].concat();
    Ok(Arriving { meta: Meta { datatype, ..meta }, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{History, SourceId};
    use nacre_vbucket::Resolution;

    const POLICY: Policy = Policy::Resolver(Resolution::LastWriteWins);

    fn id(name: &str) -> SourceId {
        SourceId::parse(name).unwrap()
    }

    fn site() -> Site {
        Site { id: id("here"), since: Cas::ANY }
    }

    fn version(body: &str, cas: u64, history: &History) -> Arriving {
        let meta = Meta { cas: Cas(cas), rev: 1, ..Meta::default() };
        joined(meta, &[], body.as_bytes(), Some(history)).unwrap()
    }

    fn stored(version: &Arriving) -> Document {
        Document::new(version.meta, b"\0k", &version.value)
    }

    #[test]
    fn every_answer_of_a_resolver_is_a_merge() {
        let local = version("1", 10, &History::of_write(id("here"), Cas(10)));
        let arriving = version("2", 20, &History::of_write(id("there"), Cas(20)));
        let (document, next) = (stored(&local), Cas(30));
        assert_eq!(
            receive(Some(&document), &arriving, &site(), POLICY, next, Seqno::ZERO),
            Ok(Outcome::Ask)
        );
        let verdicts = [Verdict::KeepLocal, Verdict::KeepRemote, Verdict::Merged(b"3".to_vec())];
        for (verdict, body) in verdicts.iter().zip(["1", "2", "3"]) {
            let merge = settle(&document, &arriving, verdict, &site(), next).unwrap();
            assert_eq!(merge.shown().body, body.as_bytes());
            assert_eq!((merge.meta.cas, merge.meta.rev), (next, 2));
            let known = merge.known().unwrap().history.unwrap();
            assert_eq!((known.source(), known.merged().len()), (&id("here"), 2));
            let again =
                receive(Some(&stored(&merge)), &arriving, &site(), POLICY, Cas(40), Seqno::ZERO);
            assert_eq!(again, Ok(Outcome::Keep), "it is not asked twice");
        }
    }

    #[test]
    fn a_resolver_learns_the_histories_of_both_versions() {
        let base = History::of_write(id("there"), Cas(10));
        let local = stored(&version("1", 20, &base.written_over(id("here"), Cas(20))));
        let arriving = version("2", 30, &base.written_over(id("there"), Cas(30)));
        let mut context = ConflictContext::default();
        add_histories(&mut context, &local, &arriving, &site()).unwrap();
        assert_eq!(context.here, "here");
        let history = context.local.unwrap();
        assert_eq!((&history.source[..], history.cas), ("here", Cas(20)));
        assert_eq!(history.previous, [("there".to_owned(), Cas(10))]);
        let history = context.remote.unwrap();
        assert_eq!(
            (&history.source[..], history.cas, history.previous),
            ("there", Cas(30), vec![])
        );
    }

    #[test]
    fn only_a_version_that_went_into_both_is_a_common_ancestor() {
        let first = History::of_write(id("here"), Cas(10));
        let theirs = version("3", 40, &first.written_over(id("there"), Cas(40)));
        let second = History::of_write(id("here"), Cas(20));
        let third = stored(&version("third", 30, &History::of_write(id("here"), Cas(30))));
        let is_common = |cas, history: &History| {
            let kept = stored(&version("kept", cas, history));
            is_common_ancestor(&kept, &third, &theirs, &site())
        };
        assert!(is_common(10, &first));
        assert!(!is_common(20, &second), "the other side never had it");
        let elsewhere = History::of_write(id("elsewhere"), Cas(5));
        assert!(!is_common(5, &elsewhere), "neither version knows it");
        // The arriving version lists 10 of this bucket, but not this version of a branch that was lost.
        let lost = History::of_write(id("here"), Cas(7));
        assert!(!is_common(7, &lost));
    }

    #[test]
    fn a_later_version_with_a_lesser_cas_gets_one_of_this_bucket() {
        let first = History::of_write(id("here"), Cas(10));
        let merge = first.merge(&History::of_write(id("there"), Cas(20)), id("here"), Cas(50));
        let local = stored(&version("1", 50, &merge));
        let later = first.written_over(id("there"), Cas(30));
        let arriving = version("2", 30, &later);
        let outcome =
            receive(Some(&local), &arriving, &site(), POLICY, Cas(60), Seqno::ZERO).unwrap();
        let Outcome::Store(taken) = outcome else { panic!("{outcome:?}") };
        assert_eq!((taken.meta.cas, &taken.shown().body[..]), (Cas(60), &b"2"[..]));
        let known = taken.known().unwrap().history.unwrap();
        assert!(known.is_merge() && known.source() == &id("here"), "{known:?}");
        let other = Site { id: id("there"), since: Cas::ANY };
        let back = receive(Some(&stored(&arriving)), &taken, &other, POLICY, Cas(70), Seqno::ZERO)
            .unwrap();
        assert_eq!(back, Outcome::Store(taken), "the other side takes it without asking");
    }

    /// The bucket lost version 50 and has written version 30 since.
    #[test]
    fn a_version_of_a_lost_branch_does_not_replace_what_was_written_since() {
        let local = stored(&version("since", 30, &History::of_write(id("here"), Cas(30))));
        let local =
            Document::new(Meta { seqno: Seqno(8), ..local.meta }, local.key(), local.value());
        let lost = version("lost", 50, &History::of_write(id("here"), Cas(50)));
        let outcome = |first| receive(Some(&local), &lost, &site(), POLICY, Cas(60), Seqno(first));
        assert_eq!(outcome(7), Ok(Outcome::Ask));
        assert_eq!(outcome(8), Ok(Outcome::Store(lost.clone())), "it was there before the loss");
        let merge = settle(&local, &lost, &Verdict::KeepLocal, &site(), Cas(60)).unwrap();
        let other = Site { id: id("there"), since: Cas::ANY };
        let there = receive(Some(&stored(&lost)), &merge, &other, POLICY, Cas(70), Seqno::ZERO);
        assert_eq!(there, Ok(Outcome::Store(merge)), "who has the lost one takes the decision");
    }

    #[test]
    fn the_first_loss_is_the_oldest_one_that_is_known() {
        for (entries, first) in [
            (&[(1, 0)][..], 0),
            (&[(2, 50), (1, 0)], 50),
            (&[(3, 90), (2, 50), (1, 0)], 50),
            // The log has forgotten older branches.
            (&[(9, 90), (8, 50)], 0),
        ] {
            let of = |&(branch, began): &(u64, u64)| (nacre_types::VbUuid(branch), Seqno(began));
            let log = FailoverLog::from_entries(entries.iter().map(of).collect()).unwrap();
            assert_eq!(first_loss(&log), Seqno(first), "{entries:?}");
        }
    }

    /// The bucket lost version 50, wrote version 30 afterwards, and then decided between the two.
    #[test]
    fn a_decision_about_a_lost_version_stays_where_only_the_lost_one_is_known() {
        let local = stored(&version("since", 30, &History::of_write(id("here"), Cas(30))));
        let history = History::of_write(id("here"), Cas(50));
        let lost = version("lost", 50, &history);
        let decision = settle(&local, &lost, &Verdict::KeepLocal, &site(), Cas(60)).unwrap();
        let known = decision.known().unwrap().history.unwrap();
        assert!(!known.is_merge() && known.version() == Cas(60), "{known:?}");
        let later = version("there", 70, &history.written_over(id("there"), Cas(70)));
        let document = stored(&decision);
        let outcome = receive(Some(&document), &later, &site(), POLICY, Cas(80), Seqno::ZERO);
        assert_eq!(outcome, Ok(Outcome::Ask));
    }

    /// The bucket merged versions 20 and 40 of two other buckets into 50, lost that merge, and then wrote 30 over 20.
    #[test]
    fn a_lost_merge_of_this_bucket_does_not_contain_later_writes() {
        let before = History::of_write(id("there"), Cas(20));
        let merge = before.merge(&History::of_write(id("far"), Cas(40)), id("here"), Cas(50));
        let local = version("since", 30, &before.written_over(id("here"), Cas(30)));
        let local = Document::new(Meta { seqno: Seqno(8), ..local.meta }, b"\0k", &local.value);
        let lost = version("lost", 50, &merge);
        let outcome = receive(Some(&local), &lost, &site(), POLICY, Cas(60), Seqno(7));
        assert_eq!(outcome, Ok(Outcome::Ask));
    }

    #[test]
    fn documents_deleted_on_both_sides_do_not_conflict() {
        let tombstone = |cas, name: &str| {
            let history = History::of_write(id(name), Cas(cas));
            let meta = Meta { cas: Cas(cas), kind: Kind::Deleted, ..Meta::default() };
            joined(meta, &[], b"", Some(&history)).unwrap()
        };
        let (less, greater) = (tombstone(10, "there"), tombstone(20, "here"));
        let outcome = |local, arriving| {
            receive(Some(&stored(local)), arriving, &site(), POLICY, Cas(30), Seqno::ZERO).unwrap()
        };
        assert_eq!(outcome(&greater, &less), Outcome::Keep);
        assert_eq!(outcome(&less, &greater), Outcome::Store(greater.clone()));
    }

    #[test]
    fn without_histories_a_resolver_is_asked_about_different_bodies() {
        let plain = |cas| Arriving {
            meta: Meta { cas: Cas(cas), rev: 1, ..Meta::default() },
            value: b"1".to_vec(),
        };
        let site = Site { since: Cas(1000), ..site() };
        let local = stored(&plain(10));
        let outcome = |arriving: &Arriving| {
            receive(Some(&local), arriving, &site, POLICY, Cas(30), Seqno::ZERO).unwrap()
        };
        assert_eq!(outcome(&plain(20)), Outcome::Store(plain(20)), "the body is the same");
        assert_eq!(outcome(&plain(5)), Outcome::Keep);
        let other = Arriving { value: b"2".to_vec(), ..plain(5) };
        assert_eq!(outcome(&other), Outcome::Ask);
        let same = Arriving { value: b"2".to_vec(), ..plain(10) };
        let other_side =
            receive(Some(&stored(&same)), &plain(10), &site, POLICY, Cas(30), Seqno::ZERO);
        // CAS and revision identify a version, unless two clusters wrote at the same time.
        let kept = [outcome(&same), other_side.unwrap()].map(|outcome| outcome == Outcome::Keep);
        assert_eq!(kept.iter().filter(|is_kept| **is_kept).count(), 1, "both keep the same body");
        let rule = Policy::Rule(Resolution::LastWriteWins);
        let by_rule = receive(Some(&local), &other, &site, rule, Cas(30), Seqno::ZERO).unwrap();
        assert_eq!(by_rule, Outcome::Keep);
    }
}
