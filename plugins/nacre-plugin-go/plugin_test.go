//go:build !wasip1

package nacre

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// deployed is a harness with a plugin.
func deployed(t *testing.T, self any) *Harness {
	t.Helper()
	harness, err := NewHarness(self, "")
	if err != nil {
		t.Fatal(err)
	}
	return harness
}

// document is an event of a document that was created.
func document(key, body string) Event {
	return Event{Key: []byte(key), Version: Version{Body: []byte(body)}}
}

// kindOf returns the kind of an error's fault, in words.
func kindOf(err error) string {
	if err == nil {
		return "none"
	}
	return [...]string{"retry", "reject", "fatal"}[faultOf(err).Kind]
}

// updates, fires and answers are plugins of one method.
type (
	updates func(Event) error
	fires   func(time.Time, Timer) error
	answers func(Request) (Response, error)
	batches func(Events) ([]DocumentError, error)
)

func (self updates) OnUpdate(event Event) error { return self(event) }

func (self fires) OnTimer(now time.Time, timer Timer) error { return self(now, timer) }

func (self answers) Handle(request Request) (Response, error) { return self(request) }

func (self batches) OnBatch(events Events) ([]DocumentError, error) { return self(events) }

// tester executes instructions in documents.
type tester struct{}

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
	case "key":
		State.Put(strings.Repeat("k", keyBytesMax+1), nil)
	case "timer":
		Timers.Set("", event.Now, nil)
	case "retry":
		return fmt.Errorf("later: %w", Retry("try again"))
	}
	return nil
}

func (tester) OnDelete(event Event) error {
	State.Delete("doc/" + event.ID())
	return nil
}

func TestADocumentThatFailsLeavesNothing(t *testing.T) {
	for body, wanted := range map[string]string{
		"fail":  "it fails",
		"panic": "panic: runtime error: index out of range [5] with length 0 (plugin_test.go:",
		"key":   "panic: a key of the state has 1 to 65536 bytes, not 65537 (plugin_test.go:",
		"timer": "panic: the name of a timer has 1 to 1024 bytes, not 0 (plugin_test.go:",
	} {
		harness := deployed(t, tester{})
		failed, err := harness.Feed(document("a", "1"), document("b", body), document("c", "3"))
		if err != nil || len(failed) != 1 || failed[0].Index != 1 || !strings.HasPrefix(failed[0].Message, wanted) {
			t.Fatalf("%s: %v, %v", body, failed, err)
		}
		is(t, body, fmt.Sprint(harness.State()), "map[doc/a:1 doc/c:3 last:c]")
		is(t, body, len(harness.Timers()), 2)
	}
}

func TestWhatWasThereIsPutBack(t *testing.T) {
	harness := deployed(t, tester{})
	is(t, "a", harness.Upsert("a", "1"), nil)
	is(t, "b", harness.Upsert("b", "fail").Error(), "it fails")
	is(t, "state", fmt.Sprint(harness.State()), "map[doc/a:1 last:a]")
	is(t, "deletion", harness.Delete("a"), nil)
	is(t, "state", fmt.Sprint(harness.State()), "map[last:a]")
}

func TestAFaultOfADocumentIsOneOfTheBatch(t *testing.T) {
	harness := deployed(t, tester{})
	_, err := harness.Feed(document("a", "1"), document("b", "retry"))
	is(t, "kind", kindOf(err), "retry")
	is(t, "message", err.Error(), "later: try again")
	is(t, "state", len(harness.State()), 0)
}

// Each document adds to a counter outside the state, and one of them requests a retry.
func TestWhatIsDoneOutsideIsDoneOnceForEachDocument(t *testing.T) {
	one, tries := uint64(1), 0
	harness := deployed(t, updates(func(event Event) error {
		State.Put(event.ID(), nil)
		if event.ID() == "plain" {
			return nil
		}
		if event.ID() == "bad" {
			return errors.New("it fails")
		}
		if _, err := KV.Counter("", event.ID(), 1, &one, 0); err != nil {
			return err
		}
		if tries++; tries == 3 {
			return Retry("once more")
		}
		return nil
	}))
	var batch []Event
	for _, key := range []string{"bad", "a", "bad", "b", "plain", "c", "bad", "d"} {
		batch = append(batch, document(key, ""))
	}
	failed, err := harness.Feed(batch...)
	is(t, "kind", kindOf(err), "retry")
	is(t, "state", fmt.Sprint(harness.State()), "map[a: b: plain:]")
	is(t, "left", len(harness.left), 3)
	is(t, "failed", fmt.Sprint(failed), "[{0 it fails} {2 it fails}]")
	failed, err = harness.Feed()
	is(t, "again", err, nil)
	is(t, "failed", fmt.Sprint(failed), "[{1 it fails}]")
	counts := map[string]string{}
	for key, document := range harness.Documents("") {
		counts[key] = string(document.Body)
	}
	is(t, "counts", fmt.Sprint(counts), "map[a:1 b:1 c:2 d:1]")
	is(t, "state", fmt.Sprint(slices.Sorted(maps.Keys(harness.State()))), "[a b c d plain]")
}

func TestWhatIsDoneOutsideIsDoneOnceForEachTimer(t *testing.T) {
	sent := map[string]int{}
	harness := deployed(t, fires(func(now time.Time, timer Timer) error {
		State.Put("fired/"+timer.Name, timer.Payload)
		if _, err := HTTP.Send("POST", "https://a/"+timer.Name, nil, timer.Payload); err != nil {
			return err
		}
		if timer.Name == "b" && sent["https://a/b"] == 1 {
			return Retry("once more")
		}
		return nil
	}))
	harness.OnHTTP(func(_, url string, _ []Header, _ []byte) (Response, error) {
		sent[url]++
		return Response{}, nil
	})
	for _, name := range []string{"c", "a", "b"} {
		Timers.Set(name, harness.Now().Add(time.Second), []byte(name))
	}
	is(t, "before", harness.Advance(time.Second/2), nil)
	is(t, "kind", kindOf(harness.Advance(time.Second)), "retry")
	is(t, "state", fmt.Sprint(harness.State()), "map[fired/a:a]")
	is(t, "left", len(harness.Timers()), 2)
	is(t, "again", harness.Advance(time.Second), nil)
	is(t, "sent", fmt.Sprint(sent), "map[https://a/a:1 https://a/b:2 https://a/c:1]")
	is(t, "state", fmt.Sprint(harness.State()), "map[fired/a:a fired/b:b fired/c:c]")
	is(t, "left", len(harness.Timers()), 0)
}

func TestAPayloadIsThatOfTheCallThatSetTheTimer(t *testing.T) {
	harness := deployed(t, updates(func(event Event) error {
		buffer := []byte("first")
		Timers.Set("a", event.Now, buffer)
		copy(buffer, "other")
		return nil
	}))
	is(t, "error", harness.Upsert("a", ""), nil)
	is(t, "payload", string(harness.Timers()[0].Payload), "first")
}

func TestGoroutinesOfADocumentAreTakenBackWithIt(t *testing.T) {
	harness := deployed(t, updates(func(event Event) error {
		var all sync.WaitGroup
		for number := range 16 {
			all.Add(1)
			go func() {
				defer all.Done()
				State.Put(fmt.Sprint(number%8), event.Body)
				Timers.Set(fmt.Sprint(number), event.Now, nil)
			}()
		}
		all.Wait()
		if string(event.Body) == "fail" {
			return errors.New("it fails")
		}
		return nil
	}))
	is(t, "error", harness.Upsert("a", "1"), nil)
	is(t, "error", harness.Upsert("a", "fail").Error(), "it fails")
	is(t, "entries", len(harness.State()), 8)
	for key, value := range harness.State() {
		is(t, key, value, "1")
	}
	is(t, "timers", len(harness.Timers()), 16)
}

func TestHistoryIsFoldedAnewWithoutARollback(t *testing.T) {
	_, err := deployed(t, tester{}).Rollback(7, 9)
	is(t, "kind", kindOf(err), "fatal")
}

// cut removes an entry each time that it is called.
type cut struct{ tester }

func (cut) Rollback(vb uint16, seqno uint64) (uint64, bool, error) {
	for entry := range State.ScanPrefix("doc/") {
		State.Delete(entry.Key)
		return 0, false, nil
	}
	return seqno - 1, true, nil
}

func TestHistoryIsCutBackInPieces(t *testing.T) {
	harness := deployed(t, cut{})
	_, err := harness.Feed(document("a", ""), document("b", ""))
	is(t, "error", err, nil)
	reached, err := harness.Rollback(7, 9)
	is(t, "reached", reached, 8)
	is(t, "error", err, nil)
	is(t, "state", fmt.Sprint(harness.State()), "map[last:b]")
}

func TestWhatFailsToAnswerAnswersWithItsError(t *testing.T) {
	ask := func(self any) (Response, error) { return deployed(t, self).Request("GET", "/", "") }
	response, err := ask(answers(func(Request) (Response, error) { return Response{}, errors.New("no") }))
	is(t, "status", response.Status, 500)
	is(t, "body", string(response.Body), `{"error":"exception","reason":"no"}`)
	is(t, "error", err, nil)
	response, _ = ask(answers(func(Request) (Response, error) { panic("oh") }))
	is(t, "panic", strings.Contains(string(response.Body), "panic: oh (plugin_test.go:"), true)
	response, _ = ask(answers(func(Request) (Response, error) { State.Put("a", nil); return Response{}, nil }))
	is(t, "writing", strings.Contains(string(response.Body), "State cannot be written"), true)
	_, err = ask(answers(func(Request) (Response, error) { return Response{}, Reject("never") }))
	is(t, "kind", kindOf(err), "reject")
	response, _ = ask(tester{})
	is(t, "without an answer", response.Status, 404)
}

// teller answers in pieces, and merges answers.
type teller struct{}

func (teller) Handle(request Request) (Response, error) {
	return Response{Body: []byte(request.Arguments().Get("a")), Cursor: request.Body}, nil
}

func (teller) More(cursor []byte) (Chunk, error) {
	chunk := Chunk{Body: cursor[:1]}
	if len(cursor) > 1 {
		chunk.Cursor = cursor[1:]
	}
	return chunk, nil
}

func (teller) Merge(_ Request, partials []Response) (whole Response, err error) {
	for _, partial := range partials {
		whole.Body = append(whole.Body, partial.Body...)
	}
	return whole, nil
}

func TestPiecesAndPartsAreOneAnswer(t *testing.T) {
	harness := deployed(t, teller{})
	response, err := harness.Request("POST", "/?a=b%20", "cde")
	is(t, "answer", fmt.Sprint(response.Status, " ", string(response.Body), err), "200 b cde<nil>")
	response, err = harness.Merge(Request{}, response, Response{Body: []byte("f")})
	is(t, "whole", fmt.Sprint(string(response.Body), err), "b cdef<nil>")
	_, err = deployed(t, tester{}).Merge(Request{})
	is(t, "kind", kindOf(err), "reject")
}

func TestAVersionBeforeComesWithItsEvent(t *testing.T) {
	harness := deployed(t, updates(func(event Event) error {
		State.Put(event.ID(), append(event.Previous.Body, event.Xattrs...))
		return nil
	}))
	event := document("a", "2")
	event.Xattrs = []byte("attributes")
	event.Previous = &Version{Kind: Upsert, Body: []byte("before "), Xattrs: []byte("other")}
	failed, err := harness.Feed(event)
	is(t, "errors", fmt.Sprint(failed, err), "[] <nil>")
	is(t, "state", fmt.Sprint(harness.State()), "map[a:before attributes]")
}

// starter receives its configuration.
type starter struct {
	tester
	start func(config string) error
}

func (self starter) Init(config []byte) error { return self.start(string(config)) }

func TestAConfigurationIsTakenOrRefused(t *testing.T) {
	harness, err := NewHarness(starter{start: func(config string) error {
		Log.Warn("begun with %s", config)
		return nil
	}}, "")
	is(t, "error", err, nil)
	is(t, "log", fmt.Sprint(harness.Logged()), "[warn begun with {}]")
	_, err = NewHarness(starter{start: func(config string) error { return Reject("not %s", config) }}, "7")
	is(t, "error", err.Error(), "not 7")
	_, err = NewHarness(starter{start: func(string) error { State.Get("a"); return nil }}, "")
	is(t, "error", strings.Contains(err.Error(), "Init uses State"), true)
}

// reached has methods with a pointer receiver only.
type reached struct{ tester }

func (*reached) Handle(Request) (Response, error) { return Response{}, nil }

// mistaken has a method with a wrong signature.
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
		{nil, "no plugin is registered: call nacre.Run from a function init"},
		{reached{}, "Handle has a pointer receiver: hand &nacre.reached{} to nacre.Run"},
		{mistaken{}, "OnDelete is func(...*nacre.Event) error: func(nacre.Event) error is wanted"},
		{&mistaken{}, "OnDelete is func(...*nacre.Event) error: func(nacre.Event) error is wanted"},
		{struct{}{}, "struct {} has no method of a plugin"},
		{7, "int has no method of a plugin"},
	} {
		told := ""
		if _, err := NewHarness(one.self, ""); err != nil {
			told = err.Error()
			is(t, "kind", kindOf(err), "reject")
		}
		is(t, fmt.Sprintf("%T", one.self), told, one.wanted)
	}
	is(t, "description", describe(), `{"limits":{},"name":"go","version":"0.1.0"}`)
}

func TestErrorsOfABatchAreOneEachOfItsDocuments(t *testing.T) {
	feed := func(failed ...DocumentError) ([]DocumentError, error) {
		harness := deployed(t, batches(func(Events) ([]DocumentError, error) { return failed, nil }))
		return harness.Feed(document("a", ""), document("b", ""))
	}
	failed, err := feed(DocumentError{1, "a"}, DocumentError{0, "b"}, DocumentError{1, "c"})
	is(t, "errors", fmt.Sprint(failed, err), "[{1 a} {0 b}] <nil>")
	for _, index := range []int{-1, 2} {
		_, err = feed(DocumentError{index, "a"})
		is(t, "kind", kindOf(err), "reject")
		is(t, "message", err.Error(), fmt.Sprintf("OnBatch names event %d of 2", index))
	}
}

func TestValuesAreReadWithoutAVariable(t *testing.T) {
	events := decoded(t, "event-buffer.example")
	var value any
	is(t, "error", events.At(0).JSON(&value), nil)
	is(t, "id", events.At(0).ID(), "k1")
	is(t, "JSON", Version{Datatype: DatatypeJSON}.IsJSON(), true)
	is(t, "request", Request{Body: []byte("7")}.JSON(&value), nil)
	is(t, "document", Document{Body: []byte("7")}.JSON(&value), nil)
}

func TestErrorsOfDocumentsAreKnownByTheirKind(t *testing.T) {
	err := error(&refusal{ErrTemporary, "the disk is full"})
	is(t, "itself", errors.Is(err, ErrTemporary), true)
	is(t, "another", errors.Is(err, ErrLocked), false)
	is(t, "kind", kindOf(err), "retry")
	is(t, "message", err.Error(), "not now: the disk is full")
	is(t, "fault of what stays so", isFault(&refusal{ErrNotFound, ""}), false)
}

func TestScansGoFromPageToPage(t *testing.T) {
	deployed(t, tester{})
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
