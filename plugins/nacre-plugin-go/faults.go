package nacre

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// FaultKind says who must act on a [Fault].
type FaultKind uint8

const (
	// FaultRetry is of a call that may succeed later: the host calls again.
	FaultRetry FaultKind = iota
	// FaultReject is of a caller that asked for something that cannot be.
	FaultReject
	// FaultFatal is of a plugin that cannot go on with this state.
	FaultFatal
)

// Fault is why a call as a whole did not succeed, by who must act. Of a document, it is one of the whole batch.
type Fault struct {
	// Kind says who must act.
	Kind FaultKind
	// Message is for the author of the plugin, or of its configuration.
	Message string
}

// Error is the message.
func (fault *Fault) Error() string { return fault.Message }

// Retry is an error that has the host make the call again. Of a document, the feed stands still meanwhile.
func Retry(format string, arguments ...any) error { return newFault(FaultRetry, format, arguments) }

// Reject is an error of a caller that asked for something that cannot be.
func Reject(format string, arguments ...any) error { return newFault(FaultReject, format, arguments) }

// Fatal is an error of a plugin that cannot go on with its state.
func Fatal(format string, arguments ...any) error { return newFault(FaultFatal, format, arguments) }

func newFault(kind FaultKind, format string, arguments []any) error {
	return &Fault{kind, fmt.Sprintf(format, arguments...)}
}

// faultOf is the fault that an error is or wraps; a call that ends with another error is rejected.
func faultOf(err error) *Fault {
	var fault *Fault
	if errors.As(err, &fault) {
		return &Fault{fault.Kind, err.Error()}
	}
	return &Fault{FaultReject, err.Error()}
}

func isFault(err error) bool {
	var fault *Fault
	return errors.As(err, &fault)
}

// guarded makes a call; a panic in it is its error.
func guarded(call func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = panicked(reason)
		}
	}()
	return call()
}

// panicked is a panic as an error in a line, with the place in the plugin: `panic: assignment to entry in nil map (main.go:9)`.
func panicked(reason any) error {
	// A deferred function runs on top of the frames that have panicked.
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		frame, more := frames.Next()
		// What the kit refuses is the fault of who calls it.
		isKit := strings.Contains(frame.Function, "nacre.stateCapability") || strings.Contains(frame.Function, "nacre.timerCapability")
		if !isKit && !strings.HasPrefix(frame.Function, "runtime.") {
			file := frame.File[strings.LastIndexByte(frame.File, '/')+1:]
			return fmt.Errorf("panic: %v (%s:%d)", reason, file, frame.Line)
		}
		if !more {
			return fmt.Errorf("panic: %v", reason)
		}
	}
}

// Errors of [KV] and [HTTP], for [errors.Is]. While a call is made again, the feed stands still.
var (
	// ErrNotFound: there is no such document.
	ErrNotFound = errors.New("there is no such document")
	// ErrExists: there is such a document already.
	ErrExists = errors.New("there is such a document already")
	// ErrCASMismatch: the document has another version.
	ErrCASMismatch = errors.New("the document has another version")
	// ErrTooLarge: key or body are larger than the bucket allows, or an answer than is granted.
	ErrTooLarge = errors.New("too large")
	// ErrLocked: a client holds the lock of the document. Returned by a method, it has the call made again.
	ErrLocked = errors.New("a client holds the lock of the document")
	// ErrTemporary: memory or disk are full, or the time of the call is over. Returned by a method, it has the call made again.
	ErrTemporary = errors.New("not now")
	// ErrDenied: the keyspace or host is not there or not granted.
	ErrDenied = errors.New("denied")
	// ErrInvalid: the document is not of the kind that the call needs: no counter, no key.
	ErrInvalid = errors.New("the document is not of the kind that the call needs")
	// ErrPath: a part of a mutation cannot be done.
	ErrPath = errors.New("a part of the mutation cannot be done")
	// ErrTimeout: the answer did not come before the deadline. Returned by a method, it has the call made again.
	ErrTimeout = errors.New("the answer did not come before the deadline of the call")
	// ErrFailed: there is no connection, or it broke. Returned by a method, it has the call made again.
	ErrFailed = errors.New("there is no connection, or it broke")
)

// refusal is why a capability gave no answer.
type refusal struct {
	kind    error
	message string
}

func (err *refusal) Error() string {
	if err.message == "" {
		return err.kind.Error()
	}
	return err.kind.Error() + ": " + err.message
}

func (err *refusal) Is(target error) bool { return target == err.kind }

// As makes those a retry that may be none a moment later.
func (err *refusal) As(target any) bool {
	fault, wanted := target.(**Fault)
	switch err.kind {
	case ErrLocked, ErrTemporary, ErrTimeout, ErrFailed:
		if wanted {
			*fault = &Fault{FaultRetry, err.Error()}
		}
		return wanted
	}
	return false
}
