package nacre

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"time"
)

// Magic is the first four bytes of an event buffer.
const Magic = "NEB1"

// DatatypeJSON is the bit of a datatype for JSON bodies.
const DatatypeJSON = 1

const (
	headerBytes   = 32
	eventBytes    = 64
	previousBytes = 48
)

// EventKind is the kind of a change.
type EventKind uint8

const (
	// Upsert is the kind of created and updated documents.
	Upsert EventKind = 1
	// Delete is the kind of deleted documents.
	Delete EventKind = 2
	// Expire is the kind of expired documents.
	Expire EventKind = 3
)

// Version is a version of a document.
type Version struct {
	// Seqno is the position in the history of the vBucket.
	Seqno uint64
	// CAS identifies the version.
	CAS uint64
	// Rev is the number of changes of the key.
	Rev uint64
	// Flags are opaque to the server.
	Flags uint32
	// Expiry is the Unix second of expiry, 0 for never; of deletion for a tombstone.
	Expiry uint32
	// Kind is the kind of the change; after a deletion there is no document.
	Kind EventKind
	// Datatype has the bits JSON (1), snappy (2) and extended attributes (4).
	Datatype uint8
	// Xattrs is the section of extended attributes with its length word; empty if there are none.
	Xattrs []byte
	// Body is the body of the document; empty for a deletion.
	Body []byte
}

// IsJSON reports whether the body is JSON.
func (version Version) IsJSON() bool { return version.Datatype&DatatypeJSON != 0 }

// JSON parses the body into target, as [json.Unmarshal] does. It fails if the body is not JSON or not of that type.
func (version Version) JSON(target any) error { return json.Unmarshal(version.Body, target) }

// Event is one change of one document. Its slices refer to the batch and must not be changed. A retained slice keeps the whole
// batch in memory, up to 16 MiB: retain a copy, as from [bytes.Clone] or ID.
type Event struct {
	// Version is the current version of the document.
	Version
	// Collection is the ID of the collection.
	Collection uint32
	// VB is the vBucket of the document.
	VB uint16
	// Key is the key as applications use it.
	Key []byte
	// Now is the time at which the batch was created: the only clock of a plugin.
	Now time.Time
	// Previous is the replaced version, if `[events] old = true` requests it and the bucket keeps it; else nil.
	Previous *Version
}

// ID returns the key as text.
func (event Event) ID() string { return string(event.Key) }

// Events is a decoded buffer: the events of a batch, in history order within each vBucket. No JSON is parsed.
//
// The documentation of the plugin ABI describes its layout. Every offset is checked once, so that reading an event cannot fail.
type Events struct {
	now     time.Time
	records []byte
	arena   []byte
}

// DecodeEvents reads and checks a buffer. The error names the first mistake.
func DecodeEvents(buffer []byte) (Events, error) {
	if len(buffer) < len(Magic) || string(buffer[:len(Magic)]) != Magic {
		return Events{}, fmt.Errorf("not an event buffer: the magic number is missing")
	}
	wrong := fmt.Errorf("the header of the event buffer does not fit its %d bytes", len(buffer))
	if len(buffer) < headerBytes {
		return Events{}, wrong
	}
	count, arena, total := uint64(word(buffer, 4)), uint64(word(buffer, 16)), uint64(word(buffer, 20))
	end := headerBytes + count*eventBytes
	if total != uint64(len(buffer)) || end > arena || arena > total {
		return Events{}, wrong
	}
	events := Events{
		now:     time.UnixMicro(int64(long(buffer, 8))).UTC(),
		records: buffer[headerBytes:end:end],
		arena:   buffer[arena:total:total],
	}
	for index := range events.Len() {
		if !events.isWhole(events.record(index)) {
			return Events{}, fmt.Errorf("event %d of the event buffer is malformed", index)
		}
	}
	return events, nil
}

// Len returns the number of events.
func (events Events) Len() int { return len(events.records) / eventBytes }

// Now returns the time at which the batch was created.
func (events Events) Now() time.Time { return events.now }

// At returns the event at that index, from 0 to less than [Events.Len].
func (events Events) At(index int) Event {
	record := events.record(index)
	key := word(record, 36)
	event := Event{
		Version: Version{
			Seqno:    long(record, 0),
			CAS:      long(record, 8),
			Rev:      long(record, 16),
			Flags:    word(record, 24),
			Expiry:   word(record, 28),
			Kind:     EventKind(record[56]),
			Datatype: record[57],
		},
		Collection: word(record, 32),
		VB:         binary.LittleEndian.Uint16(record[52:]),
		Key:        events.part(key, uint32(binary.LittleEndian.Uint16(record[54:]))),
		Now:        events.now,
	}
	event.Xattrs, event.Body = events.value(word(record, 40), word(record, 44), word(record, 48))
	if start := word(record, 58); start != 0 {
		event.Previous = events.previous(start)
	}
	return event
}

// All iterates over the events with their indexes, in order.
func (events Events) All() iter.Seq2[int, Event] {
	return func(yield func(int, Event) bool) {
		for index := range events.Len() {
			if !yield(index, events.At(index)) {
				return
			}
		}
	}
}

func (events Events) record(index int) []byte {
	return events.records[index*eventBytes : (index+1)*eventBytes]
}

// isWhole reports whether all ranges of a record are inside the arena.
func (events Events) isWhole(record []byte) bool {
	key, keyBytes := word(record, 36), uint32(binary.LittleEndian.Uint16(record[54:]))
	value, valueBytes, xattrBytes := word(record, 40), word(record, 44), word(record, 48)
	known := isKind(record[56]) && xattrBytes <= valueBytes
	return known && events.has(key, keyBytes) && events.has(value, valueBytes) && events.hasPrevious(word(record, 58))
}

// hasPrevious reports whether there is a previous version at start, 0 for none.
func (events Events) hasPrevious(start uint32) bool {
	if start == 0 {
		return true
	}
	if !events.has(start, previousBytes) {
		return false
	}
	record := events.arena[start:]
	valueBytes, xattrBytes := word(record, 32), word(record, 36)
	isInside := uint64(start)+previousBytes+uint64(valueBytes) <= uint64(len(events.arena))
	return isInside && xattrBytes <= valueBytes && isKind(record[40])
}

func (events Events) previous(start uint32) *Version {
	record := events.arena[start:]
	version := Version{
		Seqno:    long(record, 0),
		CAS:      long(record, 8),
		Rev:      long(record, 16),
		Flags:    word(record, 24),
		Expiry:   word(record, 28),
		Kind:     EventKind(record[40]),
		Datatype: record[41],
	}
	version.Xattrs, version.Body = events.value(start+previousBytes, word(record, 32), word(record, 36))
	return &version
}

func (events Events) has(start, size uint32) bool {
	return uint64(start)+uint64(size) <= uint64(len(events.arena))
}

func (events Events) part(start, size uint32) []byte {
	return events.arena[start : start+size : start+size]
}

func (events Events) value(start, size, xattrBytes uint32) (xattrs, body []byte) {
	return events.part(start, xattrBytes), events.part(start+xattrBytes, size-xattrBytes)
}

func isKind(kind uint8) bool { return kind >= uint8(Upsert) && kind <= uint8(Expire) }

func word(buffer []byte, at int) uint32 { return binary.LittleEndian.Uint32(buffer[at:]) }

func long(buffer []byte, at int) uint64 { return binary.LittleEndian.Uint64(buffer[at:]) }

// DocumentError is a document that could not be processed; the feed continues.
type DocumentError struct {
	// Index is the position of the event within the batch, from 0.
	Index int
	// Message describes the error for the author of the code.
	Message string
}
