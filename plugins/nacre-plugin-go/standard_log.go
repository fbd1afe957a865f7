//go:build wasip1

package nacre

import (
	"log"
	"runtime"
	"strings"
)

// standardLog receives the output of the packages log and slog, which would be lost otherwise. The host adds the time of each line.
type standardLog struct{}

func init() {
	log.SetFlags(0)
	log.SetOutput(standardLog{})
}

// Write logs a line. The last line before the process ends is an error, because the host reports the last error as the reason.
func (standardLog) Write(line []byte) (int, error) {
	level := uint32(levelInfo)
	if endsWithIt() {
		level = levelError
	}
	logWrite(level, strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// endsWithIt reports whether the caller is one of log.Fatal, log.Fatalf and log.Fatalln, or a method of this name.
func endsWithIt() bool {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		frame, more := frames.Next()
		name, isStandard := strings.CutPrefix(frame.Function, "log.")
		if !isStandard || !more {
			return false
		}
		if strings.HasPrefix(name, "Fatal") || strings.HasPrefix(name, "(*Logger).Fatal") {
			return true
		}
	}
}
