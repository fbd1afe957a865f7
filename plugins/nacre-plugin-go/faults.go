package nacre

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// FaultKind determines who must act on a [Fault].
type FaultKind uint8

const (
	// FaultRetry means that the call may succeed later: the host repeats it.
	FaultRetry FaultKind = iota
	// FaultReject means that the caller's request is invalid.
	FaultReject
	// FaultFatal means that the plugin cannot continue with this state.
	FaultFatal
)

// Fault is the failure of a whole call. For a document, it fails the whole batch.
type Fault struct {
	// Kind determines who must act.
	Kind FaultKind
	// Message is for the author of the plugin, or of its configuration.
	Message string
}

// Error returns the message.
func (fault *Fault) Error() string { return fault.Message }

// Retry returns an error that makes the host repeat the call. For a document, the feed waits meanwhile.
func Retry(format string, arguments ...any) error { return newFault(FaultRetry, format, arguments) }

// Reject returns an error for a caller with an invalid request.
func Reject(format string, arguments ...any) error { return newFault(FaultReject, format, arguments) }

// Fatal returns an error for a plugin that cannot continue with its state.
func Fatal(format string, arguments ...any) error { return newFault(FaultFatal, format, arguments) }

func newFault(kind FaultKind, format string, arguments []any) error {
	return &Fault{kind, fmt.Sprintf(format, arguments...)}
}

// faultOf returns the fault that an error is or wraps; a call that ends with another error is rejected.
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

// guarded makes a call and returns a panic in it as an error.
func guarded(call func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = panicked(reason)
		}
	}()
	return call()
}

// panicked returns a panic as an error in one line, with the position in the plugin: `panic: assignment to entry in nil map (main.go:9)`.
func panicked(reason any) error {
	// A deferred function runs above the frames that have panicked.
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		frame, more := frames.Next()
		// Refusals by the SDK are mistakes of its caller.
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

// Errors of [KV] and [HTTP], for [errors.Is]. While a call is repeated, the feed waits.
var (
	// ErrNotFound: the document does not exist.
	ErrNotFound = errors.New("there is no such document")
	// ErrExists: the document exists already.
	ErrExists = errors.New("there is such a document already")
	// ErrCASMismatch: the document has another version.
	ErrCASMismatch = errors.New("the document has another version")
	// ErrTooLarge: a key or body is larger than the bucket permits, or a response than the grant permits.
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
	ErrTimeout = errors.New("the call reached its deadline before the response")
	// ErrFailed: there is no connection, or it broke. Returned by a method, it has the call made again.
	ErrFailed = errors.New("there is no connection, or it broke")
)

// refusal is the reason why a capability failed.
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

// As converts temporary refusals to a retry.
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
