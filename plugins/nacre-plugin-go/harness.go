//go:build !wasip1

package nacre

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Harness is a host for tests of one plugin: it does what a node does with a plugin, without the sandbox, its limits and grants.
//
//	func TestCitiesAreFound(t *testing.T) {
//		harness, err := nacre.NewHarness(cities{}, "")
//		if err != nil {
//			t.Fatal(err)
//		}
//		if err := harness.Upsert("a", `{"city": "Paris"}`); err != nil {
//			t.Fatal(err)
//		}
//		response, _ := harness.Request("GET", "/a", "")
//		if string(response.Body) != `{"city":"Paris"}` {
//			t.Errorf("%s", response.Body)
//		}
//	}
//
// Each harness has its own state, timers and documents. Calls of several harnesses run in turn. [State] and the other
// capabilities belong to the harness that was called last, also when a test uses them directly.
type Harness struct {
	self any
	now  time.Time
	// Number of changes of each vBucket.
	seqnos map[uint16]uint64
	// Events that the plugin wants to process again.
	left []Event
	// The state and timers to restore if the call fails, and the item from which it is repeated.
	kept  folded
	begun int
	// The failed documents of the call that were reported before its end.
	failed []DocumentError
	stage  stage
	folded
	outside
}

// folded is the data that calls of a plugin change.
type folded struct {
	state  map[string][]byte
	timers map[string]Timer
}

func (one folded) clone() folded { return folded{maps.Clone(one.state), maps.Clone(one.timers)} }

// harnesses is locked during the calls of a harness.
var harnesses sync.Mutex

// NewHarness deploys a plugin on an empty bucket, with a configuration in JSON, `{}` if that is empty. It fails if the plugin
// could not be deployed: if Init fails, or if methods would never be called.
func NewHarness(self any, config string) (*Harness, error) {
	if config == "" {
		config = "{}"
	}
	harness := newHarness()
	harness.self = self
	return harness, harness.call(beginning, func() error { return initialize([]byte(config)) })
}

func newHarness() *Harness {
	return &Harness{
		now:     time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		seqnos:  map[uint16]uint64{},
		folded:  folded{map[string][]byte{}, map[string]Timer{}},
		outside: outside{documents: map[place]Document{}, metrics: map[string]float64{}},
	}
}

// call makes a call. If it fails, state and timers are restored to the beginning of the current item.
func (harness *Harness) call(stage stage, do func() error) error {
	harnesses.Lock()
	defer harnesses.Unlock()
	plugin, native = harness.self, harness
	harness.kept, harness.begun, harness.failed, harness.stage = harness.clone(), 0, nil, stage
	defer func() { harness.stage = aside }()
	err := do()
	if err != nil {
		harness.folded = harness.kept
	}
	return err
}

// Now returns the time.
func (harness *Harness) Now() time.Time { return harness.now }

// Upsert feeds a document in a separate batch. It returns the error of the document or the call.
func (harness *Harness) Upsert(id, body string) error {
	return harness.feedOne(Event{Key: []byte(id), Version: Version{Body: []byte(body)}})
}

// Delete feeds the deletion of a document in a separate batch. It returns the error of the document or the call.
func (harness *Harness) Delete(id string) error {
	return harness.feedOne(Event{Key: []byte(id), Version: Version{Kind: Delete}})
}

func (harness *Harness) feedOne(event Event) error {
	failed, err := harness.Feed(event)
	if err == nil && len(failed) > 0 {
		err = errors.New(failed[0].Message)
	}
	return err
}

// Feed feeds a batch and returns the failed documents. An event needs a key: other fields that are zero get the values of a
// document that was created now.
//
// Its error is a [Fault]. After [Retry], the events that the plugin wants to process again begin the next batch; the failed
// documents are those of the other events.
func (harness *Harness) Feed(events ...Event) (failed []DocumentError, err error) {
	for _, event := range events {
		harness.left = append(harness.left, harness.completed(event))
	}
	batch := harness.left
	harness.left = nil
	err = harness.call(writing, func() error {
		failed, err = takeBatch(pack(batch, harness.now))
		return err
	})
	if err == nil {
		return append(harness.failed, failed...), nil
	}
	if faultOf(err).Kind == FaultRetry {
		harness.left = batch[harness.begun:]
	}
	return harness.failed, err
}

// completed returns an event with the missing fields of a document that was created now.
func (harness *Harness) completed(event Event) Event {
	if event.Kind == 0 {
		event.Kind = Upsert
	}
	if event.VB == 0 {
		event.VB = uint16(crc32.ChecksumIEEE(event.Key)>>16&0x7fff) % 1024
	}
	harness.seqnos[event.VB] = max(harness.seqnos[event.VB]+1, event.Seqno)
	event.Seqno = harness.seqnos[event.VB]
	if event.CAS == 0 {
		event.CAS = harness.version()
	}
	event.Rev = max(event.Rev, 1)
	if event.Kind == Upsert && json.Valid(event.Body) {
		event.Datatype |= DatatypeJSON
	}
	return event
}

// Advance moves the clock and fires the timers that become due, each at its time. It stops at the first failure of the plugin
// and sets the timers again that did not complete.
func (harness *Harness) Advance(by time.Duration) error {
	end := harness.now.Add(by)
	for {
		timers := harness.Timers()
		if len(timers) == 0 || timers[0].Due.After(end) {
			harness.now = end
			return nil
		}
		if harness.now.Before(timers[0].Due) {
			harness.now = timers[0].Due
		}
		later := func(timer Timer) bool { return timer.Due.After(harness.now) }
		if index := slices.IndexFunc(timers, later); index >= 0 {
			timers = timers[:index]
		}
		if err := harness.fire(timers); err != nil {
			return err
		}
	}
}

func (harness *Harness) fire(timers []Timer) error {
	for _, timer := range timers {
		delete(harness.timers, timer.Name)
	}
	err := harness.call(writing, func() error { return takeTimers(harness.now, timers) })
	if err != nil {
		for _, timer := range timers[harness.begun:] {
			harness.timers[timer.Name] = timer
		}
	}
	return err
}

// Rollback rolls a vBucket back to seqno and returns the seqno from which the feed continues.
func (harness *Harness) Rollback(vb uint16, seqno uint64) (reached uint64, err error) {
	for done := false; !done && err == nil; {
		err = harness.call(writing, func() error {
			reached, done, err = cutBack(vb, seqno)
			return err
		})
	}
	return reached, err
}

// Request returns the response to a request, with all pieces of its body. The path may have a query string after a `?`.
func (harness *Harness) Request(method, path, body string) (Response, error) {
	path, query, _ := strings.Cut(path, "?")
	return harness.Ask(Request{Method: method, Path: path, Query: query, Body: []byte(body)})
}

// Ask returns the response to a request that arrives now, with all pieces of its body.
func (harness *Harness) Ask(request Request) (response Response, err error) {
	request.Now = harness.now
	err = harness.call(reading, func() error {
		response, err = answer(request)
		for err == nil && response.Cursor != nil {
			var chunk Chunk
			chunk, err = goOn(response.Cursor)
			response.Body, response.Cursor = slices.Concat(response.Body, chunk.Body), chunk.Cursor
		}
		return err
	})
	if response.Status == 0 {
		response.Status = 200
	}
	return response, err
}

// Merge returns the merged response of several partitions.
func (harness *Harness) Merge(request Request, partials ...Response) (response Response, err error) {
	request.Now = harness.now
	err = harness.call(reading, func() error {
		response, err = merge(request, partials)
		return err
	})
	return response, err
}

// State returns a copy of the state.
func (harness *Harness) State() map[string]string {
	state := map[string]string{}
	for key, value := range harness.state {
		state[key] = string(value)
	}
	return state
}

// Timers returns the timers that are set, in the order of their times.
func (harness *Harness) Timers() []Timer {
	return slices.SortedFunc(maps.Values(harness.timers), func(a, b Timer) int {
		if order := a.Due.Compare(b.Due); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// Logged returns the lines of the log: the level, as in `warn`, a blank and the text.
func (harness *Harness) Logged() []string { return slices.Clone(harness.lines) }

// Metrics returns the metrics of the plugin.
func (harness *Harness) Metrics() map[string]float64 { return maps.Clone(harness.metrics) }

// Documents returns the documents that [KV] sees in a keyspace, by key. They are not fed to the plugin.
func (harness *Harness) Documents(keyspace string) map[string]Document {
	documents := map[string]Document{}
	for at, document := range harness.documents {
		if at.keyspace == keyspace {
			documents[at.key] = document
		}
	}
	return documents
}

// Store stores a document for [KV]. It is not fed to the plugin.
func (harness *Harness) Store(keyspace, key, body string) {
	harness.documents[place{keyspace, key}] = harness.stored(Content{Body: []byte(body)})
}

// OnHTTP sets the function that answers requests sent with [HTTP]; without it, they fail with [ErrDenied].
func (harness *Harness) OnHTTP(send func(method, url string, headers []Header, body []byte) (Response, error)) {
	harness.send = send
}

// pack returns the buffer of a batch, which [DecodeEvents] reads.
func pack(events []Event, now time.Time) []byte {
	buffer, arena := make([]byte, headerBytes+len(events)*eventBytes), []byte{}
	copy(buffer, Magic)
	binary.LittleEndian.PutUint32(buffer[4:], uint32(len(events)))
	binary.LittleEndian.PutUint64(buffer[8:], uint64(now.UnixMicro()))
	binary.LittleEndian.PutUint32(buffer[16:], uint32(len(buffer)))
	for index, event := range events {
		record := buffer[headerBytes+index*eventBytes:]
		packVersion(record, &event.Version)
		binary.LittleEndian.PutUint32(record[32:], event.Collection)
		binary.LittleEndian.PutUint32(record[36:], uint32(len(arena)))
		arena = append(arena, event.Key...)
		binary.LittleEndian.PutUint32(record[40:], uint32(len(arena)))
		arena = append(append(arena, event.Xattrs...), event.Body...)
		binary.LittleEndian.PutUint32(record[44:], uint32(len(event.Xattrs)+len(event.Body)))
		binary.LittleEndian.PutUint32(record[48:], uint32(len(event.Xattrs)))
		binary.LittleEndian.PutUint16(record[52:], event.VB)
		binary.LittleEndian.PutUint16(record[54:], uint16(len(event.Key)))
		record[56], record[57] = byte(event.Kind), event.Datatype
		if previous := event.Previous; previous != nil {
			binary.LittleEndian.PutUint32(record[58:], uint32(len(arena)))
			before := make([]byte, previousBytes)
			packVersion(before, previous)
			binary.LittleEndian.PutUint32(before[32:], uint32(len(previous.Xattrs)+len(previous.Body)))
			binary.LittleEndian.PutUint32(before[36:], uint32(len(previous.Xattrs)))
			before[40], before[41] = byte(previous.Kind), previous.Datatype
			arena = slices.Concat(arena, before, previous.Xattrs, previous.Body)
		}
	}
	buffer = append(buffer, arena...)
	binary.LittleEndian.PutUint32(buffer[20:], uint32(len(buffer)))
	return buffer
}

// packVersion packs the common beginning of both kinds of records.
func packVersion(record []byte, version *Version) {
	binary.LittleEndian.PutUint64(record, version.Seqno)
	binary.LittleEndian.PutUint64(record[8:], version.CAS)
	binary.LittleEndian.PutUint64(record[16:], version.Rev)
	binary.LittleEndian.PutUint32(record[24:], version.Flags)
	binary.LittleEndian.PutUint32(record[28:], version.Expiry)
}
