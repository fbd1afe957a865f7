//! The receiving side: decides what a bucket stores of a version that arrives.
//!
//! ```text
//! receive(local, arriving) ─► Keep      the version here stays, and the sender is answered that one exists
//!                         ├─► Store     to be written over the version that was compared, and no other
//!                         └─► Ask       a resolver decides ─► settle(verdict) ─► Store
//! ```
//!
//! Both are pure functions: the caller holds the lock of the vBucket, or writes under the condition that the local
//! version is still the one that was compared ([`nacre_vbucket::Rule::Over`]).

use crate::{Judgement, Known, Malformed, Policy, Side, Site, attribute, judge};
use nacre_types::{Cas, DATATYPE_JSON, DATATYPE_XATTR, Document, FailoverLog, Kind, Meta, Seqno};
use nacre_value::{json, xattr};
use nacre_vbucket::{Verdict, Version};

/// A version of a document outside of a vBucket: metadata, and the value with its attributes first. The seqno means
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// The metadata.
    pub meta: Meta,
    /// Attributes, if the datatype says so, and body.
    pub value: Vec<u8>,
}

impl Arriving {
    /// The version that `document` is.
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

    /// The version as resolvers see it.
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
    /// The local version stays.
    Keep,
    /// This is stored, under exactly this CAS and revision.
    Store(Arriving),
    /// A resolver must be asked; then [`settle`].
    Ask,
}

/// Decides about a version that arrives at `site`. `next_cas` is a CAS greater than that of both versions, for a write
/// under a CAS of this bucket; `lost` is the seqno of the [first loss](first_loss) in the vBucket's history.
///
/// A version that contains the local one by its numbers may not know it: this bucket made it after it had lost a later one of
/// its own, which the version that arrives has. The resolver is asked, as in any conflict. That the local version is older than the last
/// loss does not help: it may have been written after the one before.
///
/// # Errors
/// [`Malformed`] when the attributes or the history of the version that arrives cannot be read.
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
    // The local version was checked when it arrived. An attribute of that name that a client has written counts as
    // none.
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
        // Whoever gives a version without its value cannot have it compared.
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

/// Returns the seqno after which a version may have been written without knowledge of one that was lost: where the second of the known
/// branches of a history began. 0 if only one is known, or if older ones are forgotten.
pub fn first_loss(log: &FailoverLog) -> Seqno {
    match log.entries() {
        [.., second, (_, Seqno::ZERO)] => second.1,
        _ => Seqno::ZERO,
    }
}

/// Returns true if the local version is represented by a version of `site` that the version that arrives does not know, although
/// it knows of a later one of `site`. Of the same branch of history a later one would have taken account of the local one, so
/// that it is of a lost branch.
fn is_unknown(incoming: &Known, here: &Known, site: &Site) -> bool {
    let (Some(arriving), Some(local)) = (&incoming.history, &here.history) else { return false };
    local.represented_by(&site.id).is_some_and(|own| {
        arriving.newest_of(&site.id) >= own && arriving.listed_of(&site.id) != own
    })
}

/// Returns the version to store after a resolver has decided between the local version and the one that arrived. Every
/// decision is a merge of both under `next_cas`, or a write of this bucket if the version that arrived is of a lost branch of
/// its history.
///
/// A body of the resolver gets attributes, flags and expiry of the version with the greater CAS, unless that one was
/// deleted and the other one was not.
///
/// # Errors
/// [`Malformed`] as from [`receive`].
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
        // The resolver has brought back a document that both sides had deleted; the time of a deletion is no expiry.
        (meta.kind, meta.expiry) = (Kind::Alive, 0);
    }
    let is_of_lost_branch = is_unknown(&incoming, &here, site);
    let history = match (incoming.history, here.history) {
        (Some(incoming), Some(here)) if is_of_lost_branch => {
            Some(here.decided(&incoming, site.id.clone(), next_cas))
        }
        (Some(incoming), Some(here)) => Some(here.merge(&incoming, site.id.clone(), next_cas)),
        // A decision about a version of unknown origin is a write of this bucket.
        (Some(known), None) | (None, Some(known)) => {
            Some(known.written_over(site.id.clone(), next_cas))
        }
        (None, None) => None,
    };
    joined(meta, xattrs, body, history.as_ref())
}

/// Returns what is known about a version stored at `site`.
pub fn known_here(local: &Document, site: &Site) -> Known {
    let xattrs = if local.is_resident() { local.xattrs() } else { &[] };
    Known::of(&local.meta, xattrs, site).unwrap_or_else(|Malformed| {
        Known::of(&local.meta, &[], site).expect("no attributes are well-formed")
    })
}

/// The version with `body` and the attributes, of which the history is replaced.
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

    /// The bucket lost version 50, and has written 30 since.
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
            // There were others before.
            (&[(9, 90), (8, 50)], 0),
        ] {
            let of = |&(branch, began): &(u64, u64)| (nacre_types::VbUuid(branch), Seqno(began));
            let log = FailoverLog::from_entries(entries.iter().map(of).collect()).unwrap();
            assert_eq!(first_loss(&log), Seqno(first), "{entries:?}");
        }
    }

    /// The bucket lost version 50, has written 30 since, and has decided between the two.
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

    /// The bucket merged versions 20 and 40 of two other ones into 50, lost that, and has written 30 over 20 since.
    #[test]
    fn a_lost_merge_of_this_bucket_says_nothing_about_what_was_written_since() {
        let before = History::of_write(id("there"), Cas(20));
        let merge = before.merge(&History::of_write(id("far"), Cas(40)), id("here"), Cas(50));
        let local = version("since", 30, &before.written_over(id("here"), Cas(30)));
        let local = Document::new(Meta { seqno: Seqno(8), ..local.meta }, b"\0k", &local.value);
        let lost = version("lost", 50, &merge);
        let outcome = receive(Some(&local), &lost, &site(), POLICY, Cas(60), Seqno(7));
        assert_eq!(outcome, Ok(Outcome::Ask));
    }

    #[test]
    fn what_both_have_deleted_is_no_conflict() {
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
        // CAS and revision name a version, unless two clusters wrote at the same time.
        let kept = [outcome(&same), other_side.unwrap()].map(|outcome| outcome == Outcome::Keep);
        assert_eq!(kept.iter().filter(|is_kept| **is_kept).count(), 1, "both keep the same body");
        let rule = Policy::Rule(Resolution::LastWriteWins);
        let by_rule = receive(Some(&local), &other, &site, rule, Cas(30), Seqno::ZERO).unwrap();
        assert_eq!(by_rule, Outcome::Keep);
    }
}
