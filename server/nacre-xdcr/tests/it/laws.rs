//! Laws of histories and of the decisions based on them, with random histories.

use nacre_types::{Cas, Document, Kind, Meta, Seqno};
use nacre_vbucket::{Resolution, Verdict};
use nacre_xdcr::{
    Arriving, History, Outcome, Policy, Relation, Site, SourceId, attribute, receive, settle,
};
use proptest::prelude::*;

fn id(number: usize) -> SourceId {
    SourceId::parse(["A", "B", "C", "D"][number % 4]).unwrap()
}

fn site(number: usize) -> Site {
    Site { id: id(number), since: Cas::ANY }
}

/// An event of a document at several sites.
#[derive(Clone, Debug)]
enum Event {
    /// A client writes or deletes.
    Write { site: usize, deletes: bool },
    /// A version that a site had at some time arrives at another site.
    Arrive { from: usize, which: usize, to: usize },
}

fn events(sites: usize) -> impl Strategy<Value = Vec<Event>> {
    let arrive = (0..sites, any::<usize>(), 0..sites);
    let event = prop_oneof![
        2 => (0..sites, any::<u8>()).prop_map(|(site, n)| Event::Write { site, deletes: n < 40 }),
        3 => arrive.prop_map(|(from, which, to)| Event::Arrive { from, which, to }),
    ];
    proptest::collection::vec(event, 1..40)
}

/// Sites with one document, and all versions that each has had.
struct World {
    policy: Policy,
    sites: Vec<Vec<Arriving>>,
    clock: Vec<u64>,
    asked: usize,
    /// The resolver's decision at each site: its own version, the other one, or a merge.
    verdicts: Vec<u8>,
}

impl World {
    fn new(sites: usize, policy: Policy, verdicts: Vec<u8>) -> World {
        let clock = (0..sites as u64).map(|site| site * 7).collect();
        World { policy, sites: vec![Vec::new(); sites], clock, asked: 0, verdicts }
    }

    fn newest(&self, site: usize) -> Option<Document> {
        self.sites[site].last().map(|it| Document::new(it.meta, b"\0k", &it.value))
    }

    /// Returns a CAS greater than all CAS of the site. Now and then it equals the CAS `beside`.
    fn next_cas(&mut self, site: usize, beside: Cas) -> Cas {
        let known = self.sites[site].iter().map(|version| version.meta.cas.0).max().unwrap_or(0);
        self.clock[site] += 3;
        Cas(known.max(beside.0).max(self.clock[site]) + 1)
    }

    fn write(&mut self, number: usize, deletes: bool) {
        let cas = self.next_cas(number, Cas::ANY);
        let before = self.newest(number);
        let rev = before.as_ref().map_or(1, |before| before.meta.rev + 1);
        let kind = if deletes { Kind::Deleted } else { Kind::Alive };
        // As clients do: attributes are kept, unless the document is recreated.
        let kept = before.filter(|it| it.is_alive() || deletes).map(|it| it.xattrs().to_vec());
        let attributes = kept.unwrap_or_default();
        let body = if deletes { String::new() } else { format!("{}", cas.0) };
        let datatype = if attributes.is_empty() { 0 } else { nacre_types::DATATYPE_XATTR };
        let meta = Meta { cas, rev, kind, datatype, ..Meta::default() };
        self.sites[number]
            .push(Arriving { meta, value: [&attributes[..], body.as_bytes()].concat() });
    }

    /// Returns a version as its site sends it.
    fn sent(&self, from: usize, version: &Arriving) -> Arriving {
        let document = Document::new(version.meta, b"\0k", &version.value);
        let history = nacre_xdcr::known_here(&document, &site(from)).history.unwrap();
        let stamped = attribute::stamp(document.xattrs(), &history, version.meta.cas).unwrap();
        let datatype = version.meta.datatype | nacre_types::DATATYPE_XATTR;
        let value = [&stamped[..], document.body()].concat();
        Arriving { meta: Meta { datatype, ..version.meta }, value }
    }

    /// Returns true if the arrival has changed something.
    fn arrive(&mut self, from: usize, version: &Arriving, to: usize) -> bool {
        let arriving = self.sent(from, version);
        let local = self.newest(to);
        let next = self.next_cas(to, arriving.meta.cas);
        let (site, lost) = (site(to), Seqno::ZERO);
        let outcome = receive(local.as_ref(), &arriving, &site, self.policy, next, lost).unwrap();
        let stored = match outcome {
            Outcome::Keep => return false,
            Outcome::Store(stored) => stored,
            Outcome::Ask => {
                self.asked += 1;
                let verdict = match self.verdicts[to] % 3 {
                    0 => Verdict::KeepLocal,
                    1 => Verdict::KeepRemote,
                    _ => Verdict::Merged(b"both".to_vec()),
                };
                settle(&local.unwrap(), &arriving, &verdict, &site, next).unwrap()
            }
        };
        self.sites[to].push(stored);
        true
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Write { site, deletes } => self.write(site, deletes),
            Event::Arrive { from, which, to } => {
                let had = self.sites[from].clone();
                if from != to && !had.is_empty() {
                    self.arrive(from, &had[which % had.len()], to);
                }
            }
        }
    }

    /// Lets each site send its newest version to the others until nothing changes. Returns the number of rounds.
    fn settle_down(&mut self, links: &[(usize, usize)]) -> usize {
        for round in 0..50 {
            let mut has_changed = false;
            for (from, to) in links {
                if let Some(version) = self.sites[*from].last().cloned() {
                    has_changed |= self.arrive(*from, &version, *to);
                }
            }
            if !has_changed {
                return round;
            }
        }
        panic!("it goes round in circles");
    }

    fn check(&self) {
        let shown = |site: usize| {
            self.sites[site].last().map(|version| {
                let sent = self.sent(site, version);
                let (attributes, body) = sent.split().unwrap();
                (sent.meta.cas, sent.meta.rev, sent.meta.kind, attributes.to_vec(), body.to_vec())
            })
        };
        for site in 1..self.sites.len() {
            assert_eq!(shown(0), shown(site), "sites 0 and {site}");
        }
    }
}

fn mesh(sites: usize) -> Vec<(usize, usize)> {
    (0..sites).flat_map(|a| (0..sites).map(move |b| (a, b))).filter(|(a, b)| a != b).collect()
}

fn ring(sites: usize) -> Vec<(usize, usize)> {
    (0..sites).map(|site| (site, (site + 1) % sites)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn sites_with_resolvers_converge_however_they_decide(
        events in events(4),
        sites in 2usize..=4,
        verdicts in proptest::collection::vec(any::<u8>(), 4),
        in_ring in any::<bool>(),
    ) {
        let mut world =
            World::new(sites, Policy::Resolver(Resolution::LastWriteWins), verdicts);
        let fits = |event: &&Event| match event {
            Event::Write { site, .. } => *site < sites,
            Event::Arrive { from, to, .. } => *from < sites && *to < sites,
        };
        events.iter().filter(fits).for_each(|event| world.happen(event));
        let asked = world.asked;
        let rounds = world.settle_down(&if in_ring { ring(sites) } else { mesh(sites) });
        world.check();
        prop_assert!(rounds <= 3 * sites, "{rounds} rounds");
        prop_assert!(world.asked - asked <= sites * sites, "{} questions", world.asked - asked);
    }

    #[test]
    fn a_rule_keeps_the_same_version_in_whatever_order_versions_arrive(
        events in events(3),
        rule in prop_oneof![Just(Resolution::Seqno), Just(Resolution::LastWriteWins)],
    ) {
        let mut world = World::new(3, Policy::Rule(rule), vec![0; 3]);
        events.iter().for_each(|event| world.happen(event));
        let all: Vec<(usize, Arriving)> = (0..3)
            .flat_map(|from| world.sites[from].clone().into_iter().map(move |it| (from, it)))
            .collect();
        let mut forwards = World::new(3, Policy::Rule(rule), vec![0; 3]);
        let mut backwards = World::new(3, Policy::Rule(rule), vec![0; 3]);
        for (from, version) in &all {
            forwards.arrive(*from, version, 0);
        }
        for (from, version) in all.iter().rev() {
            backwards.arrive(*from, version, 0);
        }
        // A repetition changes nothing.
        all.iter().for_each(|(from, version)| assert!(!forwards.arrive(*from, version, 0)));
        prop_assert_eq!(forwards.sites[0].last(), backwards.sites[0].last());
    }

    #[test]
    fn a_version_that_arrives_twice_changes_nothing(events in events(3)) {
        let policy = Policy::Resolver(Resolution::Seqno);
        let mut world = World::new(3, policy, vec![0, 1, 2]);
        for event in &events {
            world.happen(event);
            if let Event::Arrive { .. } = event {
                let stored: Vec<usize> = world.sites.iter().map(Vec::len).collect();
                world.happen(event);
                let after: Vec<usize> = world.sites.iter().map(Vec::len).collect();
                prop_assert_eq!(stored, after);
            }
        }
    }

    #[test]
    fn histories_obey_their_laws(events in events(4)) {
        let policy = Policy::Resolver(Resolution::Seqno);
        let mut world = World::new(4, policy, vec![2, 0, 1, 2]);
        events.iter().for_each(|event| world.happen(event));
        let mut known: Vec<History> = Vec::new();
        for (from, versions) in world.sites.iter().enumerate() {
            for version in versions {
                let document = Document::new(version.meta, b"\0k", &version.value);
                let history = nacre_xdcr::known_here(&document, &site(from)).history.unwrap();
                let text = attribute::encode(&history, version.meta.cas);
                prop_assert_eq!(
                    attribute::parse(&text).unwrap(),
                    (history.clone(), version.meta.cas)
                );
                known.push(history);
            }
        }
        for left in &known {
            prop_assert_eq!(left.relation(left), Relation::Equal);
            for right in &known {
                let turned = match left.relation(right) {
                    Relation::Contains => Relation::Contained,
                    Relation::Contained => Relation::Contains,
                    same => same,
                };
                prop_assert_eq!(right.relation(left), turned);
                let cas = Cas(1 << 40);
                let merge = left.merge(right, id(0), cas);
                prop_assert_eq!(&merge, &right.merge(left, id(0), cas));
                prop_assert!(merge.contains(left) && merge.contains(right));
                prop_assert!(left.written_over(id(1), cas).contains(left));
            }
        }
    }
}
