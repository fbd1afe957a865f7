package nacre

import (
	"fmt"
	"slices"
	"time"
)

// Timers is the capability `timer`: calls of [TimerHandler] at a later time.
//
// Timers belong to the state: they are set, and removed when they fire, together with what the call writes.
var Timers timerCapability

type timerCapability struct{}

// Timer is a timer that is due.
type Timer struct {
	// Name is its name.
	Name string
	// Due is the time for which it was set.
	Due time.Time
	// Payload is the payload with which it was set.
	Payload []byte
}

// The maximum length of a timer's name.
const timerNameBytesMax = 1024

// Set sets a timer and replaces one of the same name. Names have 1 to 1024 bytes; others panic. The timer fires once, at due or
// soon after.
func (timerCapability) Set(name string, due time.Time, payload []byte) {
	// The host would end the call.
	if name == "" || len(name) > timerNameBytesMax {
		panic(fmt.Sprintf("the name of a timer has 1 to %d bytes, not %d", timerNameBytesMax, len(name)))
	}
	// A time before 1970 is due at once.
	micros := uint64(max(due.UnixMicro(), 0))
	payload = slices.Clone(payload)
	later(func() { timerSet(name, micros, payload) })
}

// Cancel removes a timer, if there is one of that name.
func (timerCapability) Cancel(name string) { later(func() { timerCancel(name) }) }

// IsSet reports whether a timer of that name was set by an earlier call.
func (timerCapability) IsSet(name string) bool { return timerIsSet(name) }

// later runs a function once the current document has succeeded; at once between documents.
func later(do func()) {
	working.Lock()
	if work != nil {
		work.held = append(work.held, do)
		do = func() {}
	}
	working.Unlock()
	do()
}

// liftTime returns a time that the host counts in microseconds since the Unix epoch.
func liftTime(micros uint64) time.Time { return time.UnixMicro(int64(micros)).UTC() }
