package nacre

import "fmt"

// Metrics is the capability `metrics`: numbers for the operator.
//
// A name has 1 to 64 of the characters a-z, 0-9 and _, and a deployment at most 64 of them; others are dropped.
var Metrics metricsCapability

type metricsCapability struct{}

// Add adds to a number, 0 at first.
func (metricsCapability) Add(name string, delta float64) { metricsAdd(name, delta) }

// Set sets a number.
func (metricsCapability) Set(name string, value float64) { metricsSet(name, value) }

// Log is the capability `log`: lines in the log of the deployment. The host keeps 1024 of a call, 2000 characters each.
var Log logCapability

type logCapability struct{}

// Levels, as the interface `log` numbers them.
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

// Info adds a line for the operator, who has nothing to do.
func (logCapability) Info(format string, arguments ...any) {
	logWrite(levelInfo, fmt.Sprintf(format, arguments...))
}

// Warn adds a line for the operator, who may have to do something.
func (logCapability) Warn(format string, arguments ...any) {
	logWrite(levelWarn, fmt.Sprintf(format, arguments...))
}

// Error adds a line about something that went wrong.
func (logCapability) Error(format string, arguments ...any) {
	logWrite(levelError, fmt.Sprintf(format, arguments...))
}
