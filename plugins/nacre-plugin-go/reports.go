package nacre

import "fmt"

// Metrics is the capability `metrics`: numbers for the operator.
//
// A name has 1 to 64 of the characters a-z, 0-9 and _. A deployment has at most 64 metrics; others are dropped.
var Metrics metricsCapability

type metricsCapability struct{}

// Add adds to a number, which starts at 0.
func (metricsCapability) Add(name string, delta float64) { metricsAdd(name, delta) }

// Set sets a number.
func (metricsCapability) Set(name string, value float64) { metricsSet(name, value) }

// Log is the capability `log`: lines in the log of the deployment. The host keeps 1024 lines of a call, 2000 characters each.
var Log logCapability

type logCapability struct{}

// Levels, with the numbers of the interface `log`.
const (
	levelDebug = iota
	levelInfo
	levelWarn
	levelError
)

// Debug adds a line for the author of the plugin, formatted as by [fmt.Sprintf].
func (logCapability) Debug(format string, arguments ...any) {
	logWrite(levelDebug, fmt.Sprintf(format, arguments...))
}

// Info adds a line for the operator that requires no action.
func (logCapability) Info(format string, arguments ...any) {
	logWrite(levelInfo, fmt.Sprintf(format, arguments...))
}

// Warn adds a line for the operator that may require action.
func (logCapability) Warn(format string, arguments ...any) {
	logWrite(levelWarn, fmt.Sprintf(format, arguments...))
}

// Error adds a line about a failure.
func (logCapability) Error(format string, arguments ...any) {
	logWrite(levelError, fmt.Sprintf(format, arguments...))
}
