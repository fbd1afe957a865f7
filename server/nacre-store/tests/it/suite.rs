//! Tests that every back end must pass.

use crate::{commit, erased, kept, shown, shown_all, tombstone, version};
use nacre_store::{
    Commit, Error, Fault, FaultStore, HistorySize, LogOptions, LogStore, MasterKey, MemoryStore,
    SimDisk, SledStore, Store, Which, load_all,
};
use nacre_types::{CollectionId, DocKey, Document, Seqno, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `law` against each back end.
fn each(law: impl Fn(&dyn Store)) {
    law(&MemoryStore::default());
    law(&FaultStore::new(MemoryStore::default()));
    let directory = tempfile::tempdir().unwrap();
    law(&SledStore::open(directory.path(), true, 1 << 20).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let options = LogOptions { segment_bytes: 32 << 10, seed: 1 };
    law(&LogStore::open(directory.path(), true, options).unwrap());
    law(&FaultStore::new(LogStore::open_on(SimDisk::new(), true, options).unwrap()));
    let master = Some(MasterKey::random().unwrap());
    law(&LogStore::open_on_with_key(SimDisk::new(), true, options, master).unwrap());
    #[cfg(feature = "fjall")]
    {
        let directory = tempfile::tempdir().unwrap();
        law(&nacre_store::FjallStore::open(directory.path(), true, 1 << 20).unwrap());
    }
}

/// Runs `law` against each back end that keeps history.
fn each_with_history(law: impl Fn(&dyn Store)) {
    each(|store| {
        if store.keeps_history() {
            law(store);
        }
    });
    assert!(MemoryStore::default().keeps_history());
}

#[test]
fn history_reads_back_in_order_with_the_newest_version_of_each_key() {
    each(|store| {
        store.commit(&[commit(3, vec![version(1, "a", "1"), version(2, "b", "1")])]).unwrap();
        store
            .commit(&[commit(3, vec![version(3, "a", "2")]), commit(4, vec![version(1, "z", "9")])])
            .unwrap();
        store.commit(&[commit(3, vec![tombstone(4, "b")])]).unwrap();
        assert_eq!(shown(store, 3, 0), "a@3=2 b@4=gone | to 4");
        assert_eq!(shown(store, 3, 3), "b@4=gone | to 4");
        assert_eq!(shown(store, 4, 0), "z@1=9 | to 1");
        assert_eq!(shown(store, 5, 0), " | to 0", "a vBucket that was never written");
    });
}

#[test]
fn documents_read_back_by_key() {
    each(|store| {
        store.commit(&[commit(3, vec![version(1, "a", "1")])]).unwrap();
        let key = |name: &str| DocKey::new(CollectionId(8), name.as_bytes());
        let found = store.get(Vbid(3), key("a").prefixed()).unwrap().unwrap();
        assert_eq!(found, version(1, "a", "1"));
        assert_eq!(store.get(Vbid(3), key("b").prefixed()).unwrap(), None);
        assert_eq!(store.get(Vbid(4), key("a").prefixed()).unwrap(), None);
    });
}

#[test]
fn records_describe_what_is_stored() {
    each(|store| {
        store.commit(&[commit(3, vec![version(1, "a", "1"), version(2, "b", "1")])]).unwrap();
        store.commit(&[commit(3, vec![version(5, "a", "2")])]).unwrap();
        let records = store.records().unwrap();
        let [(vbid, record)] = &records[..] else { panic!("{records:?}") };
        assert_eq!((*vbid, record.high_seqno, record.document_count), (Vbid(3), Seqno(5), 2));
        let mut loaded = BTreeMap::new();
        load_all(store, &mut |vbid, document| {
            loaded.insert((vbid, document.meta.seqno), document);
        })
        .unwrap();
        assert_eq!(
            loaded.into_values().collect::<Vec<_>>(),
            [version(2, "b", "1"), version(5, "a", "2")]
        );
    });
}

#[test]
fn erased_keys_are_gone_without_a_trace_unless_they_changed_since() {
    each(|store| {
        let first = vec![
            version(1, "a", "1"),
            tombstone(2, "b"),
            version(3, "c", "1"),
            version(4, "d", "1"),
        ];
        store.commit(&[commit(3, first)]).unwrap();
        let both = Commit {
            erased: vec![
                erased("b", 2),
                erased("b", 2),
                erased("c", 3),
                erased("d", 4),
                erased("never", 4),
            ],
            ..commit(3, vec![version(5, "c", "2")])
        };
        store.commit(&[both]).unwrap();
        assert_eq!(shown(store, 3, 0), "a@1=1 c@5=2 | to 5");
        let key = DocKey::new(CollectionId(8), b"b");
        assert_eq!(store.get(Vbid(3), key.prefixed()).unwrap(), None);

        let alone = Commit {
            erased: vec![erased("a", 1), erased("c", 3)],
            ..commit(3, vec![version(5, "c", "2")])
        };
        store.commit(&[Commit { documents: Vec::new(), ..alone }]).unwrap();
        assert_eq!(shown(store, 3, 0), "c@5=2 | to 5");
        assert_eq!(store.records().unwrap()[0].1.document_count, 1);
        load_all(store, &mut |_, _| {}).unwrap();

        store.commit(&[commit(3, vec![version(6, "a", "3")])]).unwrap();
        assert_eq!(shown(store, 3, 0), "c@5=2 a@6=3 | to 6");
        assert_eq!(store.records().unwrap()[0].1.document_count, 2);
    });
}

/// Returns the commit of a vBucket whose history was discarded.
fn restarted(erased: Vec<(Box<[u8]>, Seqno)>) -> Commit {
    let mut empty = commit(3, vec![version(0, "a", "")]);
    empty.documents.clear();
    Commit { erased, ..empty }
}

#[test]
fn a_restarted_history_may_have_lower_seqnos() {
    let law = |store: &dyn Store| {
        let first = vec![version(1, "a", "1"), version(7, "b", "1"), version(8, "c", "1")];
        store.commit(&[commit(3, first), commit(4, vec![version(9, "a", "1")])]).unwrap();
        let all = vec![erased("a", 1), erased("b", 7), erased("c", 8)];
        store.commit(&[restarted(all)]).unwrap();
        assert_eq!(shown(store, 3, 0), " | to 0");
        load_all(store, &mut |_, _| {}).unwrap();
        store.commit(&[commit(3, vec![version(2, "b", "2"), version(8, "a", "2")])]).unwrap();
        assert_eq!(shown(store, 3, 0), "b@2=2 a@8=2 | to 8");
        assert_eq!(shown(store, 4, 0), "a@9=1 | to 9");
        load_all(store, &mut |_, _| {}).unwrap();
    };
    each(law);
    let (disk, options) = (SimDisk::new(), LogOptions { segment_bytes: 32 << 10, seed: 1 });
    law(&LogStore::open_on(Arc::clone(&disk) as Arc<_>, true, options).unwrap());
    let again = LogStore::open_on(disk, false, options).unwrap();
    assert_eq!(shown(&again, 3, 0), "b@2=2 a@8=2 | to 8");
    load_all(&again, &mut |_, _| {}).unwrap();
}

#[test]
fn a_restarted_history_leaves_no_version_behind() {
    each_with_history(|store| {
        let first = vec![version(5, "a", "1"), version(7, "a", "2"), version(8, "b", "1")];
        store.commit(&[kept(1, commit(3, first))]).unwrap();
        store.commit(&[restarted(vec![erased("a", 7), erased("b", 8)])]).unwrap();
        assert_eq!(shown_all(store, 3, 0), " | to 0, history from nowhere");
        assert_eq!(store.history(), []);
        let next = vec![version(1, "a", "3"), version(2, "a", "4")];
        store.commit(&[kept(1, commit(3, next))]).unwrap();
        assert_eq!(shown_all(store, 3, 0), "a@1=3 a@2=4 | to 2, history from 1");
        load_all(store, &mut |_, _| {}).unwrap();
    });
}

#[test]
fn a_scan_still_sees_what_is_erased_meanwhile() {
    each(|store| {
        store.commit(&[commit(0, vec![tombstone(1, "a"), version(2, "b", "1")])]).unwrap();
        let scan = store.scan(Vbid(0), Seqno::ZERO, Which::Current).unwrap();
        store
            .commit(&[Commit {
                erased: vec![erased("a", 1)],
                ..commit(0, vec![version(3, "c", "1")])
            }])
            .unwrap();
        let seen: Vec<u64> =
            scan.documents.map(|document| document.unwrap().meta.seqno.0).collect();
        assert_eq!(seen, [1, 2]);
    });
}

#[test]
fn a_scan_sees_one_state_while_writes_continue() {
    each(|store| {
        let first: Vec<_> = (1..=600).map(|n| version(n, &format!("k{n}"), "old")).collect();
        store.commit(&[commit(0, first)]).unwrap();
        let scan = store.scan(Vbid(0), Seqno::ZERO, Which::Current).unwrap();
        let mut seen = Vec::new();
        for (index, document) in scan.documents.enumerate() {
            seen.push(document.unwrap());
            // Overwrites something ahead of the scan, behind it, and at its position.
            let n = 601 + index as u64;
            let key = [(index * 7) % 600 + 1, index / 2 + 1, (index + 1) % 600 + 1][index % 3];
            store.commit(&[commit(0, vec![version(n, &format!("k{key}"), "new")])]).unwrap();
        }
        let seqnos: Vec<u64> = seen.iter().map(|document| document.meta.seqno.0).collect();
        assert_eq!(seqnos, (1..=600).collect::<Vec<_>>());
        assert!(seen.iter().all(|document| document.value() == b"old"));
        assert_eq!(scan.end, Seqno(600));
    });
}

/// Each key's value is its seqno as text, so that a mixture would show.
#[test]
fn reads_scans_and_compaction_run_concurrently_with_commits() {
    each(|store| {
        let first: Vec<_> =
            (1..=50).map(|n| version(n, &format!("k{n}"), &n.to_string())).collect();
        store.commit(&[commit(0, first)]).unwrap();
        let done = AtomicBool::new(false);
        let is_intact = |document: &Document| {
            let text = String::from_utf8_lossy(document.value()).into_owned();
            text.trim_end() == document.meta.seqno.to_string()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    store.compact(20).unwrap();
                    std::thread::yield_now();
                }
            });
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let (key, _) = erased("k7", 0);
                    let found = store.get(Vbid(0), &key).unwrap().expect("it is never erased");
                    assert!(is_intact(&found) && found.meta.seqno.0 >= last);
                    last = found.meta.seqno.0;
                }
            });
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let scan = store.scan(Vbid(0), Seqno::ZERO, Which::Current).unwrap();
                    let found: Vec<_> = scan.documents.map(|document| document.unwrap()).collect();
                    assert_eq!(found.len(), 50);
                    assert!(found.iter().all(is_intact));
                    assert_eq!(found[49].meta.seqno, scan.end);
                }
            });
            for n in 51..400 {
                let value = format!("{n}{}", " ".repeat(n as usize * 3));
                store
                    .commit(&[commit(0, vec![version(n, &format!("k{}", n % 50 + 1), &value)])])
                    .unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn large_and_odd_values_survive() {
    each(|store| {
        let large = "x".repeat(3 << 20);
        let odd = "\0\u{1}ÿ";
        store
            .commit(&[commit(
                0,
                vec![version(1, "large", &large), version(2, odd, odd), version(3, "empty", "")],
            )])
            .unwrap();
        let found = store
            .scan(Vbid(0), Seqno::ZERO, Which::Current)
            .unwrap()
            .documents
            .map(|document| document.unwrap().value().len());
        assert_eq!(found.collect::<Vec<_>>(), [3 << 20, odd.len(), 0]);
    });
}

#[test]
fn several_commits_of_a_vbucket_in_one_call_follow_each_other() {
    each(|store| {
        let commits = [
            commit(3, vec![version(1, "a", "1"), version(2, "b", "1")]),
            commit(4, vec![version(1, "a", "9")]),
            commit(3, vec![version(3, "a", "2")]),
            Commit { erased: vec![erased("b", 2)], ..commit(3, vec![version(4, "c", "1")]) },
            commit(3, vec![version(5, "b", "2")]),
        ];
        store.commit(&commits).unwrap();
        assert_eq!(shown(store, 3, 0), "a@3=2 c@4=1 b@5=2 | to 5");
        load_all(store, &mut |_, _| {}).unwrap();
    });
}

#[test]
fn superseded_versions_stay_as_long_as_history_retention_requires() {
    each_with_history(|store| {
        store.commit(&[commit(3, vec![version(1, "a", "1"), version(2, "b", "1")])]).unwrap();
        let many = vec![version(3, "a", "2"), tombstone(4, "a"), version(5, "a", "3")];
        store.commit(&[kept(3, commit(3, many))]).unwrap();
        assert_eq!(shown(store, 3, 0), "b@2=1 a@5=3 | to 5");
        let all = "b@2=1 a@3=2 a@4=gone a@5=3 | to 5, history from 3";
        assert_eq!(shown_all(store, 3, 0), all, "what was superseded before is not history");
        assert_eq!(shown_all(store, 3, 3), "a@4=gone a@5=3 | to 5, history from 3");
        assert_eq!(store.records().unwrap()[0].1.document_count, 2);
        load_all(store, &mut |_, _| {}).unwrap();
        let key = DocKey::new(CollectionId(8), b"a");
        let current = store.get(Vbid(3), key.prefixed()).unwrap().unwrap();
        assert_eq!(current.meta.seqno, Seqno(5));

        store.commit(&[kept(4, commit(3, vec![version(6, "b", "2")]))]).unwrap();
        let all = "a@4=gone a@5=3 b@6=2 | to 6, history from 4";
        assert_eq!(shown_all(store, 3, 0), all, "history begins later");
        store.commit(&[commit(3, vec![version(7, "c", "1")])]).unwrap();
        let all = "a@5=3 b@6=2 c@7=1 | to 7, history from nowhere";
        assert_eq!(shown_all(store, 3, 0), all, "no history any more");
        assert_eq!(store.history(), []);
    });
}

#[test]
fn only_collections_with_history_keep_versions() {
    each_with_history(|store| {
        let other = |next: Commit| Commit { history: [CollectionId(9)].into(), ..kept(1, next) };
        store.commit(&[other(commit(0, vec![version(1, "a", "1")]))]).unwrap();
        store.commit(&[other(commit(0, vec![version(2, "a", "2")]))]).unwrap();
        assert_eq!(shown_all(store, 0, 0), "a@2=2 | to 2, history from 1");
    });
}

#[test]
fn an_erased_version_stays_in_history() {
    each_with_history(|store| {
        let first = vec![version(1, "a", "1"), tombstone(2, "a"), version(3, "b", "1")];
        store.commit(&[kept(1, commit(0, first))]).unwrap();
        let mut next = kept(1, commit(0, vec![version(4, "b", "2")]));
        next.erased = vec![erased("a", 2)];
        store.commit(&[next]).unwrap();
        assert_eq!(shown(store, 0, 0), "b@4=2 | to 4");
        let all = "a@1=1 a@2=gone b@3=1 b@4=2 | to 4, history from 1";
        assert_eq!(shown_all(store, 0, 0), all, "or its reader would think that it is there");
        store.commit(&[kept(1, commit(0, vec![version(5, "a", "3")]))]).unwrap();
        assert_eq!(shown(store, 0, 0), "b@4=2 a@5=3 | to 5");
        assert_eq!(store.records().unwrap()[0].1.document_count, 2);
    });
}

#[test]
fn a_version_leads_to_the_one_that_it_replaced() {
    each_with_history(|store| {
        let first = vec![version(1, "a", "1"), version(2, "b", "1"), version(3, "a", "2")];
        store.commit(&[kept(1, commit(0, first))]).unwrap();
        let before = |seqno| {
            let found = store.previous(Vbid(0), Seqno(seqno)).unwrap();
            found.map(|found| (found.meta.seqno.0, found.value().to_vec()))
        };
        store.commit(&[kept(1, commit(0, vec![tombstone(4, "a"), version(5, "a", "3")]))]).unwrap();
        assert_eq!(before(3), Some((1, b"1".to_vec())));
        assert_eq!(before(4), Some((3, b"2".to_vec())));
        assert_eq!(before(5), Some((4, Vec::new())), "a tombstone is a version, too");
        assert_eq!([before(1), before(2), before(9)], [None, None, None]);
        store.commit(&[kept(4, commit(0, vec![version(6, "b", "2")]))]).unwrap();
        assert_eq!([before(4), before(6)], [None, None], "what is not kept is not found");
        assert!(before(5).is_some());
    });
}

#[test]
fn history_is_measured_and_fitted_by_its_old_end() {
    each_with_history(|store| {
        let versions = (1..=9).map(|seqno| version(seqno, "a", "1")).collect();
        store
            .commit(&[kept(2, commit(5, versions)), commit(6, vec![version(1, "a", "1")])])
            .unwrap();
        let found = store.history();
        let [(Vbid(5), all @ HistorySize { versions: 7, bytes })] = found[..] else {
            panic!("{found:?}")
        };
        let within =
            |versions, bytes| store.history_within(Vbid(5), HistorySize { versions, bytes }).0;
        assert_eq!(store.history_within(Vbid(5), all), Seqno::ZERO);
        assert_eq!(within(2, u64::MAX), 7, "8 and 7 stay, 9 is current");
        assert_eq!(within(u64::MAX, bytes / 7), 8);
        assert_eq!(within(0, 0), 9);
        assert_eq!(store.history_within(Vbid(6), HistorySize::default()), Seqno::ZERO);
    });
}

#[test]
fn a_failing_disk_is_an_error_and_not_a_loss_of_what_was_there() {
    let store = FaultStore::new(MemoryStore::default());
    store.commit(&[commit(0, vec![version(1, "a", "1")])]).unwrap();
    store.inject(Some(Fault::Full));
    let refused = store.commit(&[commit(0, vec![version(2, "a", "2")])]);
    assert!(matches!(refused, Err(Error::Full)));
    store.inject(Some(Fault::Torn));
    let both = [commit(0, vec![version(2, "b", "2")]), commit(1, vec![version(1, "c", "3")])];
    assert!(store.commit(&both).is_err());
    store.inject(None);
    assert_eq!(shown(&store, 0, 0), "a@1=1 b@2=2 | to 2", "the first half of a torn commit");
    assert_eq!(shown(&store, 1, 0), " | to 0");
}
