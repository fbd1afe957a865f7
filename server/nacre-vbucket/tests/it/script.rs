//! Scripts: one command per line is the input, and the transcript is the snapshot.
//!
//! ```text
//! set k {"a":1}              set add replace append prepend KEY VALUE [cas=#N] [exp=SECONDS] [keep]
//! get k                      get meta del touch lock unlock incr decr KEY …
//! durable set k 1            makes a durable write that must be stored within 10 seconds
//! wait 16                    advances both clocks, in seconds
//! persist                    marks everything as stored
//! complete  expire           ends durable writes; expires documents
//! purge SECONDS              erases older tombstones
//! begins NAME  ends NAME     records an event of a scope or a collection
//! copies 1,2,0 1,3,2         sets the nodes of the copies, with this one on node 1: one list or two, 0 for no copy
//! acknowledge NODE SEQNO     acknowledges for the copy on NODE; without a seqno, that copy starts again
//! anew  serves TERM          starts this copy again as a replica; makes it the active one in TERM
//! ```
//!
//! CAS values are written `#1`, `#2`, … in the order of their first appearance, so that a transcript does not depend on
//! the clock.

use nacre_types::{Cas, CollectionId, DocKey, Kind, NodeId, Now, Seqno, VbState, VbUuid, Vbid};
use nacre_value::multi::{Flags, LookupOperation, LookupSpec, MutationOperation, MutationSpec};
use nacre_value::subdoc::{Lookup, Mutation};
use nacre_vbucket::{Command, Condition, Extend, Level, Reply, Vbucket};
use std::fmt::Write;
use std::num::NonZero;

struct Script {
    vbucket: Vbucket,
    now: Now,
    seen: Vec<Cas>,
}

impl Script {
    fn cas(&mut self, cas: Cas) -> String {
        match cas {
            Cas::LOCKED => "locked".into(),
            _ => {
                let index = self.seen.iter().position(|known| *known == cas).unwrap_or_else(|| {
                    self.seen.push(cas);
                    self.seen.len() - 1
                });
                format!("#{}", index + 1)
            }
        }
    }

    /// A table: one arm for each word of the script language.
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn run(&mut self, line: &str) -> String {
        let mut options: Vec<&str> = line.split_whitespace().collect();
        let option = |name: &str, options: &mut Vec<&str>| {
            let index = options.iter().position(|word| word.starts_with(name))?;
            Some(options.remove(index)[name.len()..].to_owned())
        };
        let cas = option("cas=#", &mut options)
            .map_or(Cas::ANY, |n| self.seen[n.parse::<usize>().unwrap() - 1]);
        let expiry = option("exp=", &mut options)
            .map_or(0, |s| self.now.unix_s() + s.parse::<u32>().unwrap());
        let keep_expiry = option("keep", &mut options).is_some();
        let word = options[0];
        if word == "wait" {
            let ns = options[1].parse::<u64>().unwrap() * 1_000_000_000;
            self.now =
                Now { unix_ns: self.now.unix_ns + ns, monotonic_ns: self.now.monotonic_ns + ns };
            return "ok".into();
        }
        let kept = |vbucket: &mut Vbucket| {
            let (high, graves) = (vbucket.high_seqno(), vbucket.take_graves(vbucket.high_seqno()));
            let graves: Vec<String> = graves
                .iter()
                .map(|(key, seqno)| format!("{:?}@{seqno}", String::from_utf8_lossy(key)))
                .collect();
            vbucket.set_persisted(high, usize::MAX);
            format!("to {high}, erased [{}]", graves.join(" "))
        };
        match word {
            "persist" => return kept(&mut self.vbucket),
            "complete" => {
                let ends = self.vbucket.complete(self.now);
                let shown = ends.iter().map(|end| match end.commit {
                    Some(token) => format!("{} committed at {}", end.prepare, token.seqno),
                    None => format!("{} given up", end.prepare),
                });
                return shown.collect::<Vec<_>>().join(", ");
            }
            "expire" => return format!("{} buried", self.vbucket.expire(self.now).0),
            "copies" => {
                let node = |id: &str| NonZero::new(id.parse().unwrap()).map(|id| NodeId(id.get()));
                let chains = options[1..].iter().map(|ids| ids.split(',').map(node).collect());
                self.vbucket.set_copies(chains.collect(), NodeId(1));
                return format!("durable: {}", self.vbucket.can_be_durable());
            }
            "acknowledge" => {
                let node = NodeId(options[1].parse().unwrap());
                match options.get(2) {
                    Some(seqno) => self.vbucket.acknowledge(node, Seqno(seqno.parse().unwrap())),
                    None => self.vbucket.forget_acknowledged(node),
                }
                return "ok".into();
            }
            "anew" => {
                self.vbucket.clear(VbState::Replica, VbUuid(9));
                return "ok".into();
            }
            "serves" => {
                let term = options[1].parse().unwrap();
                self.vbucket.activate(term, VbUuid(term));
                return "ok".into();
            }
            "purge" => {
                let age = options[1].parse::<u32>().unwrap();
                return format!("{} purged", self.vbucket.purge(self.now.unix_s() - age));
            }
            "begins" | "ends" => {
                let name = options[1].as_bytes();
                self.vbucket.record_event(name, word == "ends", b"{}", self.now);
                return format!("to {}", self.vbucket.high_seqno());
            }
            _ => {}
        }
        let durable = word == "durable";
        if durable {
            options.remove(0);
        }
        let word = options[0];
        let key = DocKey::new(CollectionId::DEFAULT, options[1].as_bytes());
        let argument = options[2..].join(" ");
        let body = argument.as_bytes();
        let number = || argument.parse::<u64>().unwrap();
        let store =
            |condition| Command::Store { condition, cas, flags: 0, expiry, keep_expiry, body };
        let (first, rest) = argument.split_once(' ').unwrap_or((&argument, ""));
        let attribute = first.starts_with(['_', '$']);
        let flags = Flags { xattr: attribute, ..Flags::default() };
        let mutation = [MutationSpec {
            operation: MutationOperation::Path(Mutation::DictUpsert),
            flags,
            path: first.as_bytes(),
            value: rest.as_bytes(),
        }];
        let lookup = [LookupSpec {
            operation: LookupOperation::Path(Lookup::Get),
            flags,
            path: first.as_bytes(),
            value: b"",
        }];
        let mutate = |condition| Command::Mutate {
            specs: &mutation,
            condition,
            access_deleted: false,
            create_as_deleted: false,
            revive: false,
            cas,
            expiry: None,
            expiry_when_new: 0,
            flags: None,
            keep_expiry,
        };
        let command = match word {
            "get" => Command::Get,
            "meta" => Command::GetMeta,
            "set" => store(Condition::Always),
            "add" => store(Condition::Absent),
            "replace" => store(Condition::Present),
            "append" => Command::Extend { end: Extend::Append, cas, bytes: body },
            "prepend" => Command::Extend { end: Extend::Prepend, cas, bytes: body },
            "del" => Command::Delete { cas },
            "touch" => Command::Touch { expiry },
            "lock" => Command::Lock { seconds: number() as u32 },
            "unlock" => Command::Unlock { cas },
            "incr" => Command::Counter {
                decrement: false,
                delta: number(),
                initial: Some((5, expiry)),
                cas,
            },
            "decr" => Command::Counter { decrement: true, delta: number(), initial: None, cas },
            "upsert-in" => mutate(Condition::Present),
            "create-in" => mutate(Condition::Always),
            "look-in" | "look-deleted" => Command::Lookup {
                specs: &lookup,
                access_deleted: word == "look-deleted",
                sees_system: true,
            },
            other => panic!("unknown command {other}"),
        };
        let (key, now) = (key.prefixed(), self.now);
        let (reply, mutation) = if durable {
            let deadline_ns = now.monotonic_ns + 10_000_000_000;
            self.vbucket.prepare(key, &command, Level::PersistToMajority, deadline_ns, now)
        } else {
            self.vbucket.apply(key, &command, now)
        };
        let mut text = match reply {
            Err(refusal) => format!("refused: {refusal:?}"),
            Ok(reply) => self.shown(&reply),
        };
        if let Some(seqno) = mutation {
            write!(text, "   -> seqno {seqno}").unwrap();
        }
        text
    }

    fn shown(&mut self, reply: &Reply) -> String {
        match reply {
            Reply::Found(document, cas) => {
                format!("{} cas {}", String::from_utf8_lossy(document.body()), self.cas(*cas))
            }
            Reply::Meta(document) => {
                let kind = match document.meta.kind {
                    Kind::Alive => "alive",
                    Kind::Deleted => "deleted",
                    Kind::Expired => "expired",
                    Kind::Aborted => "aborted",
                };
                let expires = if document.meta.expiry == 0 { "never" } else { "at a time" };
                format!(
                    "{kind} rev {} cas {} expires {expires}",
                    document.meta.rev,
                    self.cas(document.meta.cas)
                )
            }
            Reply::Stored { cas, .. } => format!("stored cas {}", self.cas(*cas)),
            Reply::Counted { value, cas, .. } => format!("{value} cas {}", self.cas(*cas)),
            Reply::Unlocked => "unlocked".into(),
            Reply::Looked { results, deleted, .. } => {
                let shown = results.iter().map(|result| match result {
                    Ok(value) => String::from_utf8_lossy(value).into_owned(),
                    Err(error) => format!("{error:?}"),
                });
                format!(
                    "{}{}",
                    shown.collect::<Vec<_>>().join(", "),
                    if *deleted { " (deleted)" } else { "" }
                )
            }
            Reply::Mutated { cas, .. } => format!("mutated cas {}", self.cas(*cas)),
        }
    }
}

#[test]
fn scripts_read_as_their_transcripts() {
    insta::glob!("scripts/*.txt", |path| {
        #[expect(clippy::disallowed_methods, reason = "a test reads its script")]
        let text = std::fs::read_to_string(path).unwrap();
        let mut script = Script {
            vbucket: Vbucket::create(Vbid(0), VbUuid(1), 1),
            now: Now { unix_ns: 1_700_000_000_000_000_000, monotonic_ns: 1 },
            seen: Vec::new(),
        };
        let mut transcript = String::new();
        for line in text.lines() {
            if line.is_empty() || line.starts_with('#') {
                writeln!(transcript, "{line}").unwrap();
            } else {
                let answer = script.run(line);
                writeln!(transcript, "{line:<40} {answer}").unwrap();
            }
        }
        insta::assert_snapshot!(transcript);
    });
}
