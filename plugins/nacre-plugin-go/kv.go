package nacre

import (
	"encoding/json"
	"fmt"
	"slices"
)

// KV is the capability `kv`: documents.
//
// A keyspace is `scope.collection`, or `bucket.scope.collection` in another bucket; the empty string is the deployment's own.
// An expiry is in seconds from now up to 30 days, or since the Unix epoch; 0 is never. What is written takes effect at once: a
// document or timer whose method is called again, because it asked for that or the node failed, writes again. All methods may fail with [ErrDenied],
// [ErrTooLarge], [ErrLocked], [ErrTemporary] and [ErrInvalid], and with what they name.
var KV kvCapability

type kvCapability struct{}

// Document is a document as it was read.
type Document struct {
	// Body is the body, without extended attributes.
	Body []byte
	// CAS is the version.
	CAS uint64
	// Flags are set by clients to describe the format of the body.
	Flags uint32
	// Expiry is in seconds since the Unix epoch; 0 for never.
	Expiry uint32
	// IsJSON reports whether the body is JSON.
	IsJSON bool
}

// JSON parses the body into target, as [json.Unmarshal] does. It fails if the body is not JSON or not of that type.
func (document Document) JSON(target any) error { return json.Unmarshal(document.Body, target) }

// Content is a document to be written.
type Content struct {
	// Body is the body; JSON is recognised.
	Body []byte
	// Flags are stored with the body for clients.
	Flags uint32
	// Expiry is the time at which the document expires.
	Expiry uint32
}

// Counted is the result of a change of a counter.
type Counted struct {
	// Value is the new value.
	Value uint64
	// CAS is the new version of the document.
	CAS uint64
}

// Operation is the operation of a [Change], with the number of the interface `kv`.
type Operation uint8

const (
	// PathInsert adds a member that must not exist.
	PathInsert Operation = iota
	// PathUpsert sets a member.
	PathUpsert
	// PathReplace replaces a value that must exist.
	PathReplace
	// PathRemove removes a value.
	PathRemove
	// ArrayAppend adds elements at the end of an array.
	ArrayAppend
	// ArrayPrepend adds elements at the start of an array.
	ArrayPrepend
	// ArrayInsert adds elements before the element that the path names.
	ArrayInsert
	// ArrayAddUnique adds an element unless the array contains it.
	ArrayAddUnique
	// PathCounter adds to a number.
	PathCounter
)

// Change is a change of a part of a document.
type Change struct {
	// Operation is the kind of the change.
	Operation Operation
	// Path is the path of the value, as in `a.b[0]`. Missing parents are created, except for PathRemove, PathReplace and
	// ArrayInsert, which change existing values.
	Path string
	// Value is the new value, as JSON; empty for PathRemove.
	Value any
	// Xattr is true if the path begins with the name of an extended attribute. Such changes must come first.
	Xattr bool
}

// Get returns the document at key. It fails with [ErrNotFound] if the document does not exist.
func (kvCapability) Get(keyspace, key string) (Document, error) { return kvGet(keyspace, key) }

// The maximum number of keys in a call of the host.
const getManyMax = 1024

// GetMany returns the documents at keys, in that order; nil for missing ones.
func (kvCapability) GetMany(keyspace string, keys []string) ([]*Document, error) {
	documents := make([]*Document, 0, len(keys))
	for some := range slices.Chunk(keys, getManyMax) {
		found, err := kvGetMany(keyspace, some)
		if err != nil {
			return nil, err
		}
		documents = append(documents, found...)
	}
	return documents, nil
}

// Insert stores a document and returns its version. It fails with [ErrExists] if the document exists.
func (kvCapability) Insert(keyspace, key string, content Content) (uint64, error) {
	acts()
	return kvInsert(keyspace, key, content)
}

// Upsert creates or replaces a document and returns its version.
func (kvCapability) Upsert(keyspace, key string, content Content) (uint64, error) {
	acts()
	return kvUpsert(keyspace, key, content)
}

// Replace replaces an existing document, of the version cas unless that is 0, and returns its new version. It fails with
// [ErrNotFound] and [ErrCASMismatch].
func (kvCapability) Replace(keyspace, key string, content Content, cas uint64) (uint64, error) {
	acts()
	return kvReplace(keyspace, key, content, cas)
}

// Remove deletes a document, of the version cas unless that is 0, and returns the version of its tombstone. It fails with
// [ErrNotFound] and [ErrCASMismatch].
func (kvCapability) Remove(keyspace, key string, cas uint64) (uint64, error) {
	acts()
	return kvRemove(keyspace, key, cas)
}

// Counter adds delta to a counter, which stops at 0. It creates a missing counter with the value initial and that expiry,
// or fails with [ErrNotFound] if initial is nil.
func (kvCapability) Counter(keyspace, key string, delta int64, initial *uint64, expiry uint32) (Counted, error) {
	acts()
	return kvCounter(keyspace, key, delta, initial, expiry)
}

// Touch sets the expiry of a document and returns its new version. It fails with [ErrNotFound] if the document does not exist.
func (kvCapability) Touch(keyspace, key string, expiry uint32) (uint64, error) {
	acts()
	return kvTouch(keyspace, key, expiry)
}

// LookupIn returns the JSON values at paths, at most 16, nil for missing ones; with xattr those of extended attributes. It
// fails with [ErrNotFound] if there is no document.
func (kvCapability) LookupIn(keyspace, key string, paths []string, xattr bool) ([]json.RawMessage, error) {
	return kvLookupIn(keyspace, key, paths, xattr)
}

// MutateIn makes changes of a document, at most 16, all of them or none, and returns its new version. The document must have the
// version cas unless that is 0. It fails with [ErrNotFound], [ErrCASMismatch] and [ErrPath].
func (kvCapability) MutateIn(keyspace, key string, changes []Change, cas uint64) (uint64, error) {
	values := make([][]byte, len(changes))
	for index, change := range changes {
		if change.Operation == PathRemove {
			continue
		}
		value, err := json.Marshal(change.Value)
		if err != nil {
			return 0, fmt.Errorf("the value for %q: %w", change.Path, err)
		}
		values[index] = value
	}
	acts()
	return kvMutateIn(keyspace, key, changes, values, cas)
}
