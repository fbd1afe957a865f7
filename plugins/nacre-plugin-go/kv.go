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
	// Flags are what clients say about the format of the body.
	Flags uint32
	// Expiry is in seconds since the Unix epoch; 0 for never.
	Expiry uint32
	// IsJSON is whether the body is JSON.
	IsJSON bool
}

// JSON parses the body into target, as [json.Unmarshal] does. It fails when the body is no JSON, or not of that type.
func (document Document) JSON(target any) error { return json.Unmarshal(document.Body, target) }

// Content is a document to be written.
type Content struct {
	// Body is the body; JSON is recognised.
	Body []byte
	// Flags are what is kept beside the body for clients.
	Flags uint32
	// Expiry is when it expires.
	Expiry uint32
}

// Counted is a counter after it was changed.
type Counted struct {
	// Value is its value.
	Value uint64
	// CAS is the version of its document.
	CAS uint64
}

// Operation is what a [Change] does at its path, as the interface `kv` numbers it.
type Operation uint8

const (
	// PathInsert adds a member that must not be there.
	PathInsert Operation = iota
	// PathUpsert sets a member.
	PathUpsert
	// PathReplace replaces a value that must be there.
	PathReplace
	// PathRemove removes a value.
	PathRemove
	// ArrayAppend adds elements at the end of an array.
	ArrayAppend
	// ArrayPrepend adds elements at the start of an array.
	ArrayPrepend
	// ArrayInsert adds elements before the one that the path names.
	ArrayInsert
	// ArrayAddUnique adds an element that is not there yet.
	ArrayAddUnique
	// PathCounter adds to a number.
	PathCounter
)

// Change is a change of a part of a document.
type Change struct {
	// Operation is what is done.
	Operation Operation
	// Path is where, as in `a.b[0]`. Missing parents are made, but for PathRemove, PathReplace and ArrayInsert, which work on
	// what is there.
	Path string
	// Value is with what, as JSON; nothing to remove.
	Value any
	// Xattr is whether the path begins with the name of an extended attribute. Such changes come first.
	Xattr bool
}

// Get is the document at key. It fails with [ErrNotFound] when there is none.
func (kvCapability) Get(keyspace, key string) (Document, error) { return kvGet(keyspace, key) }

// The most keys that the host takes at once.
const getManyMax = 1024

// GetMany gives the documents at keys, in that order; nil where there is none.
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

// Insert stores a document and gives its version. It fails with [ErrExists] when there is one.
func (kvCapability) Insert(keyspace, key string, content Content) (uint64, error) {
	acts()
	return kvInsert(keyspace, key, content)
}

// Upsert stores a document, whatever is there, and gives its version.
func (kvCapability) Upsert(keyspace, key string, content Content) (uint64, error) {
	acts()
	return kvUpsert(keyspace, key, content)
}

// Replace stores a document where there is one, of the version cas unless that is 0, and gives its new version. It fails with
// [ErrNotFound] and [ErrCASMismatch].
func (kvCapability) Replace(keyspace, key string, content Content, cas uint64) (uint64, error) {
	acts()
	return kvReplace(keyspace, key, content, cas)
}

// Remove deletes a document, of the version cas unless that is 0, and gives the version of its tombstone. It fails with
// [ErrNotFound] and [ErrCASMismatch].
func (kvCapability) Remove(keyspace, key string, cas uint64) (uint64, error) {
	acts()
	return kvRemove(keyspace, key, cas)
}

// Counter adds delta to a counter, which stops at 0. Where there is none, initial becomes one with that expiry; nil has it fail
// with [ErrNotFound] then.
func (kvCapability) Counter(keyspace, key string, delta int64, initial *uint64, expiry uint32) (Counted, error) {
	acts()
	return kvCounter(keyspace, key, delta, initial, expiry)
}

// Touch sets when a document expires, and gives its new version. It fails with [ErrNotFound] when there is none.
func (kvCapability) Touch(keyspace, key string, expiry uint32) (uint64, error) {
	acts()
	return kvTouch(keyspace, key, expiry)
}

// LookupIn gives the JSON values at paths, at most 16, nil where there is none; with xattr those of extended attributes. It
// fails with [ErrNotFound] when there is no document.
func (kvCapability) LookupIn(keyspace, key string, paths []string, xattr bool) ([]json.RawMessage, error) {
	return kvLookupIn(keyspace, key, paths, xattr)
}

// MutateIn makes changes of a document, at most 16, all of them or none, and gives its new version. The document must have the
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
