//! One run: the events of devices and hub, determined by a seed.

use super::ledger::{EditId, Ledger, body_of, edits_of};
use super::link::Link;
use super::site::{PATHS, Site, SiteClock};
use crate::chance::Chance;
use nacre::{Conflict, ConflictMode, Hello, LineId, Notice, SyncOptions, SyncSession, Verdict};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

const SECOND_NS: u64 = 1_000_000_000;
/// Documents of each collection.
const KEYS: u64 = 6;
/// Maximum number of steps after which all sites must be equal.
const HEALING_STEPS: u64 = 4000;
const LINE: LineId = LineId(0);

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Devices at the end.
    pub devices: u64,
    /// Edits.
    pub edits: u64,
    /// Resolved conflicts.
    pub conflicts: u64,
    /// Parked versions.
    pub parked: u64,
    /// Kills of the hub, and of devices.
    pub kills: (u64, u64),
    /// Copied folders.
    pub copies: u64,
    /// Connections.
    pub connections: u64,
    /// Comparisons of a vBucket because the hub had lost versions.
    pub losses: u64,
    /// Changes of clocks.
    pub jumps: u64,
}

/// The sum of all runs.
#[derive(Default)]
pub struct Total {
    runs: u64,
    sum: Summary,
}

impl Total {
    /// Adds a run.
    pub fn add(&mut self, summary: &Summary) {
        self.runs += 1;
        let sum = &mut self.sum;
        sum.devices += summary.devices;
        sum.edits += summary.edits;
        sum.conflicts += summary.conflicts;
        sum.parked += summary.parked;
        sum.kills.0 += summary.kills.0;
        sum.kills.1 += summary.kills.1;
        sum.copies += summary.copies;
        sum.connections += summary.connections;
        sum.losses += summary.losses;
        sum.jumps += summary.jumps;
    }

    /// Returns true if each kind of event has happened.
    pub fn has_everything(&self) -> bool {
        let Summary { edits, conflicts, parked, kills, copies, connections, losses, jumps, .. } =
            self.sum;
        [edits, conflicts, parked, kills.0, kills.1, copies, connections, losses, jumps]
            .iter()
            .all(|count| *count > 0)
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary {
            devices,
            edits,
            conflicts,
            parked,
            kills,
            copies,
            connections,
            losses,
            jumps,
        } = self.sum;
        write!(
            f,
            "{} seeds: {devices} devices, {edits} edits, {conflicts} conflicts, {parked} parked, {connections} connections; {} kills of hubs ({losses} vBuckets with a loss), {} of devices, {copies} copies, {jumps} clocks set",
            self.runs, kills.0, kills.1
        )
    }
}

/// A device.
struct Device {
    site: Site,
    /// `None` only while the process is replaced.
    sync: Option<SyncSession>,
    link: Option<Link>,
}

impl Device {
    fn new(site: Site, mode: ConflictMode) -> Device {
        let sync = Some(begin(&site, mode));
        Device { site, sync, link: None }
    }

    fn sync(&mut self) -> &mut SyncSession {
        self.sync.as_mut().expect("the process runs")
    }

    fn disconnect(&mut self) {
        if self.link.take().is_some() {
            self.sync().disconnected(LINE);
        }
    }
}

fn begin(site: &Site, mode: ConflictMode) -> SyncSession {
    let options = SyncOptions::new("").collections(PATHS).device(site.name.clone());
    let options = match mode {
        ConflictMode::Client => options.resolver(join),
        mode => options.conflicts(mode),
    };
    site.db().sync_session(&options).expect("a session begins")
}

/// Joins the edits of both sides; a document that one side has deleted stays.
fn join(conflict: &Conflict<'_>) -> Verdict {
    let Conflict { device, hub, .. } = conflict;
    match (device.is_deleted, hub.is_deleted) {
        (true, true) => Verdict::KeepRemote,
        (true, false) => Verdict::KeepRemote,
        (false, true) => Verdict::KeepLocal,
        (false, false) => {
            let both = edits_of(&device.body).into_iter().chain(edits_of(&hub.body));
            Verdict::Merged(body_of(&both.collect()))
        }
    }
}

/// A run.
pub struct Simulation {
    chance: Chance,
    mode: ConflictMode,
    clock: Arc<SiteClock>,
    place: tempfile::TempDir,
    hub: Site,
    devices: Vec<Device>,
    ledger: Ledger,
    summary: Summary,
    traces: bool,
}

impl Simulation {
    /// Creates a run that begins with a number of devices within `range`.
    pub fn new(seed: u64, range: (u64, u64)) -> Simulation {
        let mut chance = Chance::new(seed);
        let mode = if chance.once_in(3) { ConflictMode::Client } else { ConflictMode::Log };
        // In memory, so that a run takes milliseconds.
        let memory = std::path::Path::new("/dev/shm");
        let place = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let place = place.expect("there is room for a folder");
        let tick_ns = chance.one_of(&[1, SECOND_NS, 20 * SECOND_NS]);
        let clock = Arc::new(SiteClock { tick_ns, ..SiteClock::default() });
        let hub = Site::new("hub", chance.one_of(&[1, 3, 8]), place.path(), Arc::clone(&clock));
        let count = chance.between(range.0, range.1);
        let (devices, ledger, summary) = (Vec::new(), Ledger::default(), Summary::default());
        let mut simulation =
            Simulation { chance, mode, clock, place, hub, devices, ledger, summary, traces: false };
        for _ in 0..count {
            let name = format!("device{}", simulation.devices.len());
            let vbuckets = simulation.chance.one_of(&[1, 2, 4]);
            let clock = simulation.clock_of_device();
            let site = Site::new(&name, vbuckets, simulation.place.path(), clock);
            simulation.devices.push(Device::new(site, mode));
        }
        simulation
    }

    /// Sets whether the run prints its events.
    pub fn trace(&mut self, traces: bool) {
        self.traces = traces;
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.traces {
            println!("{:>12} {}", self.now_ns() / 1000, what());
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns.load(Ordering::Relaxed)
    }

    fn clock_of_device(&mut self) -> Arc<SiteClock> {
        let SiteClock { now_ns, tick_ns, .. } = &*self.clock;
        let (now_ns, tick_ns) = (Arc::clone(now_ns), *tick_ns);
        // The hub begins at 0.
        let random = Mutex::new(Chance::new((self.devices.len() as u64 + 1) << 32));
        let clock = SiteClock { now_ns, tick_ns, random, ..SiteClock::default() };
        let skew = self.skew();
        clock.skew_s.store(skew, Ordering::Relaxed);
        Arc::new(clock)
    }

    /// Returns the error of a clock, in seconds: mostly little, sometimes weeks.
    fn skew(&mut self) -> i64 {
        match self.chance.below(8) {
            0 => self.chance.between(0, 30 * 86_400) as i64,
            1 => -(self.chance.between(0, 400 * 86_400) as i64),
            2 => self.chance.between(0, 7200) as i64 - 3600,
            _ => self.chance.between(0, 4) as i64 - 2,
        }
    }

    /// Runs the simulation to its end.
    ///
    /// # Panics
    /// Panics if a property is violated.
    pub fn run(mut self) -> Summary {
        let steps = self.chance.between(100, 500);
        for _ in 0..steps {
            self.step();
            self.pump();
        }
        self.heal();
        self.check();
        self.summary
    }

    fn pass(&mut self, most_ns: u64) {
        let passed = self.chance.between(1_000_000, most_ns);
        self.clock.now_ns.fetch_add(passed, Ordering::Relaxed);
    }

    fn document(&mut self) -> (usize, String) {
        let collection = self.chance.below(PATHS.len() as u64) as usize;
        (collection, format!("k{}", self.chance.below(KEYS)))
    }

    fn step(&mut self) {
        self.pass(SECOND_NS / 2);
        let index = self.chance.below(self.devices.len() as u64) as usize;
        match self.chance.below(100) {
            0..40 => {
                let ((collection, key), deletes) = (self.document(), self.chance.once_in(6));
                self.devices[index].site.edit((collection, &key), deletes, &mut self.ledger);
                self.say(|| self.ledger.last());
            }
            40..55 => {
                let ((collection, key), deletes) = (self.document(), self.chance.once_in(6));
                self.hub.edit((collection, &key), deletes, &mut self.ledger);
                self.say(|| self.ledger.last());
            }
            55..75 => self.connect(index),
            75..82 => self.devices[index].disconnect(),
            82..87 => self.devices[index].site.flush(),
            87..90 => self.hub.flush(),
            90..93 => self.kill_device(index),
            93..94 => self.kill_hub(),
            94..96 => {
                let skew = self.skew();
                self.devices[index].site.clock.skew_s.store(skew, Ordering::Relaxed);
                self.summary.jumps += 1;
                self.say(|| format!("the clock of {index} is {skew} s ahead"));
            }
            96..97 if self.devices.len() < 20 => self.copy(index),
            // The device sleeps.
            97..98 => self.pass(3600 * SECOND_NS),
            _ => {}
        }
    }

    fn hello(&self) -> Hello {
        use nacre::Clock;
        Hello {
            cluster_uuid: "cluster".into(),
            bucket: "default".into(),
            bucket_uuid: "bucket".into(),
            vbuckets: self.hub.db().vbucket_count(),
            by_time: false,
            unix_ns: self.clock.now().unix_ns,
            nodes: Vec::new(),
        }
    }

    fn connect(&mut self, index: usize) {
        if self.devices[index].link.is_some() {
            return;
        }
        let session = self.hub.db().session(|| {}).expect("the hub takes sessions");
        let delay_ns = self.chance.one_of(&[0, SECOND_NS / 100, SECOND_NS]);
        let hello = self.hello();
        let device = &mut self.devices[index];
        device.sync().connected(LINE, &hello).expect("the hub is the same");
        device.link = Some(Link::new(session, delay_ns));
        self.summary.connections += 1;
        self.say(|| format!("device {index} connects"));
    }

    fn kill_device(&mut self, index: usize) {
        self.say(|| format!("device {index} is killed"));
        let device = &mut self.devices[index];
        (device.link, device.sync) = (None, None);
        device.site.kill(&mut self.ledger);
        device.sync = Some(begin(&device.site, self.mode));
        self.summary.kills.1 += 1;
    }

    fn kill_hub(&mut self) {
        self.say(|| "the hub is killed".into());
        self.devices.iter_mut().for_each(Device::disconnect);
        self.hub.kill(&mut self.ledger);
        self.summary.kills.0 += 1;
    }

    fn copy(&mut self, index: usize) {
        let name = format!("device{}", self.devices.len());
        self.say(|| format!("{name} is a copy of {index}"));
        let clock = self.clock_of_device();
        let site = self.devices[index].site.copied_as(&name, clock);
        self.devices.push(Device::new(site, self.mode));
        self.summary.copies += 1;
    }

    /// Moves bytes.
    fn pump(&mut self) {
        for index in 0..self.devices.len() {
            let now_ns = self.now_ns();
            let chance = &mut self.chance;
            let Device { site, sync, link } = &mut self.devices[index];
            let sync = sync.as_mut().expect("the process runs");
            site.db().poll().expect("the database is open");
            sync.advance().expect("the device can store");
            let mut failure = None;
            if let Some(link) = link {
                let output = sync.output(LINE).map(std::mem::take).unwrap_or_default();
                link.send_to_hub(output, now_ns, chance);
                let mut answers = Vec::new();
                while let Some(bytes) = link.at_hub(now_ns) {
                    let received = link.session.receive(&bytes, &mut answers);
                    failure = failure.or(received.err().map(|error| error.to_string()));
                }
                let polled = link.session.poll(&mut answers);
                failure = failure.or(polled.err().map(|error| error.to_string()));
                link.send_to_device(answers, now_ns, chance);
                while let Some(bytes) = link.at_device(now_ns) {
                    if let Err(error) = sync.receive(LINE, &bytes) {
                        assert!(error.is_temporary(), "device {index}: {error}");
                        failure = Some(error.to_string());
                        break;
                    }
                }
            }
            while let Some(notice) = sync.next_notice() {
                match &notice {
                    Notice::Conflict { .. } => self.summary.conflicts += 1,
                    Notice::Again { lost: true } => self.summary.losses += 1,
                    _ => {}
                }
                if self.traces {
                    println!("{:>12} device {index}: {notice:?}", now_ns / 1000);
                }
            }
            site.look();
            if let Some(failure) = failure {
                self.say(|| format!("device {index}: {failure}"));
                self.devices[index].disconnect();
            }
        }
        self.hub.db().poll().expect("the database is open");
    }

    /// Connects all devices and waits until they report that they are in step.
    fn heal(&mut self) {
        self.say(|| "healing".into());
        let mut quiet = 0;
        for _ in 0..HEALING_STEPS {
            for index in 0..self.devices.len() {
                self.connect(index);
                self.devices[index].sync().ask();
            }
            // Transfers the answers to the question, and what follows from them.
            for _ in 0..8 {
                self.pass(SECOND_NS / 2);
                self.pump();
            }
            let all = self.devices.iter_mut().all(|device| device.sync().is_in_step());
            quiet = if all { quiet + 1 } else { 0 };
            if quiet > 2 {
                return;
            }
        }
        let states = self.devices.iter_mut().map(|device| device.sync().status());
        panic!("not in step: {:?}", states.collect::<Vec<_>>());
    }

    fn check(&mut self) {
        let mut there: BTreeSet<EditId> = BTreeSet::new();
        for collection in 0..PATHS.len() {
            for key in (0..KEYS).map(|key| format!("k{key}")) {
                let hubs = self.hub.read(collection, &key);
                there.extend(hubs.iter().flat_map(|(edits, _)| edits.iter().copied()));
                for device in &self.devices {
                    let found = device.site.read(collection, &key);
                    assert_eq!(found, hubs, "{collection}/{key} at {}", device.site.name);
                }
            }
        }
        for device in &self.devices {
            let parked = device.site.parked();
            self.say(|| format!("{} has parked {parked:?}", device.site.name));
            self.summary.parked += parked.len() as u64;
            there.extend(parked);
        }
        let lost = self.ledger.lost(&there);
        assert!(lost.is_empty(), "lost: {lost:?}");
        self.summary.edits = self.ledger.len() as u64;
        self.summary.devices = self.devices.len() as u64;
    }
}
