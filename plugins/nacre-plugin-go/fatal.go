//go:build wasip1

package nacre

import (
	"unicode/utf8"
	"unsafe"
)

// overrideWrite is called for output of the runtime. Go keeps it unchanged for packages that link to it: go.dev/issue/67401.
//
//go:linkname overrideWrite runtime.overrideWrite
var overrideWrite func(fd uintptr, start unsafe.Pointer, size int32) int32

func init() { overrideWrite = printed }

// The part of the reason for a fatal end that the runtime has printed so far.
var reason struct {
	text  [2000]byte
	bytes int32
	isOut bool
}

// printed logs the reason of a fatal end, such as `panic: oh no`, before the stacks follow: the process ends in a trap, and
// the host reports the last error of its log with the trap.
//
// The runtime prints in pieces, and memory cannot be allocated meanwhile.
//
//go:nosplit
func printed(_ uintptr, start unsafe.Pointer, size int32) int32 {
	isReason := begins(start, size, "panic: ") || begins(start, size, "fatal error: ")
	if reason.isOut || reason.bytes == 0 && !isReason {
		return size
	}
	isStack := begins(start, size, "goroutine ") || begins(start, size, "\nruntime stack:")
	for index := int32(0); !isStack && index < size && reason.bytes < int32(len(reason.text)); index++ {
		reason.text[reason.bytes] = *(*byte)(unsafe.Add(start, index))
		reason.bytes++
	}
	if isStack || reason.bytes == int32(len(reason.text)) {
		reason.isOut = true
		logReason()
	}
	return size
}

//go:nosplit
func begins(start unsafe.Pointer, size int32, prefix string) bool {
	if int(size) < len(prefix) {
		return false
	}
	for index := range len(prefix) {
		if *(*byte)(unsafe.Add(start, index)) != prefix[index] {
			return false
		}
	}
	return true
}

// logReason is called on the stack of the runtime, which is large enough.
func logReason() {
	for reason.bytes > 0 && reason.text[reason.bytes-1] == '\n' {
		reason.bytes--
	}
	text := reason.text[:reason.bytes]
	if !utf8.Valid(text) {
		for index, one := range text {
			if one >= utf8.RuneSelf {
				text[index] = '?'
			}
		}
	}
	importLogWrite(levelError, unsafe.Pointer(&reason.text), uint32(reason.bytes))
}
