//go:build !wasip1

package nacre

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// tester does what documents say.
type tester struct {
	handled func(Request) (Response, error)
}

func (tester) OnUpdate(event Event) error {
	State.Put("last", event.Key)
	State.Put("doc/"+event.ID(), event.Body)
	Timers.Set(event.ID(), event.Now.Add(time.Second), nil)
	switch string(event.Body) {
	case "fail":
		return errors.New("it fails")
	case "panic":
		var none []int
		_ = none[len(event.Body)]
	case "retry":
		return fmt.Errorf("later: %w", Retry("try again"))
	}
	return nil
}

func (tester) OnDelete(event Event) error {
	State.Delete("doc/" + event.ID())
	return nil
}

func (self tester) Handle(request Request) (Response, error) { return self.handled(request) }

// batcher takes batches as it is told.
type batcher struct{ failed []DocumentError }

func (self batcher) OnBatch(Events) ([]DocumentError, error) { return self.failed, nil }

// run makes a plugin the one that is called, with an empty state.
func run(self any) {
	nativeState, nativeTimers = map[string][]byte{}, map[string]Timer{}
	Run(self)
}

// batch is a buffer with documents, of keys and bodies in turn; no body is a deletion.
func batch(pairs ...string) []byte {
	count := len(pairs) / 2
	buffer, arena := make([]byte, headerBytes+count*eventBytes), []byte{}
	copy(buffer, Magic)
	binary.LittleEndian.PutUint32(buffer[4:], uint32(count))
	binary.LittleEndian.PutUint64(buffer[8:], 1_700_000_000_000_000)
	binary.LittleEndian.PutUint32(buffer[16:], uint32(len(buffer)))
	for index := range count {
		key, body := pairs[2*index], pairs[2*index+1]
		record := buffer[headerBytes+index*eventBytes:]
		binary.LittleEndian.PutUint64(record, uint64(index+1))
		binary.LittleEndian.PutUint32(record[36:], uint32(len(arena)))
		binary.LittleEndian.PutUint32(record[40:], uint32(len(arena)+len(key)))
		binary.LittleEndian.PutUint32(record[44:], uint32(len(body)))
		binary.LittleEndian.PutUint16(record[54:], uint16(len(key)))
		record[56] = byte(Upsert)
		if body == "" {
			record[56] = byte(Delete)
		}
		arena = append(arena, key+body...)
	}
	buffer = append(buffer, arena...)
	binary.LittleEndian.PutUint32(buffer[20:], uint32(len(buffer)))
	return buffer
}

func TestADocumentThatFailsLeavesNothing(t *testing.T) {
	for _, body := range []string{"fail", "panic"} {
		run(tester{})
		failed, err := takeBatch(batch("a", "1", "b", body, "c", "3"))
		if err != nil || len(failed) != 1 || failed[0].Index != 1 {
			t.Fatalf("%v, %v", failed, err)
		}
		if _, found := State.Get("doc/b"); found {
			t.Errorf("%s has left its document", body)
		}
		last, _ := State.Get("last")
		is(t, "the last", string(last), "c")
		is(t, "timer of what failed", Timers.IsSet("b"), false)
		is(t, "timer of what did not", Timers.IsSet("a"), true)
	}
}

func TestWhatWasThereIsPutBack(t *testing.T) {
	run(tester{})
	if _, err := takeBatch(batch("a", "1", "b", "fail")); err != nil {
		t.Fatal(err)
	}
	last, _ := State.Get("last")
	is(t, "the last", string(last), "a")
}

func TestAPanicIsToldWithItsPlace(t *testing.T) {
	run(tester{})
	failed, _ := takeBatch(batch("a", "panic"))
	for _, part := range []string{"panic: runtime error: index out of range [5] with length 0", "plugin_test.go:"} {
		if len(failed) != 1 || !strings.Contains(failed[0].Message, part) {
			t.Errorf("%v does not tell %q", failed, part)
		}
	}
}

func TestAFaultOfADocumentIsOneOfTheBatch(t *testing.T) {
	run(tester{})
	_, err := takeBatch(batch("a", "1", "b", "retry"))
	fault := faultOf(err)
	is(t, "kind", fault.Kind, FaultRetry)
	is(t, "message", fault.Message, "later: try again")
}

func TestHistoryIsFoldedAnewWithoutARollback(t *testing.T) {
	run(tester{})
	_, _, err := cutBack(7, 9)
	is(t, "kind", faultOf(err).Kind, FaultFatal)
}

func TestWhatFailsToAnswerAnswersWithItsError(t *testing.T) {
	run(tester{handled: func(Request) (Response, error) { return Response{}, errors.New("no") }})
	response, err := answer(Request{})
	is(t, "status", response.Status, 500)
	is(t, "body", string(response.Body), `{"error":"exception","reason":"no"}`)
	is(t, "error", err, nil)
	run(tester{handled: func(Request) (Response, error) { panic("oh") }})
	response, _ = answer(Request{})
	is(t, "panic", strings.Contains(string(response.Body), "panic: oh (plugin_test.go:"), true)
	run(tester{handled: func(Request) (Response, error) { return Response{}, Reject("never") }})
	_, err = answer(Request{})
	is(t, "kind", faultOf(err).Kind, FaultReject)
	run(struct{}{})
	response, _ = answer(Request{})
	is(t, "without an answer", response.Status, 404)
}

func TestWithoutAPluginNothingBegins(t *testing.T) {
	run(nil)
	is(t, "kind", faultOf(initialize(nil)).Kind, FaultReject)
	run(tester{})
	is(t, "error", initialize(nil), nil)
	is(t, "description", describe(), `{"limits":{},"name":"go","version":"0.1.0"}`)
}

// reached has its methods by pointer alone.
type reached struct{ batcher }

func (*reached) Handle(Request) (Response, error) { return Response{}, nil }

// mistaken has a method of another signature.
type mistaken struct{ tester }

func (mistaken) OnDelete(...*Event) error { return nil }

func TestMethodsThatWouldNotBeCalledAreTold(t *testing.T) {
	for _, one := range []struct {
		self   any
		wanted string
	}{
		{tester{}, ""},
		{&tester{}, ""},
		{&reached{}, ""},
		{reached{}, "Handle has a pointer receiver: hand &nacre.reached{} to nacre.Run"},
		{mistaken{}, "OnDelete is func(...*nacre.Event) error: func(nacre.Event) error is wanted"},
		{&mistaken{}, "OnDelete is func(...*nacre.Event) error: func(nacre.Event) error is wanted"},
		{struct{}{}, "struct {} has no method of a plugin"},
		{7, "int has no method of a plugin"},
	} {
		run(one.self)
		told := ""
		if err := initialize(nil); err != nil {
			told = err.Error()
		}
		is(t, fmt.Sprintf("%T", one.self), told, one.wanted)
	}
}

func TestErrorsOfABatchAreOneEachOfItsDocuments(t *testing.T) {
	run(batcher{[]DocumentError{{1, "a"}, {0, "b"}, {1, "c"}}})
	failed, err := takeBatch(batch("a", "1", "b", "2"))
	is(t, "errors", fmt.Sprint(failed, err), "[{1 a} {0 b}] <nil>")
	for _, index := range []int{-1, 2} {
		run(batcher{[]DocumentError{{index, "a"}}})
		_, err = takeBatch(batch("a", "1", "b", "2"))
		is(t, "kind", faultOf(err).Kind, FaultReject)
		is(t, "message", err.Error(), fmt.Sprintf("OnBatch names event %d of 2", index))
	}
}

func TestValuesAreReadWithoutAVariable(t *testing.T) {
	events := decoded(t, "event-buffer.example")
	var value any
	is(t, "error", events.At(0).JSON(&value), nil)
	is(t, "id", events.At(0).ID(), "k1")
	is(t, "JSON", Version{Datatype: DatatypeJSON}.IsJSON(), true)
	is(t, "request", Request{Body: []byte("7"), Query: "a=b"}.JSON(&value), nil)
	is(t, "document", Document{Body: []byte("7")}.JSON(&value), nil)
}

func TestErrorsOfDocumentsAreKnownByTheirKind(t *testing.T) {
	err := error(&refusal{ErrTemporary, "the disk is full"})
	is(t, "itself", errors.Is(err, ErrTemporary), true)
	is(t, "another", errors.Is(err, ErrLocked), false)
	is(t, "kind", faultOf(err).Kind, FaultRetry)
	is(t, "message", err.Error(), "not now: the disk is full")
	is(t, "fault of what stays so", isFault(&refusal{ErrNotFound, ""}), false)
}

func TestScansGoFromPageToPage(t *testing.T) {
	run(nil)
	for index := range 3*scanEntries + 7 {
		State.Put(fmt.Sprintf("k/%05d", index), nil)
	}
	State.Put("k", nil)
	State.Put("k0", nil)
	keys := func(scan Scan) (keys []string) {
		for entry := range State.Scan(scan) {
			keys = append(keys, entry.Key)
		}
		return keys
	}
	all := keys(Scan{Start: "k/", End: Successor("k/")})
	is(t, "all", len(all), 3*scanEntries+7)
	is(t, "in order", slices.IsSorted(all), true)
	backwards := keys(Scan{Start: "k/", End: Successor("k/"), Reverse: true, Limit: scanEntries + 1})
	is(t, "limited", len(backwards), scanEntries+1)
	is(t, "the first", backwards[0], all[len(all)-1])
	slices.Reverse(backwards)
	is(t, "backwards", slices.Equal(backwards, all[len(all)-len(backwards):]), true)
}

func TestSuccessorsAreAboveAllWithThePrefix(t *testing.T) {
	for prefix, wanted := range map[string]string{"a": "b", "a\xff": "b", "a\xfe\xff\xff": "a\xff", "\xff\xff": "", "": ""} {
		is(t, fmt.Sprintf("%q", prefix), Successor(prefix), wanted)
	}
}
