//go:build !wasip1

package nacre

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// native replaces the host outside of the sandbox: it is the harness that was called last. Before the first call, it has state,
// timers and documents for direct use by a test.
var native = newHarness()

// access is locked during the use of a capability, because goroutines run in parallel here.
var access sync.Mutex

// stage is the kind of the current call, which determines the permitted capabilities.
type stage int

const (
	// No method of the plugin runs.
	aside stage = iota
	beginning
	writing
	reading
)

// outside is the data outside of the state.
type outside struct {
	documents map[place]Document
	lines     []string
	metrics   map[string]float64
	send      func(method, url string, headers []Header, body []byte) (Response, error)
	// The version of the last write.
	cas uint64
}

// place is the keyspace and the key of a document.
type place struct{ keyspace, key string }

// using checks that the current call may use a capability: Init may only log, and only calls that write may change the state.
// A node ends the call otherwise.
func using(capability string, isWritten bool) func() {
	access.Lock()
	if native.stage == beginning || isWritten && native.stage == reading {
		defer access.Unlock()
		if native.stage == beginning {
			panic(fmt.Sprintf("Init uses %s: it may use Log alone", capability))
		}
		panic(fmt.Sprintf("%s cannot be written while a request is answered", capability))
	}
	return access.Unlock
}

func stateGet(key string) ([]byte, bool) {
	defer using("State", false)()
	value, found := native.state[key]
	return slices.Clone(value), found
}

func statePut(key string, value []byte) {
	defer using("State", true)()
	native.state[key] = append([]byte{}, value...)
}

func stateDelete(key string) {
	defer using("State", true)()
	delete(native.state, key)
}

func stateScan(start, end string, limit uint32, reverse bool) []Entry {
	defer using("State", false)()
	keys := slices.Sorted(maps.Keys(native.state))
	keys = slices.DeleteFunc(keys, func(key string) bool { return key < start || end != "" && key >= end })
	if reverse {
		slices.Reverse(keys)
	}
	entries := make([]Entry, 0, len(keys))
	for _, key := range keys[:min(len(keys), int(limit))] {
		entries = append(entries, Entry{key, slices.Clone(native.state[key])})
	}
	return entries
}

func logWrite(level uint32, message string) {
	access.Lock()
	defer access.Unlock()
	native.lines = append(native.lines, [...]string{"debug", "info", "warn", "error"}[level]+" "+message)
}

func metricsAdd(name string, delta float64) {
	defer using("Metrics", false)()
	native.metrics[name] += delta
}

func metricsSet(name string, value float64) {
	defer using("Metrics", false)()
	native.metrics[name] = value
}

func timerSet(name string, due uint64, payload []byte) {
	defer using("Timers", true)()
	native.timers[name] = Timer{name, liftTime(due), append([]byte{}, payload...)}
}

func timerCancel(name string) {
	defer using("Timers", true)()
	delete(native.timers, name)
}

func timerIsSet(name string) bool {
	defer using("Timers", false)()
	_, found := native.timers[name]
	return found
}

func turnBegin(index uint32) {
	defer using("the turn", true)()
	native.kept, native.begun = native.clone(), int(index)
}

func turnFailed(index uint32, message string) {
	defer using("the turn", true)()
	native.failed = append(native.failed, DocumentError{int(index), message})
}

func httpSend(method, url string, headers []Header, body []byte) (Response, error) {
	using("HTTP", false)()
	if native.send == nil {
		return Response{}, &refusal{ErrDenied, "no function answers requests here: see Harness.OnHTTP"}
	}
	return native.send(method, url, headers, body)
}

// version returns a new version.
func (harness *Harness) version() uint64 {
	harness.cas++
	return uint64(harness.now.UnixNano()) + harness.cas
}

// stored is a stored document.
func (harness *Harness) stored(content Content) Document {
	return Document{
		Body:   append([]byte{}, content.Body...),
		CAS:    harness.version(),
		Flags:  content.Flags,
		Expiry: harness.expiry(content.Expiry),
		IsJSON: json.Valid(content.Body),
	}
}

// The maximum expiry that is relative to now, in seconds.
const expiryRelativeMax = 30 * 24 * 60 * 60

func (harness *Harness) expiry(given uint32) uint32 {
	if given == 0 || given > expiryRelativeMax {
		return given
	}
	return uint32(harness.now.Unix()) + given
}

// find returns the document at a place, of that version unless it is 0.
func (harness *Harness) find(at place, cas uint64) (Document, error) {
	document, found := harness.documents[at]
	switch {
	case !found || document.Expiry != 0 && !harness.now.Before(time.Unix(int64(document.Expiry), 0)):
		return Document{}, &refusal{ErrNotFound, ""}
	case cas != 0 && cas != document.CAS:
		return Document{}, &refusal{ErrCASMismatch, ""}
	}
	document.Body = slices.Clone(document.Body)
	return document, nil
}

func (harness *Harness) store(at place, content Content) uint64 {
	document := harness.stored(content)
	harness.documents[at] = document
	return document.CAS
}

func kvGet(keyspace, key string) (Document, error) {
	defer using("KV", false)()
	return native.find(place{keyspace, key}, 0)
}

func kvGetMany(keyspace string, keys []string) ([]*Document, error) {
	documents := make([]*Document, len(keys))
	for index, key := range keys {
		if document, err := kvGet(keyspace, key); err == nil {
			documents[index] = &document
		}
	}
	return documents, nil
}

func kvInsert(keyspace, key string, content Content) (uint64, error) {
	defer using("KV", false)()
	if _, err := native.find(place{keyspace, key}, 0); err == nil {
		return 0, &refusal{ErrExists, ""}
	}
	return native.store(place{keyspace, key}, content), nil
}

func kvUpsert(keyspace, key string, content Content) (uint64, error) {
	defer using("KV", false)()
	return native.store(place{keyspace, key}, content), nil
}

func kvReplace(keyspace, key string, content Content, cas uint64) (uint64, error) {
	defer using("KV", false)()
	if _, err := native.find(place{keyspace, key}, cas); err != nil {
		return 0, err
	}
	return native.store(place{keyspace, key}, content), nil
}

func kvRemove(keyspace, key string, cas uint64) (uint64, error) {
	defer using("KV", false)()
	if _, err := native.find(place{keyspace, key}, cas); err != nil {
		return 0, err
	}
	delete(native.documents, place{keyspace, key})
	return native.version(), nil
}

func kvCounter(keyspace, key string, delta int64, initial *uint64, expiry uint32) (Counted, error) {
	defer using("KV", false)()
	at := place{keyspace, key}
	before, err := native.find(at, 0)
	var value uint64
	switch {
	case err != nil && initial == nil:
		return Counted{}, err
	case err != nil:
		value, before.Expiry = *initial, expiry
	default:
		if value, err = strconv.ParseUint(string(before.Body), 10, 64); err != nil {
			return Counted{}, &refusal{ErrInvalid, "it is not a number"}
		}
		if sum := value + uint64(delta); delta >= 0 || sum < value {
			value = sum
		} else {
			value = 0
		}
	}
	cas := native.store(at, Content{strconv.AppendUint(nil, value, 10), before.Flags, before.Expiry})
	return Counted{value, cas}, nil
}

func kvTouch(keyspace, key string, expiry uint32) (uint64, error) {
	defer using("KV", false)()
	at := place{keyspace, key}
	document, err := native.find(at, 0)
	if err != nil {
		return 0, err
	}
	return native.store(at, Content{document.Body, document.Flags, expiry}), nil
}

func kvLookupIn(keyspace, key string, paths []string, xattr bool) ([]json.RawMessage, error) {
	defer using("KV", false)()
	document, err := native.find(place{keyspace, key}, 0)
	if err != nil {
		return nil, err
	}
	values := make([]json.RawMessage, len(paths))
	for index, path := range paths {
		// No document has extended attributes here.
		if !xattr {
			values[index] = lookUp(document.Body, path)
		}
	}
	return values, nil
}

func kvMutateIn(keyspace, key string, changes []Change, values [][]byte, cas uint64) (uint64, error) {
	defer using("KV", false)()
	at := place{keyspace, key}
	document, err := native.find(at, cas)
	if err != nil {
		return 0, err
	}
	body := document.Body
	for index, change := range changes {
		if body, err = changed(body, change, values[index]); err != nil {
			return 0, err
		}
	}
	return native.store(at, Content{body, document.Flags, document.Expiry}), nil
}
