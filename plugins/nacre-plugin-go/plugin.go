package nacre

import (
	"encoding/json"
	"sync"
	"time"
)

// Updater processes created and changed documents.
//
// If OnUpdate fails or panics, its changes of [State] and [Timers] are undone, the document is reported, and the feed continues.
// Its effects outside, by [KV] and [HTTP], remain.
//
// A [Fault] ends the whole call. After [Retry], and after temporary errors of [KV] and [HTTP] such as [ErrLocked] and
// [ErrFailed], the host repeats the call, and the feed waits meanwhile: convert an error that should not delay the feed, as by
// errors.New(err.Error()). External effects of earlier documents are not repeated.
type Updater interface {
	OnUpdate(event Event) error
}

// Deleter processes deleted and expired documents. Errors have the same meaning as those of [Updater].
type Deleter interface {
	OnDelete(event Event) error
}

// Batcher folds a batch into the state and returns the failed documents; it must undo its own changes for these. If a plugin has
// OnBatch, OnUpdate and OnDelete are not called. An error means that the whole batch failed; its writes are dropped.
//
// Use it for folding only: when a call is repeated, its external effects are repeated from the first document on.
type Batcher interface {
	OnBatch(events Events) ([]DocumentError, error)
}

// Rollbacker removes the data of a vBucket after seqno and returns the reached seqno, which is not greater. If done is false, it
// is called again for the rest, and must have removed something.
//
// Without it, the host rebuilds the state from the first document on.
type Rollbacker interface {
	Rollback(vb uint16, seqno uint64) (reached uint64, done bool, err error)
}

// Handler answers a request from a snapshot of the state. Without it, requests are not found.
//
// After a panic or an error that is not a [Fault], the response has the status 500 and names the error; to report an error to
// the client, return a response with an HTTP error status.
type Handler interface {
	Handle(request Request) (Response, error)
}

// Continuer returns the next piece of a response with a cursor: from the same snapshot, in the same instance.
type Continuer interface {
	More(cursor []byte) (Chunk, error)
}

// Merger merges the responses of several partitions into one.
type Merger interface {
	Merge(request Request, partials []Response) (Response, error)
}

// TimerHandler processes a timer that is due. The timer is removed and may be set again.
//
// After an error or a panic, its changes of [State] and [Timers] are undone; the host fires the timer again after [Retry] and
// drops it otherwise. External effects of earlier timers are not repeated.
type TimerHandler interface {
	OnTimer(now time.Time, timer Timer) error
}

// Initializer prepares an instance with the configuration of the deployment, in JSON. It is also called to check a configuration
// that is not deployed. Its error is reported to the author of the configuration.
type Initializer interface {
	Init(config []byte) error
}

// plugin is the argument of [Run].
var plugin any

// Run registers self as the plugin of the component. Call it once, from a function `init`.
func Run(self any) { plugin = self }

// attempt records the effects of the current document so far.
type attempt struct {
	remembered map[string]bool
	undo       []func()
	held       []func()
}

// work is the attempt of the current document; nil between documents.
var work *attempt

// working is locked during changes of the current attempt, because several goroutines may make them.
var working sync.Mutex

// attempted makes a call; if it fails, state and timers are restored.
func attempted(call func() error) error {
	this := &attempt{}
	work = this
	err := guarded(call)
	work = nil
	done := this.held
	if err != nil {
		done = this.undo
	}
	for _, do := range done {
		do()
	}
	return err
}

func describe() string {
	// Name and version of the package are in plugin.toml, not in the component.
	text, _ := json.Marshal(map[string]any{"name": "go", "version": "0.1.0", "limits": struct{}{}})
	return string(text)
}

func initialize(config []byte) error {
	return guarded(func() error {
		if plugin == nil {
			return Reject("no plugin is registered: call nacre.Run from a function init")
		}
		if err := checkRoles(plugin); err != nil {
			return err
		}
		if self, ok := plugin.(Initializer); ok {
			return self.Init(config)
		}
		return nil
	})
}

func takeBatch(buffer []byte) (errors []DocumentError, err error) {
	err = guarded(func() error {
		events, err := DecodeEvents(buffer)
		if err != nil {
			return err
		}
		if self, ok := plugin.(Batcher); ok {
			errors, err = self.OnBatch(events)
			if err != nil {
				return err
			}
			errors, err = oneEach(errors, events.Len())
			return err
		}
		updater, _ := plugin.(Updater)
		deleter, _ := plugin.(Deleter)
		hasActed = false
		for index, event := range events.All() {
			errors = beginItem(index, errors)
			err := attempted(func() error { return takeEvent(updater, deleter, event) })
			if isFault(err) {
				return err
			}
			if err != nil {
				errors = append(errors, DocumentError{index, err.Error()})
			}
		}
		return nil
	})
	return errors, err
}

// oneEach returns the first error of each document of a batch.
func oneEach(errors []DocumentError, count int) ([]DocumentError, error) {
	told := map[int]bool{}
	var first []DocumentError
	for _, one := range errors {
		if one.Index < 0 || one.Index >= count {
			return nil, Reject("OnBatch names event %d of %d", one.Index, count)
		}
		if !told[one.Index] {
			told[one.Index] = true
			first = append(first, one)
		}
	}
	return first, nil
}

func takeEvent(updater Updater, deleter Deleter, event Event) error {
	switch {
	case event.Kind == Upsert && updater != nil:
		return updater.OnUpdate(event)
	case event.Kind != Upsert && deleter != nil:
		return deleter.OnDelete(event)
	}
	return nil
}

func cutBack(vb uint16, seqno uint64) (reached uint64, done bool, err error) {
	self, ok := plugin.(Rollbacker)
	if !ok {
		return 0, false, Fatal("vBucket %d was cut back to %d, and this plugin cannot be", vb, seqno)
	}
	err = guarded(func() error {
		reached, done, err = self.Rollback(vb, seqno)
		return err
	})
	return reached, done, err
}

func answer(request Request) (response Response, err error) {
	self, ok := plugin.(Handler)
	if !ok {
		return JSON(404, map[string]string{"error": "not_found", "reason": "missing"})
	}
	err = guarded(func() error {
		response, err = self.Handle(request)
		return err
	})
	if err != nil && !isFault(err) {
		return JSON(500, map[string]string{"error": "exception", "reason": err.Error()})
	}
	return response, err
}

func goOn(cursor []byte) (chunk Chunk, err error) {
	self, ok := plugin.(Continuer)
	if !ok {
		return Chunk{}, Reject("this plugin does not answer in pieces")
	}
	err = guarded(func() error {
		chunk, err = self.More(cursor)
		return err
	})
	return chunk, err
}

func merge(request Request, partials []Response) (response Response, err error) {
	self, ok := plugin.(Merger)
	if !ok {
		return Response{}, Reject("this plugin cannot merge answers")
	}
	err = guarded(func() error {
		response, err = self.Merge(request, partials)
		return err
	})
	return response, err
}

func takeTimers(now time.Time, timers []Timer) error {
	return guarded(func() error {
		self, ok := plugin.(TimerHandler)
		if !ok {
			return nil
		}
		hasActed = false
		for index, timer := range timers {
			beginItem(index, nil)
			if err := self.OnTimer(now, timer); err != nil {
				return err
			}
		}
		return nil
	})
}
