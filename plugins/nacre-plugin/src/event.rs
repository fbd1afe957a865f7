//! The packed event buffer, which carries a batch of the change stream to a plugin.
//!
//! A batch is one buffer because copying one buffer into the sandbox costs a quarter of lifting a list of records. All
//! numbers are little-endian.
//!
//! | offset | header | | offset in an event | field |
//! | --- | --- | --- | --- | --- |
//! | 0 | the characters `NEB1` | | 0 | u64 seqno |
//! | 4 | u32 number of events | | 8 | u64 CAS |
//! | 8 | u64 batch time, µs since the Unix epoch | | 16 | u64 revision |
//! | 16 | u32 where the arena starts | | 24 | u32 flags |
//! | 20 | u32 bytes in all | | 28 | u32 expiry |
//! | 24 | u64 zero | | 32 | u32 collection |
//! | 32 | the events, 64 bytes each | | 36 | u32 where in the arena the key starts |
//! | | the arena | | 40 | u32 where in the arena the value starts |
//! | | | | 44 | u32 bytes of the value, extended attributes included |
//! | | | | 48 | u32 bytes of the extended attributes, which come first |
//! | | | | 52 | u16 vBucket |
//! | | | | 54 | u16 bytes of the key (without collection prefix) |
//! | | | | 56 | u8 kind: 1 upsert, 2 delete, 3 expire |
//! | | | | 57 | u8 datatype: 1 JSON, 2 snappy, 4 extended attributes |
//! | | | | 58 | u32 where in the arena the version before starts, 0 for none |
//! | | | | 62 | zero up to 64 |
//!
//! A previous version is present only for plugins that request it, after all keys and values: u64 seqno, u64 CAS, u64
//! revision, u32 flags, u32 expiry, u32 bytes of the value, u32 bytes of the extended attributes in it, u8 kind, u8 datatype,
//! zero up to 48, the value.
//!
//! Worked examples are in `plugins/wit/event-buffer.example` and `event-buffer-previous.example`; they are tests here and in
//! the host.
//!
//! Invariant: [`Events::decode`] checks every offset once, so reading an event cannot fail or panic.

/// The first four bytes of a buffer.
pub const MAGIC: [u8; 4] = *b"NEB1";
/// Size of the header in bytes.
pub const HEADER_BYTES: usize = 32;
/// Size of one event in bytes, without key and value.
pub const EVENT_BYTES: usize = 64;
/// Size of a previous version in bytes, without its value.
pub const PREVIOUS_BYTES: usize = 48;
/// Datatype bit: the body is JSON.
pub const DATATYPE_JSON: u8 = 1;

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The document was created or changed.
    Upsert,
    /// A client deleted it.
    Delete,
    /// The document expired.
    Expire,
}

/// One change of one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Position within the batch, from 0.
    pub index: u32,
    /// The vBucket of the document.
    pub vb: u16,
    /// The seqno within the history of the vBucket.
    pub seqno: u64,
    /// The CAS of the document.
    pub cas: u64,
    /// The revision: the number of changes of the key.
    pub rev: u64,
    /// Opaque to the server.
    pub flags: u32,
    /// The expiry as Unix time in seconds, 0 for never; for a tombstone, the time of deletion.
    pub expiry: u32,
    /// The ID of the collection.
    pub collection: u32,
    /// The kind of the change.
    pub kind: EventKind,
    /// JSON, snappy and extended-attribute bits.
    pub datatype: u8,
    /// The key as the application sees it.
    pub key: &'a [u8],
    /// The extended-attribute section including its length word; may be empty.
    pub xattrs: &'a [u8],
    /// The document body; empty for a deletion.
    pub body: &'a [u8],
    /// The version that this one replaced, if the plugin requests it and it is kept.
    pub previous: Option<Previous<'a>>,
}

/// A replaced version of a document. Fields are those of [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Previous<'a> {
    /// The seqno within the history of the vBucket.
    pub seqno: u64,
    /// The CAS.
    pub cas: u64,
    /// The revision.
    pub rev: u64,
    /// Opaque to the server.
    pub flags: u32,
    /// The expiry as Unix time in seconds, 0 for never; for a tombstone, the time of deletion.
    pub expiry: u32,
    /// The kind of the change that created this version; after a deletion no document existed.
    pub kind: EventKind,
    /// JSON, snappy and extended-attribute bits.
    pub datatype: u8,
    /// The extended-attribute section.
    pub xattrs: &'a [u8],
    /// The document body; empty for a deletion.
    pub body: &'a [u8],
}

impl EventKind {
    fn number(self) -> u8 {
        match self {
            EventKind::Upsert => 1,
            EventKind::Delete => 2,
            EventKind::Expire => 3,
        }
    }

    fn of_number(number: u8) -> Option<EventKind> {
        let all = [EventKind::Upsert, EventKind::Delete, EventKind::Expire];
        all.into_iter().find(|kind| kind.number() == number)
    }
}

/// Why a buffer could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The buffer does not start with the magic number.
    #[error("not an event buffer: the magic number is missing")]
    Magic,
    /// The header contradicts the size of the buffer.
    #[error("the header of the event buffer does not fit its {0} bytes")]
    Header(usize),
    /// An event points outside the arena or has an unknown kind.
    #[error("event {0} of the event buffer is malformed")]
    Event(u32),
}

/// A decoded buffer: the events of a batch and its creation time.
#[derive(Clone, Copy, Debug)]
pub struct Events<'a> {
    events: &'a [u8],
    arena: &'a [u8],
    now_us: u64,
}

impl<'a> Events<'a> {
    /// Reads a buffer and checks all of it.
    ///
    /// # Errors
    /// [`DecodeError`] for the first error found.
    pub fn decode(buffer: &'a [u8]) -> Result<Events<'a>, DecodeError> {
        if !buffer.starts_with(&MAGIC) {
            return Err(DecodeError::Magic);
        }
        let header = DecodeError::Header(buffer.len());
        let count = u32_at(buffer, 4).ok_or(header)?;
        let now_us = u64_at(buffer, 8).ok_or(header)?;
        let arena_start = u32_at(buffer, 16).ok_or(header)? as usize;
        let total = u32_at(buffer, 20).ok_or(header)? as usize;
        let events_end = (count as usize)
            .checked_mul(EVENT_BYTES)
            .and_then(|bytes| bytes.checked_add(HEADER_BYTES))
            .ok_or(header)?;
        if total != buffer.len() || events_end > arena_start {
            return Err(header);
        }
        let events = buffer.get(HEADER_BYTES..events_end).ok_or(header)?;
        let arena = buffer.get(arena_start..).ok_or(header)?;
        let decoded = Events { events, arena, now_us };
        match (0..count).find(|&index| decoded.read(index).is_none()) {
            Some(index) => Err(DecodeError::Event(index)),
            None => Ok(decoded),
        }
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.events.len() / EVENT_BYTES
    }

    /// Returns true if there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the time at which the batch was created, in microseconds since the Unix epoch. A plugin has no other clock.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Returns the events in order.
    pub fn iter(&self) -> impl Iterator<Item = Event<'a>> + use<'a> {
        let events = *self;
        (0..events.len() as u32)
            .map(move |index| events.read(index).expect("decode has checked every event"))
    }

    fn read(&self, index: u32) -> Option<Event<'a>> {
        let start = (index as usize).checked_mul(EVENT_BYTES)?;
        let event = self.events.get(start..start.checked_add(EVENT_BYTES)?)?;
        let key = slice(self.arena, u32_at(event, 36)?, u32::from(u16_at(event, 54)?))?;
        let value = slice(self.arena, u32_at(event, 40)?, u32_at(event, 44)?)?;
        let (xattrs, body) = value.split_at_checked(u32_at(event, 48)? as usize)?;
        Some(Event {
            index,
            vb: u16_at(event, 52)?,
            seqno: u64_at(event, 0)?,
            cas: u64_at(event, 8)?,
            rev: u64_at(event, 16)?,
            flags: u32_at(event, 24)?,
            expiry: u32_at(event, 28)?,
            collection: u32_at(event, 32)?,
            kind: EventKind::of_number(event[56])?,
            datatype: event[57],
            key,
            xattrs,
            body,
            previous: match u32_at(event, 58)? {
                0 => None,
                start => Some(self.read_previous(start)?),
            },
        })
    }

    fn read_previous(&self, start: u32) -> Option<Previous<'a>> {
        let version = slice(self.arena, start, PREVIOUS_BYTES as u32)?;
        let value_start = start.checked_add(PREVIOUS_BYTES as u32)?;
        let value = slice(self.arena, value_start, u32_at(version, 32)?)?;
        let (xattrs, body) = value.split_at_checked(u32_at(version, 36)? as usize)?;
        Some(Previous {
            seqno: u64_at(version, 0)?,
            cas: u64_at(version, 8)?,
            rev: u64_at(version, 16)?,
            flags: u32_at(version, 24)?,
            expiry: u32_at(version, 28)?,
            kind: EventKind::of_number(version[40])?,
            datatype: version[41],
            xattrs,
            body,
        })
    }
}

/// Packs `events` as the host does, so that tests and benchmarks can feed a plugin as plain Rust.
///
/// The index of each event is its position. A key must fit in 65,535 bytes, and the buffer in 4 GiB.
pub fn pack(events: &[Event<'_>], now_us: u64) -> Vec<u8> {
    let arena_start = HEADER_BYTES + EVENT_BYTES * events.len();
    let bytes = |event: &Event<'_>| event.key.len() + event.xattrs.len() + event.body.len();
    let previous_at: usize = events.iter().map(bytes).sum();
    let mut behind: Vec<u8> = Vec::new();
    let mut arena: Vec<u8> = Vec::new();
    let mut buffer = Vec::with_capacity(arena_start);
    buffer.extend(MAGIC);
    buffer.extend((events.len() as u32).to_le_bytes());
    buffer.extend(now_us.to_le_bytes());
    buffer.extend((arena_start as u32).to_le_bytes());
    // The total is known only when the arena is complete.
    buffer.extend([0; 12]);
    for event in events {
        for word in [event.seqno, event.cas, event.rev] {
            buffer.extend(word.to_le_bytes());
        }
        let (key, value) = (arena.len(), arena.len() + event.key.len());
        let value_bytes = event.xattrs.len() + event.body.len();
        for word in [event.flags, event.expiry, event.collection] {
            buffer.extend(word.to_le_bytes());
        }
        for word in [key, value, value_bytes, event.xattrs.len()] {
            buffer.extend((word as u32).to_le_bytes());
        }
        buffer.extend(event.vb.to_le_bytes());
        buffer.extend((event.key.len() as u16).to_le_bytes());
        buffer.extend([event.kind.number(), event.datatype]);
        let start = if event.previous.is_some() { previous_at + behind.len() } else { 0 };
        buffer.extend((start as u32).to_le_bytes());
        buffer.extend([0; 2]);
        if let Some(previous) = &event.previous {
            pack_previous(previous, &mut behind);
        }
        for part in [event.key, event.xattrs, event.body] {
            arena.extend(part);
        }
    }
    buffer.append(&mut arena);
    buffer.append(&mut behind);
    let total = (buffer.len() as u32).to_le_bytes();
    buffer[20..24].copy_from_slice(&total);
    buffer
}

fn pack_previous(previous: &Previous<'_>, buffer: &mut Vec<u8>) {
    for word in [previous.seqno, previous.cas, previous.rev] {
        buffer.extend(word.to_le_bytes());
    }
    let value_bytes = (previous.xattrs.len() + previous.body.len()) as u32;
    let xattr_bytes = previous.xattrs.len() as u32;
    for word in [previous.flags, previous.expiry, value_bytes, xattr_bytes] {
        buffer.extend(word.to_le_bytes());
    }
    buffer.extend([previous.kind.number(), previous.datatype]);
    buffer.extend([0; 6]);
    buffer.extend([previous.xattrs, previous.body].concat());
}

fn slice(arena: &[u8], start: u32, bytes: u32) -> Option<&[u8]> {
    let start = start as usize;
    arena.get(start..start.checked_add(bytes as usize)?)
}

fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes_at(bytes, offset).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes_at(bytes, offset).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes_at(bytes, offset).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the bytes of the worked example: the hexadecimal columns of its lines.
    fn example() -> Vec<u8> {
        bytes_of(include_str!("../../wit/event-buffer.example"))
    }

    fn bytes_of(example: &str) -> Vec<u8> {
        let lines = example.lines().filter(|line| !line.starts_with('#'));
        lines
            .flat_map(|line| line[5..46.min(line.len())].split_whitespace())
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect()
    }

    #[test]
    fn the_worked_example_is_decoded_as_documented() {
        let buffer = example();
        let events = Events::decode(&buffer).unwrap();
        assert_eq!(events.now_us(), 1_700_000_000_000_000);
        let upsert = Event {
            index: 0,
            vb: 526,
            seqno: 7,
            cas: 65_536,
            rev: 3,
            flags: 0x0200_0006,
            expiry: 0,
            collection: 8,
            kind: EventKind::Upsert,
            datatype: 5,
            key: b"k1",
            xattrs: b"\0\0\0\x02xy",
            body: br#"{"a":1}"#,
            previous: None,
        };
        let delete = Event {
            index: 1,
            vb: 775,
            seqno: 8,
            cas: 131_072,
            rev: 4,
            flags: 0,
            expiry: 1_700_000_016,
            collection: 8,
            kind: EventKind::Delete,
            datatype: 0,
            key: b"k2",
            xattrs: b"",
            body: b"",
            previous: None,
        };
        assert_eq!(events.iter().collect::<Vec<_>>(), [upsert, delete]);
        assert_eq!(pack(&[upsert, delete], events.now_us()), buffer);
    }

    #[test]
    fn the_worked_example_with_a_previous_version_is_decoded_as_documented() {
        let buffer = bytes_of(include_str!("../../wit/event-buffer-previous.example"));
        let events = Events::decode(&buffer).unwrap();
        let found: Vec<Event<'_>> = events.iter().collect();
        assert_eq!(found[0].previous, None);
        let before = found[1].previous.unwrap();
        assert_eq!((before.seqno, before.cas, before.rev), (1, 65_536, 1));
        assert_eq!((before.kind, before.datatype, before.body), (EventKind::Upsert, 1, &b"{}"[..]));
        assert_eq!(pack(&found, events.now_us()), buffer);
    }

    #[test]
    fn errors_in_a_buffer_are_reported() {
        let good = example();
        assert_eq!(Events::decode(&good[..3]).unwrap_err(), DecodeError::Magic);
        assert_eq!(Events::decode(&good[..40]).unwrap_err(), DecodeError::Header(40));
        let mut bad = good.clone();
        bad[96 + 36] = 0xff;
        assert_eq!(Events::decode(&bad).unwrap_err(), DecodeError::Event(1));
    }

    proptest! {
        #[test]
        fn invalid_offsets_never_panic(changes in prop::collection::vec((0usize..177, any::<u8>()), 1..8)) {
            let mut buffer = example();
            for (at, byte) in changes {
                buffer[at] = byte;
            }
            if let Ok(events) = Events::decode(&buffer) {
                prop_assert_eq!(events.iter().count(), events.len());
            }
        }

        #[test]
        fn invalid_offsets_of_previous_versions_never_panic(
            changes in prop::collection::vec((0usize..216, any::<u8>()), 1..8),
        ) {
            let mut buffer = bytes_of(include_str!("../../wit/event-buffer-previous.example"));
            for (at, byte) in changes {
                buffer[at] = byte;
            }
            if let Ok(events) = Events::decode(&buffer) {
                prop_assert_eq!(events.iter().count(), events.len());
            }
        }
    }
}
