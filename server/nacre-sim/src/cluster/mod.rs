//! Nodes and the messages between them: whole nodes in one thread, one event at a time.
//!
//! Everything that happens is an [`Event`] at a point of true time: a task takes a step, bytes arrive, a node learns of
//! a decision. After the code of a node has run, its requests become events with random delays. The same random numbers
//! produce the same events.

mod agenda;
mod choices;
mod wires;

use crate::services::services;
use crate::world::Wishes;
use crate::{Chance, Clock, Disk, SimulatedRaft, World};
use agenda::Agenda;
use choices::Choices;
use foldhash::fast::FixedState;
use nacre_bucket::{Next, Signal, Task};
use nacre_cluster::{Cluster as Agreed, GROUP_DEFAULT, Member, Membership, Secret, ServiceName};
use nacre_node::{Error, Node};
use nacre_store::{Error as StoreError, Fault, Spaces};
use nacre_types::{NodeId, Vbid};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;
use wires::{Side, Wire, Wires};

/// A microsecond in nanoseconds.
pub const US: u64 = 1000;
/// A millisecond in nanoseconds.
pub const MS: u64 = 1000 * US;

/// Interval at which the simulated Raft checks which nodes reach each other.
const ELECTIONS_NS: u64 = 50 * MS;
/// Pause before a process that failed to start is started again.
const START_AGAIN_NS: u64 = 500 * MS;
/// Maximum number of messages kept for a stopped process: enough for some of each kind and sender.
const WAITING_MAX: usize = 64;
/// The user name of all clients.
pub const USER: &str = "admin";

/// A message between nodes, outside of connections.
struct PeerMessage {
    from: usize,
    to: usize,
    message: Vec<u8>,
}

/// An event. There are many, and they are moved frequently, so each is small.
enum Event {
    /// A task of a node takes a step.
    Step { node: u16, task: u64 },
    /// A connection between nodes is established.
    Connect { wire: u64 },
    /// The caller's end of a connection between nodes checks whether it has output.
    Look { wire: u64 },
    /// The session of a connection checks whether it has output.
    Resume { wire: u64 },
    /// Bytes arrive.
    Arrive { wire: u64, side: Side },
    /// An end of a connection notices its loss.
    Lost { wire: u64 },
    /// A message arrives.
    Deliver(Box<PeerMessage>),
    /// A node learns of decisions.
    Learn { node: u16, life: u32 },
    /// A process that failed to start is started again.
    Start { node: usize },
    /// Elections are due.
    Elections,
    /// An alarm goes off.
    Alarm(u64),
}

/// An event that concerns the clients.
pub enum ClientEvent {
    /// A client has received bytes.
    Received {
        /// The client's connection.
        wire: u64,
        /// The unconsumed bytes from before, and the new ones.
        bytes: Vec<u8>,
    },
    /// A client has lost a connection.
    Broken {
        /// The connection.
        wire: u64,
    },
    /// An alarm set by [`Cluster::set_alarm`].
    Alarm(u64),
}

/// The process of a node.
struct Process {
    node: Arc<Node>,
    world: Arc<World>,
    tasks: Vec<Running>,
}

impl Process {
    fn running(&mut self, number: u64) -> Option<&mut Running> {
        self.tasks.iter_mut().find(|running| running.number == number)
    }
}

struct Running {
    number: u64,
    task: Box<dyn Task>,
    /// The signal of the task.
    signal: Signal,
    /// Time of its next step.
    due_at: Option<u64>,
}

/// A machine with or without a running process.
struct Machine {
    disk: Arc<Disk>,
    clock: Clock,
    process: Option<Process>,
    /// Number of processes so far.
    life: u32,
    /// The agreed state known to the previous process.
    knew: Option<Arc<Agreed>>,
    /// The process is paused until this time.
    paused_until: u64,
    /// The node learns of no decision until this time.
    unaware_until: u64,
    /// Messages received without a running process: the senders keep them for the next one.
    waiting: Vec<PeerMessage>,
    /// Maximum delay of the flusher by the disk; the usual delay if 0.
    disk_delay_ns: u64,
}

/// Connectivity and quality of the network.
pub struct Network {
    /// `blocked[from][to]` is true if no message arrives.
    pub blocked: Vec<Vec<bool>>,
    /// True for nodes that clients cannot reach.
    pub closed: Vec<bool>,
    /// One message in this many between nodes is lost; none for 0.
    pub loss: u64,
    /// Minimum and maximum delay, in nanoseconds.
    pub delay_ns: (u64, u64),
    /// One delay in this many is `spike_ns`.
    pub spikes: u64,
    /// Length of a delay spike, in nanoseconds.
    pub spike_ns: u64,
    /// One transmission in this many arrives in two parts, the second up to `split_ns` later; none for 0.
    pub splits: u64,
    /// Maximum delay of the second part, in nanoseconds.
    pub split_ns: u64,
    /// Maximum lag in learning decisions, in nanoseconds. Most nodes learn of one decision in four this much later than of
    /// messages, and every other time a node acts on a decision for this long before it learns more.
    pub lag_ns: u64,
}

/// See the [module](self).
pub struct Cluster {
    now: u64,
    agenda: Agenda<Event>,
    hash: u64,
    machines: Vec<Machine>,
    wires: Wires,
    tasks_seen: u64,
    /// Buffer for the tasks that are due soon.
    due: Vec<u64>,
    chance: Chance,
    choices: Choices,
    /// A decision that violates the rules, and the reason.
    pub broken_choice: Option<String>,
    /// The agreement of the nodes.
    pub raft: Arc<SimulatedRaft>,
    /// The network between the nodes.
    pub network: Network,
}

impl Cluster {
    /// Creates nodes with these clocks, which have agreed only on the members.
    ///
    /// # Panics
    /// Panics if a node fails to start.
    pub fn new(clocks: &[Clock], mut chance: Chance, lost_answers: u64) -> Cluster {
        let count = clocks.len();
        let raft = SimulatedRaft::new(count, chance.fork(), lost_answers);
        let disks: Vec<Arc<Disk>> = clocks.iter().map(|_| Arc::default()).collect();
        let mut agreed = Agreed::new("c".repeat(32));
        agreed.secret = Secret::new([7; 32]);
        for index in 0..count {
            let member = Member {
                uuid: format!("{index:032}"),
                endpoints: World::endpoints(index),
                group: GROUP_DEFAULT.into(),
                services: ServiceName::FIRST.into(),
                membership: Membership::Active,
                alternate: None,
            };
            let change = nacre_cluster::Change::Nodes(nacre_cluster::NodeChange::PutNode {
                id: id(index),
                member,
            });
            agreed.apply(&change).expect("a node may come");
        }
        let admin = serde_json::to_vec(&[admin()]).expect("a user is plain data");
        let cluster = serde_json::to_vec(&agreed).expect("the agreed state is plain data");
        for (index, disk) in disks.iter().enumerate() {
            let identity = serde_json::json!({"id": index + 1, "uuid": format!("{index:032}")});
            let identity = serde_json::to_vec(&identity).expect("plain data");
            let rows = [("identity", &identity), ("cluster", &cluster), ("users", &admin)];
            let rows = rows.map(|(key, row)| (key.as_bytes().to_vec(), Some(row.clone())));
            let space = disk.spaces().open("node").expect("memory");
            space.apply(&rows, true).expect("memory");
        }
        let network = Network {
            blocked: vec![vec![false; count]; count],
            closed: vec![false; count],
            loss: 0,
            delay_ns: (50 * US, 500 * US),
            spikes: 0,
            spike_ns: 0,
            splits: 0,
            split_ns: 0,
            lag_ns: 0,
        };
        let machine = |(disk, clock): (&Arc<Disk>, &Clock)| Machine {
            disk: Arc::clone(disk),
            clock: *clock,
            process: None,
            life: 0,
            knew: None,
            paused_until: 0,
            unaware_until: 0,
            waiting: Vec::new(),
            disk_delay_ns: 0,
        };
        let mut cluster = Cluster {
            now: 0,
            agenda: Agenda::default(),
            hash: 0,
            machines: disks.iter().zip(clocks).map(machine).collect(),
            wires: Wires::default(),
            tasks_seen: 0,
            due: Vec::new(),
            chance,
            choices: Choices::default(),
            broken_choice: None,
            raft,
            network,
        };
        (0..count).for_each(|index| cluster.start(index));
        cluster.at(0, Event::Elections);
        cluster
    }

    /// Returns true time in nanoseconds since the beginning.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns a hash of all events so far, which is the same for the same seed.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the number of events so far.
    pub fn event_count(&self) -> u64 {
        self.agenda.taken()
    }

    /// Returns the number of nodes, running or not.
    pub fn len(&self) -> usize {
        self.machines.len()
    }

    /// Always returns false.
    pub fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }

    /// Returns the process of a node if it is running.
    pub fn node(&self, index: usize) -> Option<&Arc<Node>> {
        self.machines[index].process.as_ref().map(|process| &process.node)
    }

    /// Iterates over the running nodes.
    pub fn nodes(&self) -> impl Iterator<Item = (usize, &Arc<Node>)> {
        (0..self.len()).filter_map(|index| Some((index, self.node(index)?)))
    }

    /// Returns the newest agreed state on which any node has acted, including stopped nodes.
    pub fn newest(&self) -> Option<Arc<Agreed>> {
        let knew = self.machines.iter().filter_map(|machine| machine.knew.clone());
        let known = self.nodes().map(|(_, node)| node.cluster());
        knew.chain(known).max_by_key(|agreed| agreed.rev)
    }

    /// Returns true if a node is running and not paused.
    pub fn works(&self, index: usize) -> bool {
        let machine = &self.machines[index];
        machine.process.is_some() && machine.paused_until <= self.now
    }

    /// Returns the disk of a node, which outlives its processes.
    pub fn disk(&self, index: usize) -> &Disk {
        &self.machines[index].disk
    }

    /// Returns the number of processes that a node has had.
    pub fn life(&self, index: usize) -> u32 {
        self.machines[index].life
    }

    /// Returns a node's clocks, if it is running.
    pub fn clock_of(&self, index: usize) -> Option<nacre_types::Now> {
        let process = self.machines[index].process.as_ref()?;
        process.world.set_time(self.now);
        Some(process.node.now())
    }

    /// Returns the agreed state as known to the leader, or else to any running node.
    pub fn agreed(&self) -> Option<Arc<Agreed>> {
        let leader = self.raft.leader().and_then(|leader| self.node(leader));
        let node = leader.or_else(|| self.nodes().next().map(|(_, node)| node))?;
        Some(node.cluster())
    }

    /// Proposes a change on a running node that can decide.
    ///
    /// # Errors
    /// The reason why the change is not made, or why its outcome is unknown.
    pub fn change(&mut self, change: &nacre_cluster::Change) -> Result<(), Error> {
        let able =
            (0..self.len()).find(|index| self.works(*index) && self.raft.leader_reaches(*index));
        let unavailable = || Error::Unavailable("no node is able to decide".into());
        let index = able.ok_or_else(unavailable)?;
        let node = Arc::clone(self.enter(index).ok_or_else(unavailable)?);
        let outcome = node.change(change).map(drop);
        self.settle(index);
        outcome
    }

    // Faults.

    /// Starts the process of a node from its disk; retries later if that fails.
    ///
    /// # Panics
    /// Panics if the process fails to start for an unexpected reason.
    pub fn start(&mut self, index: usize) {
        if self.machines[index].process.is_some() {
            return;
        }
        let chance = self.chance.fork();
        let machine = &mut self.machines[index];
        machine.life += 1;
        machine.paused_until = 0;
        let world = World::new(index, &machine.disk, machine.clock, self.now, chance);
        let node =
            match Node::open_with(Arc::clone(&world) as _, World::endpoints(index), services()) {
                Err(Error::Store(
                    StoreError::Full | StoreError::Exhausted { .. } | StoreError::Io { .. },
                )) => {
                    return self.at(START_AGAIN_NS, Event::Start { node: index });
                }
                node => node.expect("a node starts with what it has stored"),
            };
        node.agree_by(self.raft.agreement(index));
        let process = Process { node: Arc::clone(&node), world, tasks: Vec::new() };
        machine.process = Some(process);
        node.orchestrate();
        self.settle(index);
        self.learn_soon(index);
        for message in std::mem::take(&mut self.machines[index].waiting) {
            self.at(self.network.delay_ns.1, Event::Deliver(Box::new(message)));
        }
    }

    /// Kills the process of a node. With `tears`, in the middle of a commit whose first half is stored.
    pub fn kill(&mut self, index: usize, tears: bool) {
        if tears && self.machines[index].process.is_some() {
            self.machines[index].disk.inject(Some(Fault::Torn));
            self.enter(index);
            let process = self.machines[index].process.as_mut();
            let tasks = process.into_iter().flat_map(|process| &mut process.tasks);
            for running in tasks.filter(|running| running.task.name() == "flusher") {
                running.task.step();
            }
            self.machines[index].disk.inject(None);
        }
        if let Some(process) = self.machines[index].process.take() {
            // The process no longer runs; this only prevents its remains from connecting again.
            process.node.stop();
            drop(process.tasks);
            self.end(index, process.node);
        }
    }

    /// Stops the process of a node cleanly: all writes are stored if the disk works.
    pub fn stop(&mut self, index: usize) {
        self.enter(index);
        let Some(mut process) = self.machines[index].process.take() else { return };
        process.node.stop();
        let mut tasks: Vec<_> = process.tasks.drain(..).map(|running| running.task).collect();
        tasks.extend(process.world.take_wishes().unwrap_or_default().tasks);
        for mut task in tasks {
            // Tasks end when their node stops; tasks that wait for another event are dropped.
            while task.step() == Next::Again {}
        }
        // Fails on a broken disk, which the next process detects.
        process.node.mark_clean().ok();
        self.end(index, process.node);
    }

    fn end(&mut self, index: usize, node: Arc<Node>) {
        self.raft.forget(index);
        self.machines[index].knew = Some(node.cluster());
        let mut lost = Vec::new();
        self.wires.retain(|wire, known| {
            if known.from == Some(index) {
                return false;
            }
            if known.to == index {
                lost.push(wire);
                known.session = None;
            }
            true
        });
        for wire in lost {
            let delay = self.delay();
            self.at(delay, Event::Lost { wire });
        }
        drop(node);
    }

    /// Pauses the process of a node.
    pub fn pause(&mut self, index: usize, for_ns: u64) {
        self.machines[index].paused_until = self.now + for_ns;
    }

    /// Injects a fault into the disk of a node, or repairs it.
    pub fn break_disk(&mut self, index: usize, fault: Option<Fault>) {
        self.machines[index].disk.inject(fault);
    }

    /// Sets the maximum delay of commits on the disk of a node.
    pub fn slow_disk(&mut self, index: usize, delay_ns: u64) {
        self.machines[index].disk_delay_ns = delay_ns;
    }

    /// Steps the wall clock of a node.
    pub fn step_wall_clock(&mut self, index: usize, by_ns: i64) {
        self.machines[index].clock.skew_ns += by_ns;
        if let Some(process) = &self.machines[index].process {
            process.world.step_wall_clock(by_ns);
        }
    }

    /// Schedules a [`ClientEvent::Alarm`] in `in_ns` nanoseconds.
    pub fn set_alarm(&mut self, in_ns: u64, alarm: u64) {
        self.at(in_ns, Event::Alarm(alarm));
    }

    // Events.

    /// Processes events until one concerns the clients, or until the time `until`.
    pub fn next(&mut self, until: u64) -> Option<ClientEvent> {
        loop {
            let Some((at, number, event)) = self.agenda.next(until) else {
                self.now = until;
                return None;
            };
            self.now = at;
            self.count(at ^ number << 40);
            if let Some(happening) = self.happen(event) {
                return Some(happening);
            }
        }
    }

    fn count(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn at(&mut self, in_ns: u64, event: Event) {
        self.agenda.add(self.now + in_ns, event);
    }

    fn delay(&mut self) -> u64 {
        let Network { delay_ns: (low, high), spikes, spike_ns, .. } = self.network;
        if self.chance.once_in(spikes) {
            return self.chance.between(low, spike_ns.max(low));
        }
        self.chance.between(low, high)
    }

    /// Returns the time to which an event of a paused node is postponed.
    fn postponed(&self, node: usize) -> Option<u64> {
        let machine = &self.machines[node];
        (machine.paused_until > self.now).then(|| machine.paused_until - self.now)
    }

    fn happen(&mut self, event: Event) -> Option<ClientEvent> {
        let concerned = match &event {
            Event::Step { node, .. } | Event::Learn { node, .. } => Some((*node).into()),
            Event::Deliver(message) => Some(message.to),
            Event::Look { wire } => self.wires.get(*wire).and_then(|wire| wire.from),
            Event::Resume { wire } | Event::Arrive { wire, side: Side::Server } => {
                self.wires.get(*wire).map(|wire| wire.to)
            }
            Event::Arrive { wire, side: Side::Caller } => {
                self.wires.get(*wire).and_then(|wire| wire.from)
            }
            Event::Connect { .. }
            | Event::Lost { .. }
            | Event::Start { .. }
            | Event::Elections
            | Event::Alarm(_) => None,
        };
        if let Some(in_ns) = concerned.and_then(|node| self.postponed(node)) {
            self.at(in_ns, event);
            return None;
        }
        match event {
            Event::Step { node, task } => self.step(node.into(), task),
            Event::Connect { wire } => self.make(wire),
            Event::Look { wire } => {
                self.wires.get_mut(wire)?.woken.link = false;
                self.poll_link(wire);
            }
            Event::Resume { wire } => {
                self.wires.get_mut(wire)?.woken.session = false;
                return self.serve(wire, true);
            }
            Event::Arrive { wire, side } => return self.arrive(wire, side),
            Event::Lost { wire } => return self.lose(wire),
            Event::Deliver(message) if self.machines[message.to].process.is_none() => {
                let waiting = &mut self.machines[message.to].waiting;
                if waiting.len() < WAITING_MAX {
                    waiting.push(*message);
                }
            }
            Event::Deliver(message) => {
                let PeerMessage { from, to, message } = *message;
                if self.raft.leader() == Some(to) {
                    self.choices.record(to, from, &message);
                }
                if let Some(node) = self.enter(to).cloned() {
                    node.receive(id(from), &message);
                    self.settle(to);
                }
            }
            Event::Learn { node, life } => self.learn(node.into(), life),
            Event::Start { node } => self.start(node),
            Event::Elections => self.hold_elections(),
            Event::Alarm(alarm) => return Some(ClientEvent::Alarm(alarm)),
        }
        None
    }

    /// Returns the node after setting its clocks to the current time.
    fn enter(&mut self, index: usize) -> Option<&Arc<Node>> {
        let process = self.machines[index].process.as_ref()?;
        process.world.set_time(self.now);
        Some(&process.node)
    }

    /// Turns a node's requests into events after its code has run.
    fn settle(&mut self, index: usize) {
        let Some(process) = &mut self.machines[index].process else { return };
        let mut wishes = process.world.take_wishes();
        let known = process.tasks.len();
        let mut due = std::mem::take(&mut self.due);
        for task in wishes.iter_mut().flat_map(|wishes| wishes.tasks.drain(..)) {
            self.tasks_seen += 1;
            let signal = task.signal().clone();
            process.tasks.push(Running { number: self.tasks_seen, task, signal, due_at: None });
            due.push(self.tasks_seen);
        }
        for (index, running) in process.tasks.iter().enumerate() {
            if running.signal.take() && index < known {
                due.push(running.number);
            }
        }
        for task in due.drain(..) {
            self.step_soon(index, task);
        }
        self.due = due;
        if let Some(wishes) = wishes {
            self.fulfil(index, wishes);
        }
        self.see_news(Some(index));
    }

    /// Checks new decisions, the last of which node `by` has proposed, and schedules their delivery. Without `by`,
    /// fewer checks are possible.
    fn see_news(&mut self, by: Option<usize>) {
        if self.raft.take_news() {
            let decisions = self.raft.decisions_after(self.choices.judged());
            let machines = &self.machines;
            let end = |index: usize, bucket: &str, vbid: u16| {
                let bucket = machines[index].process.as_ref()?.node.bucket(bucket)?;
                Some(bucket.vbucket(Vbid(vbid))?.high_seqno().0)
            };
            let broken = self.choices.judge(by, &decisions, end);
            self.broken_choice = self.broken_choice.take().or(broken);
            self.decide_when_to_learn();
        }
    }

    /// Turns a node's requests to other nodes into events.
    fn fulfil(&mut self, index: usize, wishes: Wishes) {
        for (to, mut link) in wishes.links {
            let wire = self.wires.next();
            if let Some(process) = &self.machines[index].process {
                link.attach(process.world.waiter(wire));
            }
            self.wires.push(Wire::new(Some(index), to.into(), Some(link), None));
            let delay = self.delay();
            self.at(delay, Event::Connect { wire });
        }
        for (to, message) in wishes.sent {
            let to = self::index(to);
            let loss = self.network.loss;
            if !self.network.blocked[index][to] && !self.chance.once_in(loss) {
                self.count(FixedState::with_seed(0).hash_one(&message));
                // Messages arrive in order: each takes the maximum delay.
                let delay = self.network.delay_ns.1;
                self.at(delay, Event::Deliver(Box::new(PeerMessage { from: index, to, message })));
            }
        }
        for wire in wishes.woken {
            self.wake(wire, index);
        }
    }

    fn step_soon(&mut self, node: usize, task: u64) {
        let disk_delay = self.machines[node].disk_delay_ns;
        let process = self.machines[node].process.as_mut();
        let Some(running) = process.and_then(|process| process.running(task)) else {
            return;
        };
        let waits = running.task.name() == "flusher" && disk_delay > 0;
        let high = if waits { disk_delay } else { 200 * US };
        let in_ns = self.chance.between(1, high);
        if running.due_at.is_none_or(|due_at| due_at > self.now + in_ns) {
            running.due_at = Some(self.now + in_ns);
            self.at(in_ns, Event::Step { node: node as u16, task });
        }
    }

    fn step(&mut self, node: usize, task: u64) {
        let now = self.now;
        self.enter(node);
        let Some(process) = &mut self.machines[node].process else { return };
        let Some(running) = process.running(task) else { return };
        // A later event may have been due earlier than the task's current due time.
        if running.due_at.is_none_or(|due_at| due_at > now) {
            return;
        }
        running.due_at = None;
        match running.task.step() {
            Next::Again => self.step_soon(node, task),
            Next::Wait => {}
            Next::After(Duration::ZERO) => self.step_soon(node, task),
            Next::After(pause) => {
                let in_ns = pause.as_nanos() as u64;
                running.due_at = Some(now + in_ns);
                self.at(in_ns, Event::Step { node: node as u16, task });
            }
            Next::Done => process.tasks.retain(|running| running.number != task),
        }
        self.settle(node);
    }

    // Agreement.

    fn reaches(&self) -> Vec<Vec<bool>> {
        let works: Vec<bool> = (0..self.len()).map(|node| self.works(node)).collect();
        let reaches = |one: usize, other: usize| {
            let blocked = &self.network.blocked;
            works[one] && works[other] && !blocked[one][other] && !blocked[other][one]
        };
        let row = |one| (0..self.len()).map(|other| reaches(one, other)).collect();
        (0..self.len()).map(row).collect()
    }

    fn hold_elections(&mut self) {
        self.at(ELECTIONS_NS, Event::Elections);
        let reaches = self.reaches();
        let decided = self.raft.decided();
        let lags: Vec<Option<bool>> = (0..self.len())
            .map(|index| Some(SimulatedRaft::applied(self.node(index)?) < decided))
            .collect();
        let knows_ns = |index: usize| match lags[index] {
            Some(false) => self.clock_of(index).map(|now| now.monotonic_ns),
            _ => None,
        };
        let elected = self.raft.hold_elections(self.now, reaches, knows_ns);
        self.count(elected.map_or(0, |leader| leader as u64 + 1));
        self.see_news(None);
        for (index, lags) in lags.into_iter().enumerate() {
            if lags == Some(true) && self.works(index) {
                self.learn_soon(index);
            }
        }
    }

    fn decide_when_to_learn(&mut self) {
        let lag_ns = self.network.lag_ns;
        let is_late = lag_ns > 0 && self.chance.once_in(4);
        for node in 0..self.len() {
            if is_late && !self.chance.once_in(4) {
                self.machines[node].unaware_until = self.now + self.chance.between(0, lag_ns);
            }
            self.learn_soon(node);
        }
    }

    fn learn_soon(&mut self, node: usize) {
        let life = self.machines[node].life;
        let delay = self.delay();
        self.at(delay, Event::Learn { node: node as u16, life });
    }

    fn learn(&mut self, index: usize, life: u32) {
        let machine = &self.machines[index];
        // A node that lags behind is reminded at the next check.
        let is_unaware = machine.unaware_until > self.now;
        if machine.life != life || is_unaware || !self.raft.leader_reaches(index) {
            return;
        }
        let Some(node) = self.enter(index).cloned() else { return };
        let behind = self.raft.decided() - SimulatedRaft::applied(&node);
        let lag_ns = self.network.lag_ns;
        let leader = self.raft.leader().filter(|leader| *leader != index);
        match leader.and_then(|leader| self.node(leader).cloned()) {
            // The node acts on an intermediate decision for a while.
            _ if lag_ns > 0 && self.chance.once_in(2) => {
                self.machines[index].unaware_until = self.now + self.chance.between(0, lag_ns);
                self.raft.deliver(&node, 1).ok();
            }
            // The node lags so far behind that it receives the whole state.
            Some(leader) if behind > 4 && self.chance.once_in(2) => {
                SimulatedRaft::install(&leader, &node)
            }
            _ => {
                let count = self.chance.between(1, 3) as usize;
                self.raft.deliver(&node, count).ok();
            }
        }
        self.settle(index);
        if SimulatedRaft::applied(&node) < self.raft.decided() {
            self.learn_soon(index);
        }
    }
}

impl Drop for Cluster {
    /// A node and its world reference each other until the node stops.
    fn drop(&mut self) {
        (0..self.machines.len()).for_each(|index| self.kill(index, false));
    }
}

/// Returns the ID of a node.
pub fn id(index: usize) -> NodeId {
    NodeId(index as u64 + 1)
}

/// Returns the index of a node.
pub fn index(id: NodeId) -> usize {
    id.0 as usize - 1
}

/// Returns the only user, created once because that is slow.
fn admin() -> nacre_auth::User {
    use std::sync::OnceLock;
    static ADMIN: OnceLock<nacre_auth::User> = OnceLock::new();
    let make = || nacre_auth::User::new(USER, "password", vec![nacre_auth::Role::admin()], [1; 32]);
    ADMIN.get_or_init(make).clone()
}
