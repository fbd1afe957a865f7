package nacre

import (
	"encoding/json"
	"sync"
	"time"
)

// Updater takes documents that were created or changed.
//
// When OnUpdate fails or panics, what it did to [State] and [Timers] is taken back, the document is reported, and the feed goes
// on. What it did outside, by [KV] and [HTTP], stays.
//
// With a [Fault], the call as a whole ends. After [Retry], and after errors of [KV] and [HTTP] that pass by themselves such as
// [ErrLocked] and [ErrFailed], the host calls again, and the feed stands still meanwhile: an error that is not to hold it up is
// given as another, as by errors.New(err.Error()). What documents before this one did outside is not done again.
type Updater interface {
	OnUpdate(event Event) error
}

// Deleter takes documents that were deleted or expired. An error is one as of [Updater].
type Deleter interface {
	OnDelete(event Event) error
}

// Batcher folds a batch into the state, and gives the documents that failed; what it did for these is its own to take back. A
// plugin that has it is not asked for its OnUpdate and OnDelete. With an error, the batch as a whole could not be taken; its writes
// are dropped then.
//
// It is for folding: what it does outside is done again when the call is made again, from the first document on.
type Batcher interface {
	OnBatch(events Events) ([]DocumentError, error)
}

// Rollbacker removes what came from a vBucket after seqno; gives the seqno (at most that) reached. With done false it is called
// again for the rest, and must have removed something.
//
// Without it, the host builds the state anew from the first document on.
type Rollbacker interface {
	Rollback(vb uint16, seqno uint64) (reached uint64, done bool, err error)
}

// Handler answers a request from a snapshot of the state. Without it, there is nothing to be found.
//
// With an error that is no [Fault], and with a panic, the answer has the status 500 and names it; an HTTP error status is an
// answer.
type Handler interface {
	Handle(request Request) (Response, error)
}

// Continuer gives the next piece of an answer that had a cursor: on the same snapshot, in the same instance.
type Continuer interface {
	More(cursor []byte) (Chunk, error)
}

// Merger makes one answer from the answers of several partitions.
type Merger interface {
	Merge(request Request, partials []Response) (Response, error)
}

// TimerHandler takes a timer that is due. It is gone, and may be set again.
//
// With an error or a panic, nothing that it did to [State] and [Timers] has happened; the host fires it again after [Retry], and
// else does without it. What timers before this one did outside is not done again.
type TimerHandler interface {
	OnTimer(now time.Time, timer Timer) error
}

// Initializer prepares an instance for the deployment with that configuration, JSON. It is also called to check a configuration
// that is not deployed. Its error is for the author of the configuration.
type Initializer interface {
	Init(config []byte) error
}

// plugin is what [Run] was given.
var plugin any

// Run makes self the plugin that the component is. It is called once, from a function `init`.
func Run(self any) { plugin = self }

// attempt is what the document at work has done so far.
type attempt struct {
	remembered map[string]bool
	undo       []func()
	held       []func()
}

// work is the document at work; nil when there is none.
var work *attempt

// working is held by who changes what is known of the item at work: several goroutines may.
var working sync.Mutex

// attempted makes a call; when it fails, state and timers are as they were before.
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
	// Name and version are those of the package, which plugin.toml has and the component does not know.
	text, _ := json.Marshal(map[string]any{"name": "go", "version": "0.1.0", "limits": struct{}{}})
	return string(text)
}

func initialize(config []byte) error {
	return guarded(func() error {
		if plugin == nil {
			return Reject("nothing is a plugin here: nacre.Run is called from a function init")
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

// oneEach is the first error of each document of a batch.
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
		return Chunk{}, Reject("this plugin gives its answers whole")
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
